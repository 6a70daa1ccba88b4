"""The constraints of a check: sensitive states, deltas, and adversaries who are certain of a chain.

Definition 6 of Götz's dissertation: for every output that can occur, every step t and every sensitive context s,
Pr[X_t = s | output] - Pr[X_t = s] <= delta. Here that is a `cap` for each state, prior + delta.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

from reticent_client.mask.chain import UNKNOWN, Bools, Floats, MarkovChain

TOLERANCE = 1e-9
"""A belief may exceed prior + delta by this much through rounding: a promise of delta means delta + TOLERANCE."""

VERDICT = TOLERANCE / 2
"""The part of the tolerance that a check's own verdicts use; the rest covers the rounding of later verification."""

SEARCH = TOLERANCE / 4
"""The part that a search may use up, so that rounding does not turn its own results into breaches."""

SLACK = (VERDICT - SEARCH) / 2
"""By how much a window that a search has brought to its bound may still move: above rounding, and not to be used up."""

TINY = 1e-290
"""A state that can be reached but whose mass, relative to its window, is below this has no belief in float64.
Nothing is released on the strength of such a number."""

SensitiveState = str | tuple[int, str]
"""A context at every step, or a (step, context) pair."""

Sensitive = Collection[SensitiveState] | Mapping[SensitiveState, float]


STEPS_COUNT: Mapping[str, float] = {UNKNOWN: 1.0}
"""The weights of the published measure, in which a gap that is released counts like a context."""

Weights = Mapping[str, float]
"""The weight of a released context, between 0 and 1: by default 1, and 0 for "unknown", which is no context."""


def split_delta(delta: float, among: int | Collection[object]) -> float:
    """The delta for each of several contexts that protects being in *some* of them at a step.

    The contexts exclude one another at a step, so their rises add up. Steps do not exclude one another: dividing by
    the length of a window bounds the expected number of visits, not the belief in a visit.

    >>> split_delta(0.2, {"hospital", "pharmacy"})
    0.1
    """
    if isinstance(among, str | bool) or not isinstance(among, int | Collection):
        raise ValueError(f"delta is split among a number of contexts or a set of them: got {among!r}")
    parts = among if isinstance(among, int) else len(among)
    if parts < 1:
        raise ValueError(f"delta is split among at least one context: got {parts}")
    return _delta(delta) / parts


@dataclass(frozen=True, eq=False)
class BoundedAdversary:
    """An adversary who is certain of a chain, with the largest allowed belief in each state."""

    chain: MarkovChain
    cap: Floats  # (T, n): prior + delta where sensitive, infinite where that reaches 1 or nothing is sensitive

    @property
    def capped(self) -> Bools:
        """(T, n): the states whose belief is bounded."""
        return np.isfinite(self.cap)

    @cached_property
    def between(self) -> list[list[Floats]]:
        """[t1][t2 - t1 - 1] -> (n, n): the probabilities of moving from each context at t1 to each at t2 > t1."""
        return [self.chain.onward(t) for t in range(self.chain.horizon)]

    @cached_property
    def arriving(self) -> list[Floats]:
        """[t2] -> (k, n): the probability of moving from each capped state before t2, by time, to each at t2."""
        steps, states = np.nonzero(self.capped)
        n = self.chain.size
        return [
            np.array(
                [self.between[t][stop - t - 1][s] for t, s in zip(steps, states, strict=True) if t < stop]
            ).reshape(-1, n)
            for stop in range(self.chain.horizon)
        ]

    @cached_property
    def ahead(self) -> list[tuple[Floats, Floats]]:
        """[t] -> (n, k) and (k,): from each context at t, the probability of each capped state after t; their caps."""
        chain = self.chain
        rows, caps = np.zeros((chain.size, 0)), np.zeros(0)
        found = [(rows, caps)]
        for t in range(chain.horizon - 1, 0, -1):
            states = np.flatnonzero(self.cap[t] < 1)
            moved = np.concatenate([np.eye(chain.size)[:, states], rows], axis=1)
            rows = chain.transitions[t - 1] @ moved
            caps = np.concatenate([self.cap[t, states] + SEARCH, caps])
            found.append((rows, caps))
        return found[::-1]

    @cached_property
    def _open_ended(self) -> Bools:
        """(T, n): the states after whose release everything may be suppressed until the day ends."""
        fine = ~self.capped
        for t in range(self.chain.horizon):
            for gap, onward in enumerate(self.between[t]):
                fine[t] &= (onward <= self.cap[t + gap + 1] + VERDICT).all(axis=1)
        return fine

    @cached_property
    def releasable(self) -> Bools:
        """(T, n): the states that some private policy may release; those this adversary rules out anyway included."""
        return self._open_ended | ~self.chain.reachable


