"""Where liars are and what they can do, as a plan says, against a simulation."""

import math
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from reticent.privacy import CohortSum, Counter, Query, estimate, skellam_share
from reticent.randomness import seeded
from reticent_analyst import cohort_odds
from reticent_analyst.plan import plan
from tests.analyst.odds import FALSE_ALARM, OFFS, check_chance
from tests.analyst.queries import census


def dealt(population: int, cohorts: int, liars: int, runs: int) -> np.ndarray:
    """How many liars each cohort has.  # (runs, G)."""
    rng = seeded(5, "dealt", population, cohorts, liars)
    found = np.empty((runs, cohorts), dtype=np.int64)
    for run in range(runs):
        found[run] = np.bincount(rng.choice(population, liars, replace=False) % cohorts, minlength=cohorts)
    return found


@pytest.mark.parametrize(("population", "cohorts", "liars"), [(1000, 15, 10), (60, 6, 8), (5000, 9, 4), (500, 2, 1)])
def test_liars_are_in_as_many_cohorts_as_planned(population: int, cohorts: int, liars: int) -> None:
    hit = (dealt(population, cohorts, liars, 20_000) > 0).sum(axis=1)
    planned = cohort_odds.hit_cohorts(population, cohorts, liars)
    assert planned.sum() == pytest.approx(1.0)
    often = planned * 20_000 > 30
    assert (hit[~often[hit]].size) < 200
    seen = np.bincount(hit, minlength=cohorts + 1)[often]
    expected = planned[often] / planned[often].sum() * seen.sum()
    if often.sum() > 1:
        assert stats.chisquare(seen, expected).pvalue > FALSE_ALARM
    risk_of_liars = plan(
        census(population=population, cohorts=cohorts, min_contributions=4, liars=2), lying=liars
    ).liars
    assert risk_of_liars.mean_cohorts_hit == pytest.approx(hit.mean(), rel=0.02)
    assert (hit <= risk_of_liars.cohorts_hit).mean() > 0.94
    assert (hit <= risk_of_liars.cohorts_hit - 1).mean() < 0.96


