"""The verdict about a claim: the interval decides, unless it includes both answers.

>>> from reticent_sim.experiments.statistics import Estimate
>>> above(Estimate(0.4, low=0.3, high=0.5, n=91), 0.25).value
'holds'
>>> above(Estimate(0.4, low=-2.1, high=0.9, n=3), 0.25).value
'undecided'
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from reticent_sim.experiments.statistics import Estimate

MIN_PEOPLE = 6
"""Fewer people decide nothing: in over 5 of 100 samples, all of them lie on one side of the truth."""


class Verdict(Enum):
    """The verdict of a run on a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided"
    """There are too few people: the interval includes values for which the claim holds, and others."""


def never(counterexamples: bool, people: int) -> Verdict:
    """Whether something never happens: one counterexample decides, and otherwise many people without any."""
    if counterexamples:
        return Verdict.FAILS
    return Verdict.HOLDS if people >= MIN_PEOPLE else Verdict.UNDECIDED


def ever(examples: bool, people: int) -> Verdict:
    """Whether something happens at all: one example decides, and otherwise many people without any."""
    return opposite(never(examples, people))


def above(estimate: Estimate, bound: float) -> Verdict:
    """Whether a number lies above a bound. Without an interval or with few people, this is undecided."""
    if estimate.low is None or estimate.high is None or estimate.n < MIN_PEOPLE:
        return Verdict.UNDECIDED
    if estimate.low > bound:
        return Verdict.HOLDS
    return Verdict.FAILS if estimate.high <= bound else Verdict.UNDECIDED


def below(estimate: Estimate, bound: float) -> Verdict:
    """Whether a number lies below a bound."""
    return above(estimate.negative, -bound)


def at_least(estimate: Estimate, bound: float) -> Verdict:
    """Whether a number is a bound or more."""
    return opposite(below(estimate, bound))


def at_most(estimate: Estimate, bound: float) -> Verdict:
    """Whether a number is a bound or less."""
    return opposite(above(estimate, bound))


def opposite(verdict: Verdict) -> Verdict:
    """The verdict about the opposite claim."""
    return {Verdict.HOLDS: Verdict.FAILS, Verdict.FAILS: Verdict.HOLDS}.get(verdict, verdict)


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict about several claims together: it fails if one of them does."""
    found = set(verdicts)
    return next((each for each in (Verdict.FAILS, Verdict.UNDECIDED) if each in found), Verdict.HOLDS)


def any_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict about several claims of which one is enough."""
    return opposite(all_of(map(opposite, verdicts)))