@dataclass(frozen=True, eq=False)
class Problem:
    """A chain, its sensitive states, and the adversaries.

    Privacy must hold for each adversary; utility is measured under the user's own chain.
    """

    chain: MarkovChain
    deltas: Floats  # (T, n): NaN where a state is not sensitive
    adversaries: tuple[BoundedAdversary, ...]
    weights: Floats  # (n,): what the release of each context is worth to the user

    @classmethod
    def of(
        cls,
        chain: MarkovChain,
        sensitive: Sensitive,
        delta: float | None,
        against: Sequence[MarkovChain] | None = None,
        weights: Weights | None = None,
    ) -> Problem:
        """The problem that a check's arguments describe."""
        if isinstance(sensitive, Mapping) and delta is not None:
            raise ValueError("sensitive gives deltas of its own, and delta is given too: give one of the two")
        deltas = delta_table(chain, sensitive, delta)
        chains = [chain] if against is None else _chains(against)
        for number, other in enumerate(chains):
            if other.contexts != chain.contexts or other.horizon != chain.horizon:
                raise ValueError(f"against[{number}] is over other contexts or another horizon than the user's chain")
        adversaries = tuple(_bounded(other, deltas) for other in chains)
        return cls(chain, deltas, adversaries, weight_row(chain, weights))

    @cached_property
    def gains(self) -> Floats:
        """(T, n): what releasing each state whenever it occurs adds to the utility."""
        return self.chain.prior * self.weights

    @cached_property
    def releasable(self) -> Bools:
        """(T, n): the states the user can be in that may be released at all, whatever is suppressed afterwards."""
        allowed = self.chain.reachable.copy()
        for adversary in self.adversaries:
            allowed &= adversary.releasable
        return allowed


def _chains(against: object) -> list[MarkovChain]:
    if isinstance(against, str) or not isinstance(against, Iterable):
        got = "one chain" if isinstance(against, MarkovChain) else repr(against)
        raise ValueError(f"against must be a list of chains: got {got}")
    chains = list(against)
    if not chains:
        raise ValueError("against names no adversary: give at least one chain, or leave it out")
    for number, other in enumerate(chains):
        if not isinstance(other, MarkovChain):
            raise ValueError(f"against[{number}] must be a chain: got {other!r}")
    return chains


def delta_table(chain: MarkovChain, sensitive: Sensitive, delta: float | None) -> Floats:
    """(T, n): how far the belief in each sensitive state may rise, NaN for the others."""
    if isinstance(sensitive, str):
        raise ValueError(f"sensitive must be a set of contexts: got the one string {sensitive!r}")
    if not sensitive:
        raise ValueError("sensitive names no context: there is nothing to protect")
    if not isinstance(sensitive, Iterable):
        raise ValueError(f"sensitive must be a set of contexts: got {sensitive!r}")
    if isinstance(sensitive, Mapping):
        own = [(state, _delta(value, state)) for state, value in sensitive.items()]
    else:
        if delta is None:
            raise ValueError("delta is missing: give delta=, or a delta for each sensitive context")
        own = [(state, _delta(delta)) for state in sensitive]
    table = np.full((chain.horizon, chain.size), np.nan)
    for state, value in own:
        where = _where(chain, state)
        table[where] = np.fmin(table[where], value)
    return table


def weight_row(chain: MarkovChain, weights: Weights | None = None) -> Floats:
    """(n,): the weight of each context, by default 1, and 0 for gaps."""
    row = np.array([0.0 if label == UNKNOWN else 1.0 for label in chain.contexts])
    given: Mapping[str, object] = weights or {}
    for label, weight in given.items():
        if label == UNKNOWN and chain.find(label) is None:
            continue  # a chain of days without gaps
        if not isinstance(weight, Real) or not 0 <= float(weight) <= 1:
            raise ValueError(f"the weight of {label!r} must lie between 0 and 1: got {weight}")
        row[chain.index(label)] = float(weight)
    row.flags.writeable = False
    return row


def _where(chain: MarkovChain, state: SensitiveState) -> tuple[slice | int, int]:
    """The part of a (T, n) table that a sensitive context or state names."""
    if isinstance(state, str):
        return slice(None), chain.index(state)
    try:
        number, label = state
        step = operator.index(number)
    except (TypeError, ValueError):
        raise ValueError(f"sensitive holds contexts or (step, context) pairs: got {state!r}") from None
    if not 0 <= step < chain.horizon:
        raise ValueError(f"sensitive step {step} lies outside the day of {chain.horizon} steps")
    return step, chain.index(label)


def _delta(delta: object, state: SensitiveState | None = None) -> float:
    place = "" if state is None else f" of {state!r}"
    if not isinstance(delta, Real):
        raise ValueError(f"delta{place} must be a number in (0, 1): got {delta!r}")
    value = float(delta)
    if not 0 < value < 1:  # also refuses NaN
        raise ValueError(f"delta{place} must lie in (0, 1): got {delta}")
    return value


def _bounded(chain: MarkovChain, deltas: Floats) -> BoundedAdversary:
    cap = chain.prior + deltas
    cap[~(cap < 1 - VERDICT)] = np.inf  # no belief exceeds 1, and where nothing is sensitive there is no bound
    cap.flags.writeable = False
    return BoundedAdversary(chain, cap)
