"""Cohorts of very different size, since few phones came to some: honest ones are not named, and intervals cover."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reticent.privacy import Counter, Query
from reticent.privacy._counts import (
    OUTLIER_DEVIATIONS,
    OUTLIER_PHONES,
    CohortSum,
    estimate,
    variance_of_normal_median,
)
from reticent.privacy._release import Release
from reticent.randomness import seeded
from tests.parties.queries import bits

FALSE_ALARM = 1e-6  # of each statistical test; the streams are fixed, so it passes always or never
SIZE = 40  # counters of a query, each a run of its own
RUNS = 2000
LEVEL = 0.95
NAMED = 0.003  # of what is not rare: so seldom may an honest cohort be named
NAMED_RARE = 0.005
BESIDE_A_LIAR = 0.92  # the median is pushed towards a small cohort then, and a large one may be named too
OFF = 0.3  # by so much a deviation may not be wrong, either way

UNEQUAL = [
    (100_000, 5_000, 5_000),
    (20_000, 2_000, 2_000),
    (100_000, 1_000, 1_000, 1_000, 1_000),
    (100_000, *[1_000] * 40),
    (100_000, 100_000, 1_000),
    (50_000, 1_000),
    (10_000, 9_000, 7_100),
    (20_000, 20_000, 20_000, 3_000, 3_000, 3_000, 3_000),
]
SOME = [(7_000,), (9_000, 4_000), *UNEQUAL]


def make_query(contributors: Sequence[int], **changes: Any) -> Query:
    crowd = {"population": max(contributors) * len(contributors), "cohorts": len(contributors)}
    few = {"min_contributions": min(contributors) - 1, "liars": 0}
    return bits(SIZE, **{"epsilon": 1.0, "l2_squared": 1, "l1": 1, **crowd, **few, **changes})


def _true_counts(query: Query, contributors: Sequence[int], ones: float, rng: np.random.Generator) -> np.ndarray:
    """How many phones of each cohort are at the upper bound; the others are at the lower.  # (G, d)."""
    return np.array([rng.binomial(phones, ones, query.size) for phones in contributors])


def _totals(query: Query, contributors: Sequence[int], true_counts: np.ndarray) -> np.ndarray:
    counter = query.counters[0]
    return np.asarray(true_counts * (counter.high - counter.low) + counter.low * np.array(contributors)[:, None])


