"""Days of learning, once more: by enumeration of days and of histories; and what the tests about it share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from reticent_client import (
    MarkovChain,
    Policy,
)
from reticent_client.mask.policy import VectorPolicy
from reticent_client.mask.provenance import Provenance
from tests.client.checks import PRIVATE
from tests.client.mask import oracle

checks = pytest.mark.parametrize("check", PRIVATE)


LINKED = MarkovChain(["s", "x"], [0.3, 0.7], [[[0.6, 0.4], [0.2, 0.8]]])  # s comes in runs
ERRAND = MarkovChain(["s", "x", "y"], [0.1, 0.6, 0.3], [[[0.0, 0.2, 0.8], [0.2, 0.8, 0.0], [0.1, 0.4, 0.5]]])
TRIPLE = MarkovChain(["s", "x"], [0.2, 0.8], [[[0.5, 0.5], [0.2, 0.8]], [[0.9, 0.1], [0.3, 0.7]]])


@dataclass(frozen=True)
class Counts:
    """The rule once more, by enumeration: counts of whole days, from which the chain of a morning is read off."""

    starting: MarkovChain
    strength: float
    expected: tuple[dict[oracle.Day, float], ...] = field(default=())
    """What was believed of each day that was learned from: the probability of every way to spend it."""

    @property
    def chain(self) -> MarkovChain:
        """The shares of the counts."""
        n, horizon = self.starting.size, self.starting.horizon
        first = np.zeros(n)
        moves = np.zeros((horizon - 1, n, n))
        for behind, weight in ((oracle.days(self.starting), self.strength), *((day, 1.0) for day in self.expected)):
            for day, mass in behind.items():
                first[day[0]] += weight * mass
                for t, (i, j) in enumerate(pairwise(day)):
                    moves[t, i, j] += weight * mass
        for t in range(horizon - 1):
            for i in range(n):
                if moves[t, i].sum() > 0:
                    moves[t, i] /= moves[t, i].sum()
                else:
                    moves[t, i] = self.starting.transitions[t, i]
        return MarkovChain(self.starting.contexts, first / first.sum(), moves)

    def after(self, behind: dict[oracle.Day, float]) -> "Counts":
        """The counts after a day that was spent in one of these ways, by these masses."""
        total = sum(behind.values())
        expected = {day: mass / total for day, mass in behind.items()}
        return Counts(self.starting, self.strength, (*self.expected, expected))


@dataclass(frozen=True)
class Moment:
    """The end of a day in some history."""

    number: int
    morning: MarkovChain
    policy: Policy
    output: oracle.Output
    belief: oracle.Array


def every_history(
    counts: Counts, policy_of: Callable[[MarkovChain], Policy], days: int, number: int = 0
) -> Iterator[Moment]:
    """Every day of every history of outputs that can occur, with beliefs by enumeration."""
    morning = counts.chain
    policy = policy_of(morning)
    found = oracle.joint(policy, morning)
    for output, belief in oracle.beliefs(policy, morning).items():
        yield Moment(number, morning, policy, output, belief)
        if number + 1 < days:
            yield from every_history(counts.after(found[output]), policy_of, days, number + 1)


def labels(chain: MarkovChain, output: oracle.Output) -> list[str | None]:
    return [None if i is None else chain.contexts[i] for i in output]


def rise(moment: Moment, bounds: list[oracle.Limit]) -> float:
    """By how much a belief rose above what is allowed, at worst."""
    prior = oracle.priors(moment.morning)
    return max(float(moment.belief[t, s] - prior[t, s]) - delta for t, s, delta in bounds)


def same(one: MarkovChain, other: MarkovChain) -> bool:
    """Equal up to rounding, where they can get to."""
    return bool(
        np.allclose(one.initial, other.initial, rtol=0, atol=1e-12)
        and np.allclose(one.prior, other.prior, rtol=0, atol=1e-12)
        and np.allclose(
            one.transitions * one.prior[:-1, :, None], other.transitions * other.prior[:-1, :, None], rtol=0, atol=1e-12
        )
    )


def vector(chain: MarkovChain, table: Any) -> VectorPolicy:
    """A policy that suppresses by a table."""
    return VectorPolicy(
        Provenance("by hand", chain, np.full((chain.horizon, chain.size), 0.5), (), 0.0), np.asarray(table, float)
    )
