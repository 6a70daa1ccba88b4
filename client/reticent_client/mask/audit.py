"""Audits: what an adversary would have learned from real days under a policy.

Section 3.7.1 of Götz's dissertation counts breaches: the sensitive contexts of the days at which the belief in them
rose by more than delta. An audit also covers contexts that were not visited, because wrong beliefs can rise too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from reticent_client.errors import ImpossibleOutput
from reticent_client.mask.adversary import Adversary, Outputs
from reticent_client.mask.chain import UNKNOWN, Floats, MarkovChain
from reticent_client.mask.maskit import MaskIt
from reticent_client.mask.policy import Policy
from reticent_client.mask.problem import TOLERANCE

Day = Sequence[str | None]
Progress = Callable[[int], None]
"""Called with the number of finished days."""


class Gain(NamedTuple):
    """A rise of the belief in a context; the step is None for "at some step of the window"."""

    rise: float
    day: int
    step: int | None
    context: str


@dataclass(frozen=True)
class Audit:
    """The outcomes of some days, and what an adversary learned from them."""

    check: str
    days: int
    steps: int
    released: int
    suppressed: int
    off_model: int
    missing: int
    utility: float
    """The expected number of releases a day, if days follow the chain."""
    realised: float
    """The actual number of releases a day."""
    ceiling: float | None
    """An upper bound on the utility of any private policy, if it is known."""
    visits: int
    """The number of visits to sensitive states."""
    breaches: int
    """The number of visits at which the belief in the sensitive context rose by more than its delta."""
    breaches_off_model: int
    """The breaches on days that leave the chain, for which nothing is promised."""
    impossible: int
    """The number of steps whose output an adversary's chain rules out."""
    largest: Gain | None
    """The largest rise of the belief in a sensitive state, visited or not; None without any."""
    largest_some: Gain | None
    """The largest rise of the belief in a sensitive context at some step of the window. No delta bounds it."""
    seeded: bool

    def to_json(self) -> dict[str, Any]:
        """The audit as plain data."""
        return asdict(self) | {
            name: None if gain is None else gain._asdict()
            for name, gain in (("largest", self.largest), ("largest_some", self.largest_some))
        }

    def rows(self) -> list[tuple[str, str]]:
        """The audit as rows of a name and a value."""
        share = f"{self.released / self.steps:.0%}" if self.steps else "none"
        rows = [
            ("check", self.check),
            ("days", f"{self.days} of {self.steps // max(self.days, 1)} steps"),
            ("released", f"{self.released} steps ({share}), {self.realised:.2f} a day"),
            ("expected", f"{self.utility:.2f} a day"),
        ]
        if self.ceiling is not None:
            part = f" ({self.utility / self.ceiling:.0%} reached)" if self.ceiling > 0 else ""
            rows.append(("at most possible", f"{self.ceiling:.2f} a day{part}"))
        rows += [
            ("suppressed", f"{self.suppressed} steps"),
            ("off-model", f"{self.off_model} steps"),
            ("missing", f"{self.missing} steps"),
            ("impossible to the adversary", f"{self.impossible} outcomes"),
            ("sensitive visits", str(self.visits)),
            ("breaches", f"{self.breaches}, {self.breaches_off_model} of them on days off the model"),
            ("largest gain", _gain_text(self.largest)),
            ("largest gain at some step", _gain_text(self.largest_some)),
        ]
        if self.seeded:
            rows.append(("seeded", "for simulation only"))
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def breaches(
    policy: Policy, days: Iterable[Day], delta: float | None = None, rng: np.random.Generator | None = None
) -> int:
    """Run the policy over real days; count the visits to sensitive states whose belief rose by more than delta.

    The default delta is each state's own. The adversaries are those that the policy was made against.
    """
    mask = MaskIt(policy, rng)
    return sum(review.breaches for review in _reviews(mask, days, _deltas(policy, delta), _adversaries(policy)))