def _noise(query: Query, contributors: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    mean = np.array(contributors)[:, None] * query.share_variance / 2
    shape = (len(contributors), query.size)
    return np.asarray(rng.poisson(mean, shape) - rng.poisson(mean, shape))


def _release(query: Query, contributors: Sequence[int], sums: np.ndarray) -> Release:
    rows = zip(contributors, sums.astype(object), strict=True)
    return estimate(query, [CohortSum(phones, tuple(row)) for phones, row in rows], seeded=True)


def _errors(releases: Sequence[Release], truths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each value, and how far its interval reaches."""
    values = np.array([release.value for release in releases])
    return np.abs(values - truths), np.array([release.interval(LEVEL)[:, 1] for release in releases]) - values


def _is_less(times: int, level: float) -> bool:
    return bool(stats.binomtest(times, RUNS, level, alternative="less").pvalue < FALSE_ALARM)


def _is_more(times: int, level: float) -> bool:
    return bool(stats.binomtest(times, RUNS, level, alternative="greater").pvalue < FALSE_ALARM)


def _named(releases: Sequence[Release]) -> int:
    return sum(bool(far) for release in releases for far in release.cohorts_outlying)


@pytest.mark.parametrize(("low", "high"), [(0, 1), pytest.param(-1, 1, marks=pytest.mark.slow), (-3, 0)])
@pytest.mark.parametrize("contributors", SOME, ids=str)
def test_honest_cohorts_are_not_named_and_intervals_cover(contributors: Sequence[int], low: int, high: int) -> None:
    """However many phones of each cohort contributed; and intervals 30 % narrower would be seen not to cover."""
    counters = [Counter(f"c{number}", low, high) for number in range(SIZE)]
    most = max(-low, high)
    query = make_query(contributors, counters=counters, l2_squared=most**2, l1=most)
    rng = seeded(4, "unequal", repr(contributors), low, high)
    releases, truths = [], []
    for _ in range(RUNS // SIZE):
        sums = _totals(query, contributors, _true_counts(query, contributors, 0.3, rng))
        truths.append(sums.sum(axis=0))
        releases.append(_release(query, contributors, sums + _noise(query, contributors, rng)))
    errors, reach = _errors(releases, np.array(truths))
    assert not _is_more(_named(releases), NAMED)
    assert not _is_less(int((errors <= reach).sum()), LEVEL)
    assert _is_less(int((errors <= reach * (1 - OFF)).sum()), LEVEL)
    assert _is_more(int((errors <= reach * (1 + OFF)).sum()), LEVEL)


@pytest.mark.parametrize("epsilon", [pytest.param(1.0, marks=pytest.mark.slow), 8.0])
@pytest.mark.parametrize("contributors", SOME, ids=str)
def test_honest_cohorts_are_not_named_for_what_is_rare(contributors: Sequence[int], epsilon: float) -> None:
    """Small cohorts, in which hardly anybody says 1, have a median of 0; a large one has many who do."""
    query = make_query(contributors, epsilon=epsilon)
    for expected in (0.1, 0.6, 3.0):
        rng = seeded(4, "unequal rare", repr(contributors), repr(epsilon), repr(expected))
        releases = []
        for _ in range(RUNS // SIZE):
            true_counts = _true_counts(query, contributors, expected / min(contributors), rng)
            releases.append(_release(query, contributors, true_counts + _noise(query, contributors, rng)))
        assert not _is_more(_named(releases), NAMED_RARE), (expected, _named(releases))


@pytest.mark.parametrize("contributors", [some for some in UNEQUAL if len(some) > 2], ids=str)
@pytest.mark.parametrize("place", [0, -1])
def test_a_liar_among_unequal_cohorts_is_found(contributors: Sequence[int], place: int) -> None:
    """Whether its cohort is the largest or the smallest; and the interval covers what honest phones would have said."""
    query = make_query(contributors)
    rng = seeded(4, "unequal liar", repr(contributors), place)
    liar = place % len(contributors)
    releases, truths = [], []
    for _ in range(RUNS // SIZE):
        true_counts = _true_counts(query, contributors, 0.3, rng)
        truths.append(true_counts.sum(axis=0))
        sums = true_counts + _noise(query, contributors, rng)
        sums[liar] += contributors[liar]
        releases.append(_release(query, contributors, sums))
    assert all(liar in far for release in releases for far in release.cohorts_outlying)
    errors, reach = _errors(releases, np.array(truths))
    assert not _is_less(int((errors <= reach).sum()), BESIDE_A_LIAR)
    assert _is_less(int((errors <= reach * (1 - 2 * OFF)).sum()), BESIDE_A_LIAR)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("contributors", [some for some in UNEQUAL if len(some) > 2], ids=str)
def test_a_liar_that_is_not_found_pulls_no_further_than_is_said(
    contributors: Sequence[int], place: int, epsilon: float
) -> None:
    """All others say 0; in a large cohort a liar has what the median of the small ones cannot exclude."""
    query = make_query(contributors, epsilon=epsilon)
    cohorts, phones, typical = len(contributors), contributors[place], float(np.mean(1 / np.array(contributors)))
    rare = max(1 / phones, typical)
    median = float(variance_of_normal_median(np.array([cohorts]))[0]) * typical
    one = query.share_variance + 2 * rare * (1 - 2 * rare)
    apart = 1 / phones + max(0.0, median - 2 / (cohorts * phones))
    bound = math.floor(phones * (OUTLIER_DEVIATIONS * math.sqrt(one * apart) + OUTLIER_PHONES * rare))
    for lie, found in [(bound, False), (bound + 1, True)]:
        sums = np.zeros((cohorts, SIZE), dtype=np.int64)
        sums[place] = lie
        release = _release(query, contributors, sums)
        assert release.cohorts_outlying == (((place % cohorts,) if found else ()),) * SIZE


def test_the_variance_among_phones_is_the_largest_that_any_mean_in_reach_allows() -> None:
    """It is largest between the bounds, and that may lie between the means that are tried."""
    contributors = (5, 5)
    for low, high, square in [(0, 1, 1), (0, 7, 49), (0, 7, 20), (-7, 2, 49), (-2, 2, 4), (-1, 4, 9)]:
        norms = {"l2_squared": square, "l1": math.ceil(math.sqrt(square))}
        query = make_query(contributors, counters=[Counter("c", low, high)], **norms)
        for total in range(5 * low, 5 * high + 1):
            release = estimate(query, [CohortSum(5, (total,)), CohortSum(5, None)], seeded=True)
            within = 2 * min(max(-low, high), square**0.5) / 5
            means = np.linspace(max(low, total / 5 - within), min(high, total / 5 + within), 2001)
            among = np.minimum((high - means) * (means - low), np.maximum(0.0, square - means**2)).max()
            drawn = (1 / 5 - 1 / 10) * 10 / 9
            largest = 100 * (query.share_variance / 5 + among * drawn)
            assert largest * (1 - 1e-12) <= release.variance[0] <= largest * 1.001, (low, high, square, total)
