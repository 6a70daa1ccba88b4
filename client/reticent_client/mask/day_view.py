"""A real day under a policy: what happened, what was released, why the rest was silent, and what was believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reticent_client.mask.adversary import Adversary
from reticent_client.mask.chain import UNKNOWN, Floats
from reticent_client.mask.explanation import explain
from reticent_client.mask.maskit import Decision, MaskIt
from reticent_client.mask.policy import Policy

Reason = Literal["released", "reveals", "cover", "mask", "off_model", "gap", "suspended"]
"""Why a step was released or silent: `explain`'s reasons, or what kept the policy from deciding."""


@dataclass(frozen=True, eq=False)
class BeliefView:
    """The belief in a sensitive context during a day."""

    context: str
    prior: Floats  # (T,)
    belief: Floats  # (T,): after the whole day
    bound: Floats  # (T,): the largest allowed belief, 1 where nothing is promised


@dataclass(frozen=True, eq=False)
class DayView:
    """A day under a policy."""

    day: str
    on_model: bool
    contexts: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    reasons: tuple[Reason, ...]
    beliefs: tuple[BeliefView, ...]
    """One for each sensitive context, of the first adversary."""

    @property
    def largest_rise(self) -> float:
        """The largest rise of the belief in a sensitive context."""
        return max(float((each.belief - each.prior).max()) for each in self.beliefs)


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
        self._adversary = Adversary(policy, policy.against[0] if policy.against else None)
        self._known: dict[tuple[int, tuple[int, str] | None, str], Reason] = {}

    def view(self, name: str, labels: Sequence[str | None], decisions: Sequence[Decision]) -> DayView:
        """A day that was decided."""
        outputs = tuple(decision.output for decision in decisions)
        beliefs, impossible = self._adversary.beliefs_of_real_day(outputs)
        reasons: list[Reason] = []
        last: tuple[int, str] | None = None
        for t, (label, decision) in enumerate(zip(labels, decisions, strict=True)):
            reasons.append(self._reason(t, last, label, decision))
            if decision.output is not None:
                last = t, decision.output
        return DayView(
            name,
            not impossible and self._policy.chain.can_produce(labels),
            tuple(None if label == UNKNOWN else label for label in labels),
            outputs,
            tuple(reasons),
            tuple(
                self._belief(i, beliefs) for i in np.flatnonzero(~np.isnan(self._policy.deltas).all(axis=0)).tolist()
            ),
        )

    def _reason(self, t: int, last: tuple[int, str] | None, label: str | None, decision: Decision) -> Reason:
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
        return self._known[key]

    def _explained(self, t: int, last: tuple[int, str] | None, label: str) -> Reason:
        try:
            (found,) = explain(self._policy, t, "start" if last is None else last, contexts=[label]).contexts
        except ValueError:  # the policy would have released something since: an earlier step was off the model
            return "off_model"
        return "off_model" if found.reason == "impossible" else found.reason

    def _belief(self, index: int, beliefs: Floats) -> BeliefView:
        prior = self._adversary.prior[:, index]
        bound = np.minimum(np.nan_to_num(prior + self._policy.deltas[:, index], nan=1.0, posinf=1.0), 1.0)
        return BeliefView(self._policy.contexts[index], prior, beliefs[:, index], bound)
