"""How often cohorts are short and queries lost, as a plan says, against a simulation."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from reticent.privacy import QueryBurnt
from reticent.randomness import seeded
from reticent_analyst import cohort_odds
from reticent_analyst.plan import plan
from reticent_sim.local_counts import LocalCounts
from tests.analyst.odds import SEEN, check_chance
from tests.analyst.queries import census


@pytest.mark.parametrize(
    ("population", "cohorts", "min_contributions", "absent"),
    [(100, 1, 80, 0.2), (103, 4, 21, 0.2), (1003, 5, 160, 0.2), (40, 4, 10, 0.05), (1000, 20, 41, 0.2)],
)
def test_short_cohorts_and_burnt_queries_are_as_frequent_as_planned(
    population: int, cohorts: int, min_contributions: int, absent: float
) -> None:
    rng = seeded(5, "short", population)
    runs = 20_000
    sizes = np.array([population // cohorts + (number < population % cohorts) for number in range(cohorts)])
    short = rng.binomial(sizes, 1 - absent, size=(runs, cohorts)) < min_contributions
    query = census(population=population, cohorts=cohorts, min_contributions=min_contributions, liars=0)
    planned = plan(query, absent=absent)
    check_chance(int(short[:, -1].sum()), runs, planned.cohort_short)
    check_chance(int(short.any(axis=1).sum()), runs, planned.any_cohort_short)
    check_chance(int((2 * short.sum(axis=1) > cohorts).sum()), runs, planned.no_release)
    assert max(planned.cohort_short, planned.no_release) * runs > SEEN


def test_a_simulation_burns_queries_as_often_as_planned() -> None:
    counts = LocalCounts(seeded(5, "burnt"), absent=0.2)
    fields: dict[str, Any] = {"noise": "gaussian", "fraction_bits": 4, "population": 60, "cohorts": 3, "liars": 1}
    rows = np.zeros((60, 1))
    burnt = 0
    for run in range(1500):
        try:
            counts.count(census(id=f"q{run}", min_contributions=16, **fields), rows)
        except QueryBurnt:
            burnt += 1
    planned = plan(census(min_contributions=16, **fields), absent=0.2).no_release
    assert planned * 1500 > SEEN
    check_chance(burnt, 1500, planned)


def test_probabilities_at_the_ends() -> None:
    assert plan(census(min_contributions=600)).no_release == 0.0
    certain = plan(census(cohorts=3, min_contributions=200, liars=0), absent=0.5)
    assert certain.cohort_short == pytest.approx(1.0)
    assert certain.no_release == pytest.approx(1.0)
    assert certain.accuracy[0].standard_error > 0  # of what cannot happen, but a number
    assert plan(census(cohorts=3, min_contributions=100, liars=0), absent=1e-300).any_cohort_short == 0.0


def test_mean_contributors_are_those_of_the_binomial_distribution() -> None:
    counts = np.arange(51)
    law = stats.binom.pmf(counts, 50, 0.8)
    for min_contributions in (1, 2, 38, 40, 45, 50):
        enough, few = cohort_odds.mean_contributors(50, min_contributions, 0.2)
        assert enough == pytest.approx((counts * law)[min_contributions:].sum() / law[min_contributions:].sum())
        assert few == pytest.approx((counts * law)[:min_contributions].sum() / law[:min_contributions].sum(), abs=1e-9)
