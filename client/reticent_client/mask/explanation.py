"""The reasons for suppressing a context: the beliefs of an adversary if it were released.

A release of (t, x) *reveals* too much if by itself it raises the belief in a sensitive state above prior + delta: at t,
before t (since the last release), or after t even if nothing more is released. Other suppressed contexts are *cover*:
without them, the suppression of another context would reveal too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from reticent_client.errors import ImpossibleOutput
from reticent_client.mask.adversary import Adversary, Outputs
from reticent_client.mask.chain import Floats, MarkovChain
from reticent_client.mask.occupancy import DAY_START, Release, after_release, occupancies
from reticent_client.mask.policy import Memory, Policy
from reticent_client.mask.problem import TOLERANCE
from reticent_client.mask.rest_of_day import RestOfDay, chain_after, memory_after

When = Literal["before", "now", "after"]


@dataclass(frozen=True)
class Effect:
    """An adversary's belief in a sensitive state."""

    context: str
    step: int
    when: When
    prior: float
    belief: float
    bound: float | None
    """The largest allowed belief; None if it is not bounded."""
    adversary: int
    """The position of the adversary in the policy's list."""

    @property
    def excess(self) -> float:
        """The belief minus its bound."""
        return self.belief - (np.inf if self.bound is None else self.bound)

    @property
    def excessive(self) -> bool:
        """Whether the belief exceeds its bound."""
        return bool(self.excess > TOLERANCE)


@dataclass(frozen=True)
class ContextExplanation:
    """The suppression of a context at a step, and its reason."""

    context: str
    suppression: float | None
    """The probability of suppression; None if the chain rules the context out after the last release."""
    sensitive: bool
    release: Effect | None
    """The effect of its release: the worst of all sensitive states."""
    silence: Effect | None
    """The effect of a suppression at this step if this context were always released."""

    @property
    def reason(self) -> Literal["released", "impossible", "reveals", "cover", "mask"]:
        """The reason for its suppression."""
        if self.suppression is None:
            return "impossible"
        if self.suppression == 0:
            return "released"
        if self.release is not None and self.release.excessive:
            return "reveals"
        unbounded = self.release is None or self.release.bound is None
        return "mask" if self.sensitive and unbounded else "cover"


class Hidden(NamedTuple):
    """The first contexts from a step on, without another release, whose release would reveal too much."""

    step: int
    contexts: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """The decisions of a policy at a step, given the last release before it."""

    step: int
    released: tuple[int, str] | None
    """The step and context of the last release; None for the start of the day."""
    likelihood: float | None
    """The probability of this last release; None if the caller chose it."""
    contexts: tuple[ContextExplanation, ...]
    hidden: Hidden | None = None
    """The sensitive contexts that these suppressions hide only jointly; None if there are none."""

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain data."""
        plain = asdict(self)
        for each, own in zip(plain["contexts"], self.contexts, strict=True):
            each["reason"] = own.reason
        plain["hidden"] = None if self.hidden is None else self.hidden._asdict()
        return plain


def explain(
    policy: Policy,
    step: int,
    released: tuple[int, str] | Literal["start"] | None = None,
    *,
    contexts: Sequence[str] | None = None,
) -> Explanation:
    """Explain why the policy suppresses or releases each context at a step.

    Args:
        policy: Any policy.
        step: The step.
        released: The last release before it, as (step, context); "start" for none since the start of the day. Without
            it, the most likely one.
        contexts: The contexts to explain; all by default.

    Raises:
        ValueError: There is no such step, or the policy cannot suppress everything between the release and the step.
    """
    if not 0 <= step < policy.horizon:
        raise ValueError(f"step {step} lies outside the day of {policy.horizon} steps")
    indices = [policy.index(label) for label in (policy.contexts if contexts is None else contexts)]
    likelihood = None
    if released is None:
        last, likelihood = _likeliest(policy, step)
    else:
        last = _checked(policy, step, released)
    occupancy = after_release(policy, last, step)
    if not occupancy:
        raise ValueError(f"the policy always releases something between that release and step {step}")
    explainer = _Explainer(policy, last, step)
    found = tuple(explainer.explain(i, _suppression(policy, step, occupancy, i)) for i in indices)
    covering = any(each.reason == "cover" and each.silence is None for each in found)
    return Explanation(
        step,
        None if last == DAY_START else (last[0], policy.contexts[last[1]]),
        likelihood,
        found,
        _hidden(policy, last, step) if covering else None,
    )


def _hidden(policy: Policy, last: Release, step: int) -> Hidden | None:
    for t in range(step, policy.horizon):
        occupancy = after_release(policy, last, t)
        if not occupancy:
            return None
        explainer = _Explainer(policy, last, t)
        explained = [explainer.explain(i, _suppression(policy, t, occupancy, i)) for i in range(len(policy.contexts))]
        if labels := [each.context for each in explained if each.reason in {"reveals", "mask"}]:
            return Hidden(t, tuple(labels))
    return None


def _likeliest(policy: Policy, step: int) -> tuple[Release, float]:
    """The most likely last release before a step, and its probability."""
    for t, (occupancy, _) in enumerate(occupancies(policy, by_release=True)):
        if t == step:
            return occupancy.likeliest()
    raise AssertionError("unreachable: the step lies within the day")


def _checked(policy: Policy, step: int, released: tuple[int, str] | Literal["start"]) -> Release:
    if released == "start":
        return DAY_START
    t, label = released
    if not 0 <= t < step:
        raise ValueError(f"the last release must lie before step {step}: got step {t}")
    return t, policy.index(label)


def _suppression(policy: Policy, step: int, occupancy: dict[Memory, Floats], index: int) -> float | None:
    """The probability of suppressing a context, averaged over the policy's possible memories."""
    masses = {memory: float(row[index]) for memory, row in occupancy.items() if row[index] > 0}
    total = sum(masses.values())
    if total == 0:
        return None
    return sum(mass * float(policy.suppression(step, m)[index]) for m, mass in masses.items()) / total


