"""How many cohorts, and of how many phones each, are chosen for an analyst."""

from dataclasses import replace
from typing import Any

import pytest
from scipy import stats

from reticent.privacy import Counter, QueryLimits, min_liars
from reticent.privacy.mechanisms import NoiseKind
from reticent_analyst import cohort_odds
from reticent_analyst.plan import plan
from reticent_analyst.question import Question
from tests.analyst.queries import census


@pytest.mark.parametrize(("population", "absent", "risk"), [(1000, 0.2, 1e-3), (50, 0.3, 0.05), (10_000, 0.0, 1e-6)])
def test_one_cohort_requires_as_many_contributions_as_the_risk_allows(
    population: int, absent: float, risk: float
) -> None:
    chosen = cohort_odds.choose_cohorts(population=population, absent=absent, lying=0, risk=risk, variance=20.0)
    assert (chosen.cohorts, chosen.liars) == (1, min_liars(chosen.min_contributions))
    assert cohort_odds.no_release(population, 1, chosen.min_contributions, absent) <= risk
    assert chosen.min_contributions == max(
        k for k in range(1, population + 1) if stats.binom.cdf(k - 1, population, 1 - absent) <= risk
    )


def test_of_many_cohorts_the_choice_is_nearly_the_most_accurate() -> None:
    """Against all thresholds, for counters that differ little among phones."""
    changes: dict[str, Any] = {"population": 400, "cohorts": 8, "l2_squared": 1, "l1": 1}

    def error(min_contributions: int) -> float:
        query = census(min_contributions=min_contributions, liars=min_liars(min_contributions), **changes)
        return plan(query, absent=0.2).accuracy[0].standard_error

    chosen = cohort_odds.choose_cohorts(population=400, absent=0.2, lying=0, risk=0.01, variance=20.0, cohorts=8)
    allowed = [k for k in range(3, 51) if cohort_odds.no_release(400, 8, k, 0.2) <= 0.01]
    assert chosen.min_contributions in allowed
    assert error(chosen.min_contributions) < 1.05 * min(map(error, allowed))


@pytest.mark.parametrize(("lying", "risk"), [(1, 1e-3), (10, 1e-3), (50, 0.01), (300, 0.01)])
def test_as_many_cohorts_are_chosen_as_the_liars_need(lying: int, risk: float) -> None:
    chosen = cohort_odds.choose_cohorts(population=100_000, absent=0.2, lying=lying, risk=risk, variance=20.0)
    assert chosen.cohorts % 2 == 1
    assert cohort_odds.no_release_with_liars(100_000, chosen.cohorts, chosen.min_contributions, 0.2, lying) <= risk
    assert cohort_odds.allowance_exceeded(100_000, chosen.cohorts, chosen.liars, lying) <= risk
    assert chosen.cohorts <= 2 * lying + 1
    fewer = cohort_odds.hit_cohorts(100_000, chosen.cohorts - 2, lying)
    assert fewer[(chosen.cohorts - 2) // 2 + 1 :].sum() > risk / 2


@pytest.mark.parametrize(
    ("given", "liars"),
    [({}, 38), ({"lying": 3}, 38), ({"lying": 100}, 100), ({"liars": 0}, 0), ({"liars": 7, "lying": 100}, 7)],
)
def test_a_twentieth_may_lie_unless_more_are_expected_or_liars_is_set(given: dict[str, int], liars: int) -> None:
    wanted: dict[str, Any] = {"population": 1000, "absent": 0.2, "lying": 0, "risk": 1e-3, "variance": 20.0}
    chosen = cohort_odds.choose_cohorts(**{**wanted, "cohorts": 1, "min_contributions": 760, **given})
    assert chosen == cohort_odds.CohortPlan(1, 760, liars)


@pytest.mark.parametrize("noise", ["skellam", "gaussian"])
def test_the_default_allowance_costs_a_fortieth_of_the_error(noise: NoiseKind) -> None:
    question = Question(
        id="q", counters=[Counter("a", 0, 1)], epsilon=0.5, delta=1e-7, absent=0.4, noise=noise, fraction_bits=None
    )
    none = replace(question, liars=0)
    by_default, unverified_tls = (
        plan(each.to_query(200_000, "k1"), absent=0.4).accuracy[0].standard_error for each in (question, none)
    )
    assert by_default / unverified_tls == pytest.approx((1 - QueryLimits.min_liars_share) ** -0.5, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"population": 0}, "population must be at least 1"),
        ({"cohorts": 0}, "cannot be dealt into 0 cohorts"),
        ({"cohorts": 1001}, "1000 phones cannot be dealt into 1001 cohorts"),
        ({"population": 10, "lying": 9}, "no number of cohorts up to 10 tolerates 9 liars"),
        ({"population": 10, "absent": 0.9}, "at least 2 must be honest"),
    ],
)
def test_an_impossible_choice_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    wanted: dict[str, Any] = {"population": 1000, "absent": 0.2, "lying": 0, "risk": 1e-3, "variance": 20.0}
    with pytest.raises(ValueError, match=message):
        cohort_odds.choose_cohorts(**{**wanted, **changes})