@pytest.mark.parametrize(
    ("liars", "absent", "min_contributions"), [(10, 0.0, 50), (5, 0.2, 50), (3, 0.2, 52), (0, 0.2, 53), (12, 0.2, 40)]
)
def test_liars_and_absence_burn_queries_as_often_as_planned(liars: int, absent: float, min_contributions: int) -> None:
    """One per cent of a thousand phones is too much for fifteen cohorts."""
    population, cohorts, runs = 1000, 15, 20_000
    rng = seeded(5, "wild", liars)
    sizes = np.array([population // cohorts + (number < population % cohorts) for number in range(cohorts)])
    short = rng.binomial(sizes, 1 - absent, size=(runs, cohorts)) < min_contributions
    void = dealt(population, cohorts, liars, runs) > 0
    lost = int((2 * (short | void).sum(axis=1) > cohorts).sum())
    planned = plan(
        census(population=population, cohorts=cohorts, min_contributions=min_contributions, liars=1),
        absent=absent,
        lying=liars,
    ).liars
    check_chance(lost, runs, planned.no_release)


def test_the_tolerated_liars_are_the_most() -> None:
    for cohorts, absent, risk in [(15, 0.0, 0.01), (15, 0.2, 0.05), (31, 0.2, 1e-3), (1, 0.0, 0.01)]:
        query = census(population=1000, cohorts=cohorts, min_contributions=20, liars=1)
        tolerated = plan(query, absent=absent, risk=risk).liars.tolerated
        assert plan(query, absent=absent, lying=tolerated).liars.no_release <= risk
        assert plan(query, absent=absent, lying=tolerated + 1).liars.no_release > risk


def test_cohorts_have_more_liars_than_allowed_as_often_as_planned() -> None:
    found = dealt(1003, 10, 20, 20_000).max(axis=1)
    for allowed in range(8):
        most = int((found > allowed).sum())
        planned = cohort_odds.allowance_exceeded(1003, 10, allowed, 20)
        assert stats.binomtest(most, 20_000, planned, alternative="greater").pvalue > FALSE_ALARM
        if 1000 < most < 5000:  # rare enough for the sum over cohorts to be near, and often enough to see it
            assert stats.binomtest(most, 20_000, OFFS[0] * planned, alternative="greater").pvalue < FALSE_ALARM


@pytest.mark.parametrize("hit", [1, pytest.param(2, marks=pytest.mark.slow), 4])
def test_liars_shift_estimates_no_further_than_planned(hit: int) -> None:
    """Phones all say the middle, which hides liars best; liars push their cohort as far as they dare."""
    query = census(
        40,
        counters=[Counter(f"c{k}", 0, 100) for k in range(40)],
        epsilon=5.0,
        l2_squared=100**2,
        l1=630,
        population=9000,
        cohorts=15,
        min_contributions=500,
        liars=2,
    )
    rng = seeded(5, "pull", hit)
    size = 600
    unit = math.sqrt(size * (query.share_variance + _variance_of_the_middle(query)))
    worst = 0.0
    for daring in (2.0, 3.0, 3.5, 3.8, 4.0, 4.3, 5.0, 8.0, 100.0):
        errors = []
        for _ in range(30):
            sums = [50 * size + skellam_share(size * query.share_variance, query.size, rng) for _ in range(15)]
            for number in range(hit):
                sums[number] = sums[number] + round(daring * unit)
            known = [CohortSum(size, tuple(each.tolist())) for each in sums]
            errors.append(np.array(estimate(query, known, seeded=True).value) - 50 * 9000)
        worst = max(worst, float(np.abs(np.mean(errors))))
    planned = _pull_of(query, hit)
    assert OFFS[0] * planned < worst < planned


def _variance_of_the_middle(query: Query) -> float:
    return min(50.0**2, query.l2_squared - 50.0**2)


def _pull_of(query: Query, hit: int) -> float:
    """What the plan says for the number of liars that are most likely in so many cohorts at most."""
    for liars in range(1, 40):
        planned = plan(query, lying=liars)
        if planned.liars.cohorts_hit == hit:
            return planned.accuracy[0].max_shift
    raise AssertionError(hit)


def test_in_one_cohort_or_half_of_them_liars_can_do_anything() -> None:
    assert plan(census(), lying=1).accuracy[0].max_shift == math.inf
    assert plan(census(cohorts=2, min_contributions=100), lying=1).accuracy[0].max_shift == math.inf
    assert plan(census(cohorts=3, min_contributions=100), lying=1).accuracy[0].max_shift < math.inf
    assert plan(census()).accuracy[0].max_shift == 0


@pytest.mark.parametrize("population", [1_000_000, 10_000])
@pytest.mark.parametrize("lying", [0.6, pytest.param(0.34, marks=pytest.mark.slow), 0.01, 0.0034, 0.003])
@pytest.mark.parametrize("cohorts", [None, 1, 3, 101, 1001, 5001, 100_000])
def test_many_liars_are_planned_for_or_refused(population: int, lying: float, cohorts: int | None) -> None:
    liars = int(population * lying)
    try:
        chosen = cohort_odds.choose_cohorts(
            population=population, absent=0.1, lying=liars, risk=0.01, variance=20.0, cohorts=cohorts
        )
        query = census(
            population=population,
            cohorts=chosen.cohorts,
            min_contributions=chosen.min_contributions,
            liars=min(chosen.liars, chosen.min_contributions - 2),
        )
        planned = plan(query, absent=0.1, lying=liars, risk=0.01)
        assert 0 < planned.liars.cohorts_hit <= chosen.cohorts
    except ValueError as error:
        assert "cohorts" in str(error)  # noqa: PT017  # either will do


def test_with_many_liars_each_cohort_has_one() -> None:
    """Where nothing is computed, it is as where it is."""
    for liars in (300, 400, 500, 700, 1200):
        window = next(islice(cohort_odds._hit_distributions(10_000, 10), liars, None))
        exact = np.zeros(11)
        exact[window[0] : window[0] + len(window[1])] = window[1]
        assert cohort_odds.hit_cohorts(10_000, 10, liars) == pytest.approx(exact, abs=1e-13)


@pytest.mark.parametrize(("liars", "allowed"), [(5000, 480), (5000, 500), (5000, 560), (20, 0), (9990, 995)])
def test_the_tail_of_liars_in_a_cohort_is_the_whole_of_it(liars: int, allowed: int) -> None:
    tail = stats.hypergeom(10_000, liars, 1000).sf(allowed)
    assert cohort_odds.allowance_exceeded(10_000, 10, allowed, liars) == pytest.approx(min(1.0, 10 * tail), rel=1e-6)
