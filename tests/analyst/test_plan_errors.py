"""How far off an estimate is, as a plan says, against a simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.privacy import CohortSum, Counter, Query, QueryBurnt, Release, estimate, gaussian_share, skellam_share
from reticent.randomness import seeded
from reticent_analyst.plan import plan
from tests.analyst.odds import LIMIT, OFFS, off
from tests.analyst.queries import census

SETTINGS: dict[str, tuple[Query, float]] = {
    "one cohort": (census(20, l2_squared=2, l1=2), 0.2),
    "one that is often short": (census(20, l2_squared=2, l1=2, min_contributions=480), 0.2),
    "cohorts": (census(20, l2_squared=2, l1=2, cohorts=5, min_contributions=70), 0.2),
    "cohorts of which some are short": (census(20, l2_squared=2, l1=2, cohorts=5, min_contributions=92), 0.2),
    "of which many are short": (census(20, l2_squared=2, l1=2, cohorts=5, population=603, min_contributions=96), 0.2),
    "wide counters": (
        census(
            20,
            counters=[Counter(f"c{k}", -3, 5) for k in range(20)],
            l2_squared=64,
            l1=35,
            cohorts=4,
            min_contributions=120,
        ),
        0.2,
    ),
    "scaled": (
        census(
            counters=[Counter(f"c{each}", 0, 1, scale=5) for each in range(20)],
            l2_squared=50,
            l1=10,
            cohorts=3,
            min_contributions=150,
        ),
        0.2,
    ),
    "fixed point": (
        census(20, l2_squared=2, l1=2, noise="gaussian", fraction_bits=8, cohorts=3, min_contributions=150),
        0.2,
    ),
}


def simulated(query: Query, absent: float, runs: int, name: str) -> list[tuple[Release, np.ndarray]]:
    """Releases, and how far each value is off; half of the phones say a counter's low, half its high."""
    rng = seeded(5, "plan", name)
    low, high, scale = np.array([counter[1:] for counter in query.counters]).T
    found = []
    for _ in range(runs):
        cohort = rng.permutation(query.population) % query.cohorts
        present = rng.random(query.population) >= absent
        values = np.where(rng.random((query.population, query.size)) < 0.5, low, high) * present[:, None]
        sums = []
        for number in range(query.cohorts):
            mine = present & (cohort == number)
            size = int(mine.sum())
            steps = values[mine].sum(axis=0) * scale * 2**query.fraction_bits + _noise(query, size, rng)
            sums.append(CohortSum(size, tuple(steps.tolist()) if size >= query.min_contributions else None))
        try:
            release = estimate(query, sums, seeded=True)
        except QueryBurnt:
            continue
        found.append((release, np.array(release.value) - values.sum(axis=0)))
    return found


def _noise(query: Query, size: int, rng: np.random.Generator) -> np.ndarray:
    if query.noise == "skellam":
        return skellam_share(size * query.share_variance, query.size, rng)
    return gaussian_share(size * query.share_variance, query.size, rng, query.fraction_bits)


@pytest.mark.parametrize(("query", "absent"), SETTINGS.values(), ids=SETTINGS)
def test_errors_are_as_large_as_planned(query: Query, absent: float, request: pytest.FixtureRequest) -> None:
    planned = plan(query, absent=absent).accuracy[0]
    errors = np.array([error for _, error in simulated(query, absent, 250, request.node.name)])  # (runs, d)
    squares = (errors**2).mean(axis=1)
    assert abs(off(squares, planned.standard_error**2)) < LIMIT
    for wrong in OFFS:
        assert abs(off(squares, (wrong * planned.standard_error) ** 2)) > LIMIT
    within = {wrong: (np.abs(errors) <= wrong * planned.half_width).mean(axis=1) for wrong in (1.0, *OFFS)}
    assert abs(off(within[1.0], 0.95)) < LIMIT or _is_whole_step(errors, planned.half_width)
    assert off(within[OFFS[0]], 0.95) < -LIMIT
    assert off(within[OFFS[1]], 0.95) > LIMIT


