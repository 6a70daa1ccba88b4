"""Audits: what an adversary would have learned from real days under a policy.

Section 3.7.1 of Götz's dissertation counts breaches: the sensitive contexts of the days at which the belief in them
rose by more than delta. An audit also covers contexts that were not visited, because wrong beliefs can rise too. Days
that leave the chain are judged apart: nothing is promised for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from reticent_client.mask.chain import UNKNOWN, Floats, MarkovChain
from reticent_client.mask.maskit import Decision, MaskIt
from reticent_client.mask.policy import Policy
from reticent_client.mask.problem import TOLERANCE
from reticent_client.mask.window_beliefs import WindowBeliefs

Day = Sequence[str | None]
Progress = Callable[[int], None]
"""Called with the number of finished days."""


class Gain(NamedTuple):
    """A rise of the belief in a context; the step is None for "at some step of the window"."""

    rise: float
    day: str
    step: int | None
    context: str


class StepAudit(NamedTuple):
    """The outcome of one step of a day."""

    day: str
    step: int
    on_model: bool
    """Whether the whole day is."""
    context: str | None
    decision: Decision
    rise: float
    """The largest rise of the belief in a sensitive state of this step, visited or not; -inf without any."""
    rising: str
    """The sensitive context of that rise."""
    visit: bool
    breach: bool


@dataclass(frozen=True, eq=False)
class DayAudit:
    """The outcome of one day, and what the adversaries learned from it."""

    day: str
    on_model: bool
    """Whether the chain can produce the day, and some adversary's chain its output.

    On such a day, adversaries whose chain rules the output out are left out: the promise does not cover them.
    """
    contexts: tuple[str | None, ...]
    """The user's contexts; None for a gap, as for the context "unknown"."""
    decisions: tuple[Decision, ...]
    visits: tuple[int, ...]
    """The steps of visits to sensitive states."""
    breaches: tuple[Gain, ...]
    """The visits at which the belief in the sensitive context rose by more than its delta."""
    impossible: int
    """The number of steps whose output an adversary's chain rules out."""
    rises: Floats
    """(T,): the largest rise of the belief in a sensitive state of each step, visited or not; -inf without any."""
    rising: tuple[str, ...]
    """The sensitive context of that rise, for each step."""
    some: Gain | None
    """The largest rise of the belief in a sensitive context at some step of the window. No delta bounds it."""

    @property
    def largest(self) -> Gain:
        """The largest rise of the belief in a sensitive state."""
        t = int(self.rises.argmax())
        return Gain(float(self.rises[t]), self.day, t, self.rising[t])

    def steps(self) -> Iterator[StepAudit]:
        """The outcome of each step."""
        breaches = {gain.step for gain in self.breaches}
        columns = zip(self.contexts, self.decisions, self.rises.tolist(), self.rising, strict=True)
        for t, (context, decision, rise, rising) in enumerate(columns):
            yield StepAudit(
                self.day, t, self.on_model, context, decision, rise, rising, t in self.visits, t in breaches
            )


@dataclass(frozen=True)
class DayTotals:
    """The outcomes of the steps of some days, and what the adversaries learned."""

    days: int
    steps: int
    contexts: int
    """The number of steps with a reading."""
    released: int
    """The number of released contexts."""
    worth: float
    """The sum of the weights of what was released."""
    suppressed: int
    """The number of contexts that the policy suppressed."""
    off_model: int
    """The number of contexts that the chain does not know, or rules out; they are suppressed."""
    suspended: int
    """The number of contexts after the policy's memory was lost; they are suppressed."""
    gaps: int
    """The number of steps without a reading."""
    gaps_released: int
    """The number of gaps that were released as "unknown"."""
    gaps_off_model: int
    """The number of gaps that the chain rules out, or has no context for."""
    visits: int
    breaches: int
    impossible: int
    largest: Gain | None
    some: Gain | None

    @classmethod
    def of(cls, days: Sequence[DayAudit], weights: Mapping[str, float]) -> DayTotals:
        """The totals of these days, by the weights of contexts."""
        outcomes = Counter(
            (context is None, decision.outcome)
            for day in days
            for context, decision in zip(day.contexts, day.decisions, strict=True)
        )
        return cls(
            days=len(days),
            steps=outcomes.total(),
            contexts=sum(number for (gap, _), number in outcomes.items() if not gap),
            released=outcomes[False, "released"],
            worth=sum(weights[output] for day in days for output, _ in day.decisions if output is not None),
            suppressed=outcomes[False, "suppressed"],
            off_model=outcomes[False, "off_model"],
            suspended=outcomes[False, "suspended"],
            gaps=sum(number for (gap, _), number in outcomes.items() if gap),
            gaps_released=outcomes[True, "released"],
            gaps_off_model=outcomes[True, "off_model"] + outcomes[True, "missing"],
            visits=sum(len(day.visits) for day in days),
            breaches=sum(len(day.breaches) for day in days),
            impossible=sum(day.impossible for day in days),
            largest=largest(day.largest for day in days),
            some=largest(day.some for day in days),
        )

    def to_json(self) -> dict[str, Any]:
        """The totals as plain data."""
        return asdict(self) | {"largest": _plain(self.largest), "some": _plain(self.some)}


