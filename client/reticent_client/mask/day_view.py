"""A real day under a policy: what happened, what was released, why the rest was silent, and what was believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reticent_client.mask.adversary import Adversary
from reticent_client.mask.chain import UNKNOWN, Bools, Floats
from reticent_client.mask.explanation import explain
from reticent_client.mask.maskit import Decision, MaskIt
from reticent_client.mask.policy import Policy

Reason = Literal["released", "reveals", "cover", "mask", "off_model", "after_off_model", "gap", "suspended"]
"""The reason for a release or silence at a step: one of `explain`'s, or the obstacle to a decision."""


@dataclass(frozen=True, eq=False)
class BeliefView:
    """The belief of an adversary in a sensitive context during a day."""

    context: str
    adversary: int
    """The position of the adversary in the policy's list."""
    sensitive: Bools  # (T,): the steps at which the context is sensitive
    prior: Floats  # (T,)
    belief: Floats  # (T,): after the whole day
    bound: Floats  # (T,): the largest allowed belief, 1 where nothing is promised

    @property
    def rise(self) -> float:
        """The largest rise of the belief at a step where the context is sensitive."""
        return float((self.belief - self.prior)[self.sensitive].max())


@dataclass(frozen=True, eq=False)
class DayView:
    """A day under a policy."""

    day: str
    on_model: bool
    contexts: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    reasons: tuple[Reason, ...]
    beliefs: tuple[BeliefView, ...]
    """One for each sensitive context, of the adversary whose belief in it rises most."""

    @property
    def worst(self) -> BeliefView:
        """The belief that rises most."""
        return max(self.beliefs, key=lambda each: each.rise)


def view_days(
    policy: Policy, days: Iterable[tuple[str, Sequence[str | None]]], rng: np.random.Generator | None = None
) -> list[DayView]:
    """Run a policy over days, each a name and labels, and look at each."""
    viewer = _Viewer(policy)
    mask = MaskIt(policy, rng)
    return [viewer.view(name, labels, mask.decide_day(labels)) for name, labels in days]


class _Viewer:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._adversaries = [Adversary(policy, chain) for chain in policy.against or (policy.chain,)]
        self._known: dict[tuple[int, tuple[int, str] | None, str], Reason] = {}

    def view(self, name: str, labels: Sequence[str | None], decisions: Sequence[Decision]) -> DayView:
        """A day that was decided."""
        outputs = tuple(decision.output for decision in decisions)
        learned = [adversary.beliefs_of_real_day(outputs) for adversary in self._adversaries]
        off_model = self._policy.chain.first_off_model(labels)
        on_model = off_model is None and not all(impossible for _, impossible in learned)
        # the promise does not cover an adversary whose chain rules out the outputs of a day on the model
        judged = [
            (number, beliefs) for number, (beliefs, impossible) in enumerate(learned) if not (on_model and impossible)
        ]
        reasons: list[Reason] = []
        last: tuple[int, str] | None = None
        for t, (label, decision) in enumerate(zip(labels, decisions, strict=True)):
            after = off_model is not None and off_model < t
            reasons.append(self._reason(t, last, label, decision, after_off_model=after))
            if decision.output is not None:
                last = t, decision.output
        return DayView(
            name,
            on_model,
            tuple(None if label == UNKNOWN else label for label in labels),
            outputs,
            tuple(reasons),
            tuple(
                max((self._belief(i, number, beliefs) for number, beliefs in judged), key=lambda each: each.rise)
                for i in np.flatnonzero(~np.isnan(self._policy.deltas).all(axis=0)).tolist()
            ),
        )

    def _reason(
        self, t: int, last: tuple[int, str] | None, label: str | None, decision: Decision, *, after_off_model: bool
    ) -> Reason:
        match decision.outcome:
            case "released":
                return "released"
            case "suspended":
                return "suspended"
            case "missing" | "missed":
                return "gap"
            case "off_model":
                return "gap" if label is None else "off_model"
        key = t, last, UNKNOWN if label is None else label
        if key not in self._known:
            self._known[key] = self._explained(*key)
        return "after_off_model" if after_off_model and self._known[key] == "off_model" else self._known[key]

    def _explained(self, t: int, last: tuple[int, str] | None, label: str) -> Reason:
        try:
            (found,) = explain(self._policy, t, "start" if last is None else last, contexts=[label]).contexts
        except ValueError:  # the policy would have released something since
            return "off_model"
        return "off_model" if found.reason == "impossible" else found.reason

    def _belief(self, index: int, adversary: int, beliefs: Floats) -> BeliefView:
        prior, deltas = self._adversaries[adversary].prior[:, index], self._policy.deltas[:, index]
        bound = np.minimum(np.nan_to_num(prior + deltas, nan=1.0, posinf=1.0), 1.0)
        return BeliefView(self._policy.contexts[index], adversary, ~np.isnan(deltas), prior, beliefs[:, index], bound)
