"""Verdicts: only an interval that excludes one answer decides."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_sim.experiments.statistics import Estimate
from reticent_sim.experiments.verdicts import Verdict, above, all_of, at_least, at_most, below, ever, never, opposite

HOLDS, FAILS, UNDECIDED = Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED
NUMBERS = st.floats(-10, 10)
Rule = Callable[[Estimate, float], Verdict]


def between(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, low, high, 91)


@pytest.mark.parametrize(
    ("rule", "low", "at", "high"),
    [
        (above, FAILS, FAILS, HOLDS),
        (below, HOLDS, FAILS, FAILS),
        (at_least, FAILS, HOLDS, HOLDS),
        (at_most, HOLDS, HOLDS, FAILS),
    ],
)
def test_a_number_without_doubt_decides(rule: Rule, low: Verdict, at: Verdict, high: Verdict) -> None:
    assert [rule(between(value, value), 0.5) for value in (0.4, 0.5, 0.6)] == [low, at, high]


@pytest.mark.parametrize("rule", [above, below, at_least, at_most])
@given(low=NUMBERS, high=NUMBERS, bound=NUMBERS)
def test_an_interval_that_includes_both_answers_decides_nothing(
    rule: Rule, low: float, high: float, bound: float
) -> None:
    low, high = sorted((low, high))
    answers = {rule(between(end, end), bound) for end in (low, high)}
    found = rule(between(low, high), bound)
    assert found is (answers.pop() if len(answers) == 1 else UNDECIDED)


@pytest.mark.parametrize("rule", [above, below, at_least, at_most])
def test_a_number_without_an_interval_decides_nothing(rule: Rule) -> None:
    assert rule(Estimate(40.0, None, None, 91), 0.5) is UNDECIDED


@pytest.mark.parametrize("rule", [above, below, at_least, at_most])
def test_fewer_than_six_people_decide_nothing(rule: Rule) -> None:
    """All of five lie on one side of the median in 2 of 32 samples, of six in 2 of 64."""
    assert rule(Estimate(0.4, 0.4, 0.4, 5), 0.5) is UNDECIDED
    assert rule(Estimate(0.4, 0.4, 0.4, 6), 0.5) is not UNDECIDED


def test_claims_together_hold_if_each_does_and_fail_if_one_does() -> None:
    assert all_of([]) is all_of([HOLDS, HOLDS]) is HOLDS
    assert all_of([HOLDS, UNDECIDED]) is UNDECIDED
    assert all_of([UNDECIDED, FAILS, HOLDS]) is FAILS


def test_the_opposite_of_what_is_undecided_is_undecided() -> None:
    assert [opposite(verdict) for verdict in (HOLDS, FAILS, UNDECIDED)] == [FAILS, HOLDS, UNDECIDED]


def test_with_few_people_only_an_example_decides() -> None:
    """Two people without a breach say little of everybody; one breach says enough of "never"."""
    assert [never(breach, people) for breach in (False, True) for people in (5, 6)] == [UNDECIDED, HOLDS, FAILS, FAILS]
    assert [ever(example, people) for example in (False, True) for people in (5, 6)] == [UNDECIDED, FAILS, HOLDS, HOLDS]