@dataclass(frozen=True)
class Audit:
    """The outcomes of some days, and what an adversary learned from them."""

    policy: Policy
    days: tuple[DayAudit, ...]
    ceiling: float | None
    """An upper bound on the utility of any private policy, if it is known."""
    seeded: bool

    @cached_property
    def on_model(self) -> DayTotals:
        """The days that the chain can produce: the promise covers these."""
        return DayTotals.of([day for day in self.days if day.on_model], self.policy.weights)

    @cached_property
    def off_model(self) -> DayTotals:
        """The days that leave the chain: nothing is promised for these."""
        return DayTotals.of([day for day in self.days if not day.on_model], self.policy.weights)

    @cached_property
    def total(self) -> DayTotals:
        """All days."""
        return DayTotals.of(self.days, self.policy.weights)

    def steps(self) -> Iterator[StepAudit]:
        """The outcome of each step of each day."""
        for day in self.days:
            yield from day.steps()

    @property
    def breaches(self) -> list[Gain]:
        """The breaches of all days, in their order."""
        return [breach for day in self.days for breach in day.breaches]

    def to_json(self) -> dict[str, Any]:
        """The audit as plain data."""
        return {
            "check": self.policy.check,
            "utility": self.policy.utility,
            "ceiling": self.ceiling,
            "on_model": self.on_model.to_json(),
            "off_model": self.off_model.to_json(),
            "breaches": [gain._asdict() | {"on_model": day.on_model} for day in self.days for gain in day.breaches],
            "seeded": self.seeded,
        }


def breaches(
    policy: Policy, days: Iterable[Day], delta: float | None = None, rng: np.random.Generator | None = None
) -> int:
    """Run the policy over real days; count the visits to sensitive states whose belief rose by more than delta.

    The default delta is each state's own. The adversaries are those that the policy was made against.
    """
    return len(audit(policy, days, delta=delta, rng=rng, window=()).breaches)


