"""Counters that are true for hardly anybody: intervals cover, honest cohorts are not named, and liars are found."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reticent.privacy import Counter, Query
from reticent.privacy._counts import OUTLIER_DEVIATIONS, OUTLIER_PHONES, CohortSum, estimate
from reticent.privacy._release import Release
from reticent.randomness import seeded
from tests.parties.queries import bits

FALSE_ALARM = 1e-6  # of each statistical test; the streams are fixed, so it passes always or never
SIZE = 40  # counters of a query, each a run of its own
RUNS = 2000
PHONES = 400  # of a cohort
LEVEL = 0.95
PROMISED = 0.89  # where cohorts are left out and few said anything: docs/privacy.md, "A release"
OFF = 0.3  # by so much a deviation may not be wrong, either way


def make_query(cohorts: int, **changes: Any) -> Query:
    crowd = {"population": PHONES * cohorts, "cohorts": cohorts, "min_contributions": 350, "liars": 0}
    return bits(SIZE, **{"epsilon": 4.0, "l2_squared": 1, "l1": 1, **crowd, **changes})


def _sums(query: Query, ones: int, rng: np.random.Generator) -> np.ndarray:
    """Of each cohort, for so many phones that say 1, wherever they were dealt: a run in each column.  # (G, d)."""
    sizes = list(query.cohort_populations)
    true_counts = rng.multivariate_hypergeometric(sizes, ones, size=SIZE, method="marginals").T
    mean = PHONES * query.share_variance / 2
    return np.asarray(true_counts + rng.poisson(mean, true_counts.shape) - rng.poisson(mean, true_counts.shape))


def _release(query: Query, sums: np.ndarray, left_out: Sequence[int] = ()) -> Release:
    known = [
        CohortSum(PHONES, None if number in left_out else tuple(row)) for number, row in enumerate(sums.astype(object))
    ]
    return estimate(query, known, seeded=True)