def _is_whole_step(errors: np.ndarray, half_width: float) -> bool:
    """Whether one step less would cover too little: the errors of whole numbers jump over 95 %."""
    step_less = (np.abs(errors) <= half_width - 1).mean(axis=1)
    covered = (np.abs(errors) <= half_width).mean(axis=1)
    return off(step_less, 0.95) < LIMIT and off(covered, 0.95) > -LIMIT


def test_the_error_with_half_of_the_cohorts_left() -> None:
    query, absent = census(20, l2_squared=2, l1=2, cohorts=4, min_contributions=121), 0.2
    found = [each for each in simulated(query, absent, 700, "half") if len(each[0].cohorts_left_out) == 2]
    squares = np.array([(error**2).mean() for _, error in found])
    worst = plan(query, absent=absent).accuracy[0].error_half_left
    assert len(found) > 100
    assert abs(off(squares, worst**2)) < LIMIT
    for wrong in OFFS:
        assert abs(off(squares, (wrong * worst) ** 2)) > LIMIT


def test_with_an_outlying_cohort_the_error_is_that_of_the_median() -> None:
    """One of seven cohorts says a million; the truth is what the others say, scaled."""
    query, absent = census(20, l2_squared=2, l1=2, cohorts=7, population=2100, min_contributions=200), 0.2
    rng = seeded(5, "median")
    squares = []
    for _ in range(400):
        sizes = rng.binomial(300, 1 - absent, 7)
        values = [(rng.random((size, query.size)) < 0.5).sum(axis=0) for size in sizes]
        noise = [_noise(query, size, rng) for size in sizes]
        lie = 1_000_000 * (np.arange(7) == 3)
        known = [
            CohortSum(int(size), tuple((own + more + lied).tolist()))
            for size, own, more, lied in zip(sizes, values, noise, lie, strict=True)
        ]
        release = estimate(query, known, seeded=True)
        assert all(3 in outlying for outlying in release.cohorts_outlying)
        squares.append(((np.array(release.value) - np.sum(values, axis=0)) ** 2).mean())
    planned = plan(query, absent=absent).accuracy[0].error_by_median
    assert planned is not None
    for wrong in OFFS:
        assert abs(off(np.array(squares), (wrong * planned) ** 2)) > LIMIT
    assert planned == pytest.approx(math.sqrt(np.mean(squares)), rel=0.05)


def test_a_median_takes_three_cohorts() -> None:
    assert plan(census(cohorts=2, min_contributions=100)).accuracy[0].error_by_median is None
    assert plan(census(cohorts=3, min_contributions=100)).accuracy[0].error_by_median is not None


def test_the_median_of_skewed_sums_lies_a_little_below_their_mean() -> None:
    """In each cohort by count / (6 (count + variance of the noise))."""
    rng = seeded(5, "skewed")
    sums = rng.poisson(30.0, (16_000, 61)) + rng.normal(0, math.sqrt(2.0), (16_000, 61))
    below = 30.0 - np.median(sums, axis=1)
    stated = 30.0 / (6 * 32.0)
    assert abs(off(below, stated)) < LIMIT
    for wrong in OFFS:
        assert abs(off(below, stated * wrong)) > LIMIT


@given(
    low=st.integers(-6, 0),
    high=st.integers(0, 6),
    l2_squared=st.integers(1, 40),
)
def test_no_counter_varies_more_among_phones_than_planned(low: int, high: int, l2_squared: int) -> None:
    """The largest variance that bounds and L2 allow, over a fine grid of means."""
    from reticent_analyst.plan import _spread  # noqa: PLC0415  # it is looked at here only

    if low == high:
        return
    means = np.linspace(low, high, 100_001)
    allowed = np.minimum((high - means) * (means - low), l2_squared - means**2)
    assert _spread(Counter("c", low, high), l2_squared) == pytest.approx(allowed.max(), abs=1e-3)