def audit(
    policy: Policy,
    days: Iterable[Day],
    *,
    names: Iterable[str] | None = None,
    delta: float | None = None,
    rng: np.random.Generator | None = None,
    against: Sequence[MarkovChain] | None = None,
    window: Iterable[int] | None = None,
    ceiling: float | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Run the policy over real days and compute what adversaries learned.

    Args:
        policy: Any policy; one without a delta (`mask_sensitive`) needs `delta`.
        days: As many labels each as the policy has steps, None where nothing was read.
        names: The names of the days, such as their dates; "day 1" and so on unless given.
        delta: What counts as a breach, each state's own delta unless given.
        rng: Where the coins come from; secure ones unless given.
        against: What each adversary is certain of; the chains that the policy was made against unless given.
        window: The steps of "at some step", the whole day unless given.
        ceiling: What no policy can exceed, where it is known; the policy's own unless given.
        progress: Called with the number of days that are done, after each.
    """
    mask = MaskIt(policy, rng)
    reviewer = _Reviewer(policy, _deltas(policy, delta), policy.against if against is None else against, window)
    reviews: list[DayAudit] = []
    named = (f"day {number}" for number in count(1)) if names is None else names
    for name, day in zip(named, days, strict=names is not None):
        if len(day) != policy.horizon:
            raise ValueError(f"{name} has {len(day)} steps where the policy has {policy.horizon}")
        reviews.append(reviewer.review(name, day, mask.decide_day(day)))
        if progress is not None:
            progress(len(reviews))
    return Audit(policy, tuple(reviews), policy.ceiling if ceiling is None else ceiling, mask.report().seeded)


class _Reviewer:
    """Computes what adversaries learn from days."""

    def __init__(
        self, policy: Policy, deltas: Floats, against: Sequence[MarkovChain], window: Iterable[int] | None
    ) -> None:
        self._chain = policy.chain
        wanted = sorted(set(range(policy.horizon) if window is None else window))
        if wanted and not 0 <= wanted[0] <= wanted[-1] < policy.horizon:
            raise ValueError(f"the window {wanted[0]} to {wanted[-1]} leaves the day of {policy.horizon} steps")
        columns = np.flatnonzero(~np.isnan(deltas).all(axis=0))
        self._labels = [policy.contexts[i] for i in columns]
        self._deltas = deltas[:, columns]  # (T, k)
        self._sensitive = ~np.isnan(self._deltas)
        watched = {
            label: [t for t in wanted if sensitive[t]]
            for label, sensitive in zip(self._labels, self._sensitive.T, strict=True)
        }
        self._watched = np.array([bool(steps) for steps in watched.values()])
        self._adversaries = [WindowBeliefs(policy, chain, watched) for chain in against or (policy.chain,)]

    def review(self, name: str, day: Day, decisions: Sequence[Decision]) -> DayAudit:
        """The gains of the adversaries from a day that was decided."""
        learned = [adversary.of_day([decision.output for decision in decisions]) for adversary in self._adversaries]
        on_model = self._chain.can_produce(day) and not all(each.impossible for each in learned)
        judged = [
            (adversary, each)
            for adversary, each in zip(self._adversaries, learned, strict=True)
            if not (on_model and each.impossible)
        ]
        rise = np.max([each.rise for _, each in judged], axis=0)  # (T, k)
        visited = [
            (t, k)
            for t, label in enumerate(day)
            for k, sensitive in enumerate(self._labels)
            if (UNKNOWN if label is None else label) == sensitive and self._sensitive[t, k]
        ]
        sensitive = np.where(self._sensitive, rise, -np.inf)
        return DayAudit(
            day=name,
            on_model=on_model,
            contexts=tuple(None if label == UNKNOWN else label for label in day),
            decisions=tuple(decisions),
            visits=tuple(t for t, _ in visited),
            breaches=tuple(
                Gain(float(rise[t, k]), name, t, self._labels[k])
                for t, k in visited
                if rise[t, k] > self._deltas[t, k] + TOLERANCE
            ),
            impossible=sum(each.impossible for each in learned),
            rises=sensitive.max(axis=1),
            rising=tuple(self._labels[k] for k in sensitive.argmax(axis=1).tolist()),
            some=largest(
                Gain(float(after - before), name, None, label)
                for adversary, each in judged
                for after, before, label, is_watched in zip(
                    each.some, adversary.some_before, self._labels, self._watched, strict=True
                )
                if is_watched
            ),
        )


def largest(gains: Iterable[Gain | None]) -> Gain | None:
    """The gain with the largest rise; None without any."""
    return max((gain for gain in gains if gain is not None), key=lambda gain: gain.rise, default=None)


def _deltas(policy: Policy, delta: float | None) -> Floats:
    """(T, n): by how much the belief in each sensitive state may rise, NaN where it is not sensitive."""
    if delta is None:
        if np.isinf(policy.deltas).any():
            raise ValueError(f"a {policy.check} policy promises no delta: give delta= to count breaches by")
        return policy.deltas
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1): got {delta}")
    return np.where(np.isnan(policy.deltas), np.nan, delta)


def _plain(gain: Gain | None) -> dict[str, Any] | None:
    return None if gain is None else gain._asdict()