def _released(query: Query, ones: int, left_out: int) -> list[Release]:
    rng = seeded(4, "rare", repr(query.epsilon), query.cohorts, ones, left_out)
    return [_release(query, _sums(query, ones, rng), range(left_out)) for _ in range(RUNS // SIZE)]


def _covered(releases: list[Release], truth: float, stretch: float = 1.0) -> int:
    """How many of the intervals cover, were they wider by this factor."""
    values = np.array([release.value for release in releases])
    reach = np.array([release.interval(LEVEL)[:, 1] for release in releases]) - values
    return int((np.abs(values - truth) <= reach * stretch + 1e-9).sum())


def _is_less(covered: int, level: float) -> bool:
    return bool(stats.binomtest(covered, RUNS, level, alternative="less").pvalue < FALSE_ALARM)


NOISE = [(2.0, 0.02), (3.0, 0.02), (4.0, 1e-6), (5.0, 1e-6), (8.0, 1e-6)]


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [each if number % 2 == 0 else pytest.param(*each, marks=pytest.mark.slow) for number, each in enumerate(NOISE)],
)
@pytest.mark.parametrize("cohorts", [3, 15, 41])
def test_intervals_of_rare_counters_cover_and_name_nobody(cohorts: int, epsilon: float, delta: float) -> None:
    """With one phone that says 1, one in half of the cohorts, and three in each."""
    query = make_query(cohorts, epsilon=epsilon, delta=delta)
    for ones in (1, cohorts // 2, 3 * cohorts):
        releases = _released(query, ones, 0)
        named = sum(bool(far) for release in releases for far in release.cohorts_outlying)
        assert stats.binomtest(named, RUNS, 0.005, alternative="greater").pvalue > FALSE_ALARM, (ones, named)
        assert not _is_less(_covered(releases, ones), LEVEL), ones
        if PHONES * cohorts * query.share_variance > 10:  # steps of 1 do not hide what an interval lacks
            assert _is_less(_covered(releases, ones, 1 - OFF), LEVEL), ones


@pytest.mark.parametrize("epsilon", [1.0, 8.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (2.0, 4.0))])
@pytest.mark.parametrize(("cohorts", "left_out"), [(4, 2), (5, 2), (15, 1), (15, 6), (41, 20)])
def test_intervals_of_rare_counters_cover_where_cohorts_are_left_out(
    cohorts: int, left_out: int, epsilon: float
) -> None:
    """The truth is about all; where nobody is seen to say 1, somebody may have said it in what was left out."""
    query = make_query(cohorts, epsilon=epsilon)
    for ones in (1, 2, cohorts // 2, 2 * cohorts, 20 * cohorts):
        releases = _released(query, ones, left_out)
        assert not _is_less(_covered(releases, ones), PROMISED if ones < 2 * cohorts else 0.94), ones
        if ones == 20 * cohorts:
            assert _is_less(_covered(releases, ones, 1 - OFF), PROMISED)


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
@pytest.mark.parametrize(("cohorts", "left_out"), [(5, 2), (15, 6)])
def test_what_is_added_for_the_unseen_is_two_phones(cohorts: int, left_out: int, epsilon: float) -> None:
    """The stated variance is that of the errors, and no more above it than two more phones that say 1 would make it."""
    query = make_query(cohorts, epsilon=epsilon)
    kept = 1 - left_out / cohorts
    for ones in (1, cohorts, 20 * cohorts):
        releases = _released(query, ones, left_out)
        stated = float(np.mean([release.variance for release in releases]))
        errors = np.array([release.value for release in releases]) - ones
        mean = ones / query.population
        noise = query.population * query.share_variance / kept
        true = noise + ones * (1 - mean) * (1 - kept) / kept
        low, high = stats.chi2.ppf(np.array([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2]), RUNS) / RUNS
        assert ones == 1 or low * 0.9 < float((errors**2).mean()) / true < high * 1.1, ones
        assert 0.95 * true < stated < 1.05 * (true + 2.4 / kept * (1 - kept) / kept), ones


# Liars.


@pytest.mark.parametrize(("epsilon", "delta"), NOISE)
@pytest.mark.parametrize("cohorts", [3, 15, 41])
def test_a_liar_is_found_among_rare_counters(cohorts: int, epsilon: float, delta: float) -> None:
    """One that says more than noise and rare ones can be; and what honest phones would have said is still released."""
    query = make_query(cohorts, epsilon=epsilon, delta=delta)
    deviation = math.sqrt(PHONES * query.share_variance + 2 + 3)
    for ones in (1, cohorts // 2, 2 * cohorts):
        rng = seeded(4, "liar", repr(epsilon), cohorts, ones)
        for lie in (math.ceil(3 * OUTLIER_DEVIATIONS * deviation + 2 * OUTLIER_PHONES), 10**9, -(10**9)):
            sums = _sums(query, ones, rng)
            sums[0] = sums[0] + lie
            release = _release(query, sums)
            assert all(0 in far for far in release.cohorts_outlying)
            errors = np.abs(np.array(release.value) - ones)
            assert errors.max() < 6 * deviation * math.sqrt(cohorts * math.pi / 2) + cohorts


@pytest.mark.parametrize(("epsilon", "high"), [(1.0, 1), (4.0, 1), (8.0, 1), (4.0, 50)])
@pytest.mark.parametrize("cohorts", [5, 15])
def test_a_liar_that_is_not_found_pulls_no_further_than_is_said(cohorts: int, high: int, epsilon: float) -> None:
    """All others say 0: its cohort's sum is within four deviations and 8/3 phones, with two unseen phones in them."""
    query = make_query(
        cohorts,
        epsilon=epsilon,
        counters=[Counter(f"c{number}", 0, high) for number in range(SIZE)],
        l2_squared=high**2,
        l1=high,
    )
    unseen = 2 * high / PHONES
    one = query.share_variance + unseen * (high - unseen)
    bound = OUTLIER_DEVIATIONS * math.sqrt(PHONES * one) + OUTLIER_PHONES * high
    for lie, found in [(math.floor(bound), False), (math.floor(bound) + 1, True)]:
        sums = np.zeros((cohorts, SIZE), dtype=np.int64)
        sums[0] = lie
        release = _release(query, sums)
        assert release.cohorts_outlying == (((0,) if found else ()),) * SIZE
        assert release.value == (0.0 if found else lie,) * SIZE


def test_a_liar_makes_no_room_for_itself() -> None:
    """Not by its own sum: the spread that a cohort is allowed follows from the median of all."""
    query = make_query(15, epsilon=8.0)
    most = 0.0
    for lie in range(PHONES + 1):
        sums = np.zeros((15, SIZE), dtype=np.int64)
        sums[3] = lie
        most = max(most, *_release(query, sums).value)
    assert (
        most
        == math.floor(
            OUTLIER_DEVIATIONS * math.sqrt(2 * (1 - 2 / PHONES) + PHONES * query.share_variance) + OUTLIER_PHONES
        )
        == 8
    )