def audit(
    policy: Policy,
    days: Iterable[Day],
    *,
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
        delta: What counts as a breach, each state's own delta unless given.
        rng: Where the coins come from; secure ones unless given.
        against: What each adversary is certain of; the chains that the policy was made against unless given.
        window: The steps of "at some step", the whole day unless given.
        ceiling: What no policy can exceed, where it is known; the policy's own unless given.
        progress: Called with the number of days that are done, after each.
    """
    mask = MaskIt(policy, rng)
    adversaries = _adversaries(policy, against)
    window_gains = _WindowGains(policy, adversaries, range(policy.horizon) if window is None else window)
    reviews: list[_Review] = []
    for review in _reviews(mask, days, _deltas(policy, delta), adversaries):
        reviews.append(replace(review, some=window_gains.largest(len(reviews), review.outputs)))
        if progress is not None:
            progress(len(reviews))
    report = mask.report()
    return Audit(
        check=policy.check,
        days=len(reviews),
        steps=report.steps,
        released=report.released,
        suppressed=report.suppressed,
        off_model=report.off_model,
        missing=report.missing,
        utility=policy.utility,
        realised=report.released / max(len(reviews), 1),
        ceiling=policy.ceiling if ceiling is None else ceiling,
        visits=sum(review.visits for review in reviews),
        breaches=sum(review.breaches for review in reviews),
        breaches_off_model=sum(review.breaches for review in reviews if review.off_model),
        impossible=sum(review.impossible for review in reviews),
        largest=_largest(review.gain for review in reviews),
        largest_some=_largest(review.some for review in reviews),
        seeded=report.seeded,
    )


@dataclass(frozen=True)
class _Review:
    """The outcome of one day, and what the adversaries learned."""

    outputs: Outputs
    visits: int
    breaches: int
    impossible: int
    off_model: bool
    gain: Gain | None
    some: Gain | None = None


def _reviews(mask: MaskIt, days: Iterable[Day], deltas: Floats, adversaries: Sequence[Adversary]) -> Iterator[_Review]:
    policy = mask.policy
    for number, day in enumerate(days):
        if len(day) != policy.horizon:
            raise ValueError(f"day {number} has {len(day)} steps where the policy has {policy.horizon}")
        before = mask.report()
        outputs = mask.filter_day(day)
        after = mask.report()
        beliefs = [adversary.beliefs_of_real_day(outputs) for adversary in adversaries]
        rise = np.max([b - a.prior for a, (b, _) in zip(adversaries, beliefs, strict=True)], axis=0)
        impossible = sum(len(steps) for _, steps in beliefs)
        visited = [
            (t, i)
            for t, label in enumerate(day)
            if (i := policy.chain.find(UNKNOWN if label is None else label)) is not None and not np.isnan(deltas[t, i])
        ]
        yield _Review(
            outputs,
            visits=len(visited),
            breaches=sum(bool(rise[state] > deltas[state] + TOLERANCE) for state in visited),
            impossible=impossible,
            off_model=after.off_model > before.off_model or after.missing > before.missing or impossible > 0,
            gain=_largest_rise(policy, number, rise),
        )


class _WindowGains:
    """The belief in being in a sensitive context at some step of a window, and what it was before."""

    def __init__(self, policy: Policy, adversaries: Sequence[Adversary], window: Iterable[int]) -> None:
        wanted = sorted(set(window))
        if wanted and not 0 <= wanted[0] <= wanted[-1] < policy.horizon:
            raise ValueError(f"the window {wanted[0]} to {wanted[-1]} leaves the day of {policy.horizon} steps")
        self._adversaries = adversaries
        self._windows: dict[str, list[int]] = {}
        for label, deltas in zip(policy.contexts, policy.deltas.T, strict=True):
            if steps := [t for t in wanted if not np.isnan(deltas[t])]:
                self._windows[label] = steps
        self._before = [
            {label: a.some([], label, steps) for label, steps in self._windows.items()} for a in adversaries
        ]

    def largest(self, day: int, outputs: Outputs) -> Gain | None:
        """The largest rise after these outputs; None if every adversary rules them out."""
        return _largest(
            Gain(rise, day, None, label)
            for adversary, before in zip(self._adversaries, self._before, strict=True)
            for label, rise in self._rises(adversary, before, outputs)
        )

    def _rises(self, adversary: Adversary, before: dict[str, float], outputs: Outputs) -> Iterator[tuple[str, float]]:
        with contextlib.suppress(ImpossibleOutput):
            for label, steps in self._windows.items():
                yield label, adversary.some(outputs, label, steps) - before[label]


def _adversaries(policy: Policy, against: Sequence[MarkovChain] | None = None) -> list[Adversary]:
    """The adversaries of these chains, by default those of the policy, or one who knows the user's own chain."""
    chains = policy.against if against is None else against
    return [Adversary(policy, chain) for chain in chains or (policy.chain,)]


def _deltas(policy: Policy, delta: float | None) -> Floats:
    """(T, n): by how much the belief in each sensitive state may rise, NaN where it is not sensitive."""
    if delta is None:
        if np.isinf(policy.deltas).any():
            raise ValueError(f"a {policy.check} policy promises no delta: give delta= to count breaches by")
        return policy.deltas
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1): got {delta}")
    return np.where(np.isnan(policy.deltas), np.nan, delta)


def _largest_rise(policy: Policy, day: int, rise: Floats) -> Gain:
    """The largest rise of the belief in a sensitive state of a day."""
    sensitive = np.where(np.isnan(policy.deltas), -np.inf, rise)
    t, i = np.unravel_index(int(sensitive.argmax()), sensitive.shape)
    return Gain(float(rise[t, i]), day, int(t), policy.contexts[int(i)])


def _largest(gains: Iterable[Gain | None]) -> Gain | None:
    return max((gain for gain in gains if gain is not None), key=lambda gain: gain.rise, default=None)


def _gain_text(gain: Gain | None) -> str:
    if gain is None:
        return "none"
    where = "at some step" if gain.step is None else f"at step {gain.step}"
    return f"{gain.rise:.3f}: {gain.context!r} {where}, day {gain.day}"