class _Explainer:
    """Computes what adversaries would believe after one more output; since the last release they saw nothing."""

    def __init__(self, policy: Policy, last: Release, step: int) -> None:
        self.policy = policy
        self.step = step
        self.last = last
        self.first = last[0] + 1
        self.chains = policy.against or (policy.chain,)

    def explain(self, index: int, suppression: float | None) -> ContextExplanation:
        """The explanation of a context that is suppressed with this probability."""
        label = self.policy.contexts[index]
        silence = _worst(self._effects(index, None)) if suppression else None
        return ContextExplanation(
            label,
            suppression,
            sensitive=not np.isnan(self.policy.deltas[self.step, index]),
            release=None if suppression is None else _worst(self._effects(index, label)),
            silence=silence if silence is not None and silence.excessive else None,
        )

    def _effects(self, index: int, output: str | None) -> Iterator[Effect]:
        """The belief of each adversary in each sensitive state, if the context were always released."""
        outputs: Outputs = [*[None] * (self.step - self.first), output]
        own = chain_after(self.policy.chain, self.last)
        memory = memory_after(self.policy, self.last)
        changed = _AlwaysReleased(self.policy, own, self.first, memory, self.step, index)
        for number, chain in enumerate(self.chains):
            try:
                beliefs = Adversary(changed, chain_after(chain, self.last)).beliefs(outputs)
            except ImpossibleOutput:
                continue
            yield from self._effects_on(number, chain, beliefs)

    def _effects_on(self, number: int, chain: MarkovChain, beliefs: Floats) -> Iterator[Effect]:
        for t, i in np.argwhere(~np.isnan(self.policy.deltas[self.first :])).tolist():
            step = t + self.first
            prior = float(chain.prior[step, i])
            bound = prior + float(self.policy.deltas[step, i])
            yield Effect(
                self.policy.contexts[i],
                step,
                "now" if step == self.step else "before" if step < self.step else "after",
                prior,
                float(beliefs[t, i]),
                bound if bound < 1 else None,
                number,
            )


@dataclass(frozen=True)
class _AlwaysReleased(RestOfDay):
    """The rest of a day, changed at one step: there the policy always releases one context."""

    step: int
    index: int

    def suppression(self, t: int, memory: Memory) -> Floats:
        row = super().suppression(t, memory)
        if t + self.first == self.step:
            row = row.copy()
            row[self.index] = 0.0
        return row


def _worst(effects: Iterable[Effect]) -> Effect | None:
    """The effect that most exceeds its bound; without bounds, the largest rise."""
    return max(effects, key=lambda effect: (effect.excess, effect.belief - effect.prior), default=None)
