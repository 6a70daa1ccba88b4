"""Rates from counts: their intervals, the pairs that have one, and counts that are no part of a known sum."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reticent.privacy import CohortSum, Contributions, Query, Release, estimate
from reticent.randomness import seeded
from reticent_analyst.rates.candidates import Candidates
from reticent_analyst.rates.consistency import Estimates
from reticent_analyst.rates.table import CountedLevel, ScaledCounts, rate_intervals, scaled
from reticent_analyst.rates.table import rates_of as rates_from
from reticent_sim.ad_log import AdLog
from reticent_sim.local_counts import LocalCounts
from tests.analyst.rates.logs import ExactCounts, hierarchy, log_of, rates_of, released, rows_of
from tests.parties.queries import bits

PLACES = hierarchy()
COUNTS = st.floats(-50, 500)
VARIANCES = st.floats(0.1, 400)


@given(COUNTS, COUNTS, VARIANCES, VARIANCES, st.sampled_from([0.5, 0.9, 0.99]))
def test_an_interval_ends_where_the_rate_is_as_unlikely_as_its_level_says(
    clicks: float, others: float, clicks_variance: float, others_variance: float, level: float
) -> None:
    """By definition: clicks - rate * views, whose errors are independent, lies so many deviations from 0."""
    t = NormalDist().inv_cdf((1 + level) / 2)
    assume(clicks + others > 1.1 * t * (clicks_variance + others_variance) ** 0.5)
    parts = [Estimates(np.array([value]), np.array([variance])) for value, variance in (
        (clicks, clicks_variance), (others, others_variance),
    )]  # fmt: skip
    low, high = (float(each[0]) for each in rate_intervals(parts[0], parts[1], np.array([t])))
    assert low < clicks / (clicks + others) < high
    for rate in (low, high):
        gap = abs((1 - rate) * clicks - rate * others)
        assert gap == pytest.approx(t * ((1 - rate) ** 2 * clicks_variance + rate**2 * others_variance) ** 0.5)


def test_phones_that_are_absent_lack_clicks_and_views_alike() -> None:
    """A half of 3,000 phones has clicked, and 2,000 contribute, without noise: intervals contain a half as promised."""
    clicks = seeded(3, "absent").hypergeometric(1500, 1500, 2000, 5000)
    values, size = np.concatenate([clicks, 2000 - clicks]), 2 * len(clicks)
    names = tuple(map(str, range(size)))
    release = Release("x", names, tuple(values.tolist()), (0.0,) * size, None, 2000, 1.0, 1e-6)
    found = scaled(release, 3000, 1)
    variances = np.split(found.variance, 2)
    clicked, others = map(Estimates, np.split(found.value, 2), variances)
    for level, deviations in ((0.95, 1.96), (0.5, 0.674)):
        low, high = rate_intervals(clicked, others, np.array([deviations]))
        assert abs(((low <= 0.5) & (high >= 0.5)).mean() - level) < 0.03


def test_phones_of_burnt_cohorts_lack_clicks_and_views_alike() -> None:
    """A half of 3,000 phones has clicked; one of three cohorts of 1,000 is burnt."""
    places = Candidates(0, *np.zeros((3, 1), dtype=np.int32))
    query = bits(counters=places.counters(PLACES, ("x",), 1), population=3000, cohorts=3, min_contributions=900)
    clicks = seeded(5, "burnt").hypergeometric(1500, 1500, 2000, 600).tolist()
    inside = []
    for number in clicks:
        sums = (1000, number // 2, 1000 - number // 2), (1000, number - number // 2, 1000 - number + number // 2)
        cohorts = [CohortSum(1000, sums[0]), CohortSum(1000, sums[1]), CohortSum(1000, None)]
        level = CountedLevel.of(places, query, estimate(query, cohorts, seeded=True), 3000, 1)
        parts = [Estimates(each.value, each.sampling) for each in (level.clicks, level.others)]
        low, high = rate_intervals(parts[0], parts[1], np.array([1.96]))
        inside.append(low[0] <= 0.5 <= high[0])
    assert abs(np.mean(inside) - 0.95) < 0.03


class SamePhones:
    """Counts a random part of the phones, the same at all levels, with little noise."""

    def __init__(self, rng: np.random.Generator, phones: int) -> None:
        self.rng, self.present = rng, rng.random(phones) < 0.7

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        value = rows_of(query, counters)[self.present].sum(axis=0) + self.rng.normal(0, 2, query.size)
        return released(query, value, variance=(4.0,) * query.size, contributors=int(self.present.sum()))


def test_intervals_allow_for_phones_that_are_absent_from_all_levels() -> None:
    """Their entries are missing in consistent counts as well: at each level, 19 of 20 intervals contain the rate."""
    inside: list[tuple[int, bool]] = []
    for number in range(20):
        rng = seeded(number, "same phones")
        log = log_of(PLACES, users=2000, size=4000, ads=6, rng=rng).sample(1, rng)
        table = rates_of(SamePhones(rng, 2000), log, entries=1, absent=0.35)
        exact = log.rates("exact")
        truth = dict(zip(zip(exact.ad.tolist(), exact.node.tolist(), strict=True), exact.rate.tolist(), strict=True))
        for ad, node, low, high in zip(table.ad, table.node, table.low, table.high, strict=True):
            inside.append((int(PLACES.node_levels[node]), low <= truth.get((ad, node), low) <= high))
    for level in range(PLACES.height):
        own = [each for at, each in inside if at == level]
        assert len(own) > 100
        assert np.mean(own) > 0.95 - 2 * (0.95 * 0.05 / len(own)) ** 0.5


def test_of_the_rates_with_the_luckiest_noise_as_many_are_in_their_intervals() -> None:
    """Most ads have views near the least that can be told from 0; a third has none."""
    rng = seeded(4, "selection")
    size, deviation = 20_000, 10.0
    views = np.where(rng.random(size) < 1 / 3, 0.0, rng.exponential(3 * deviation, size))
    clicks = views * rng.random(size) * 0.3
    ads = np.arange(size, dtype=np.int32)
    noisy, others = (
        ScaledCounts(each + rng.normal(0, deviation, size), np.full(size, deviation**2), np.zeros(size))
        for each in (clicks, views - clicks)
    )
    one = ScaledCounts(*np.ones((3, 1)))
    level = CountedLevel(Candidates(0, ads[:1], ads, 0 * ads), one, noisy, others, seeded=True)
    found = rates_from([level], PLACES, 0.95)
    seen = views[found.ad] > 0
    rate = (clicks[found.ad] / np.maximum(views[found.ad], 1e-9))[seen]
    missed = (rate < found.low[seen]) | (rate > found.high[seen])
    assert len(missed) > 2000
    assert missed.mean() < 0.05
    assert (~seen).mean() < 0.025


def test_a_count_is_made_consistent_only_with_all_of_its_siblings() -> None:
    """An ad that was shown outside its bids: its clicks in one child are not all clicks of the parent."""
    user = np.arange(60)
    context = np.where(user < 20, 0, 2)  # below a, and below b
    log = AdLog(
        hierarchy=PLACES, ads=("x",), users=60, user=user, context=context,
        ad=np.zeros(60, dtype=int), clicked=user % 2 == 0,
    )  # fmt: skip
    table = rates_of(ExactCounts(), log, ads={"x": [PLACES.nodes[PLACES.leaves[0]]]})
    known = dict(zip(table.node.tolist(), table.views.tolist(), strict=True))
    exact = log.rates("exact")
    expected = dict(zip(exact.node.tolist(), exact.views.tolist(), strict=True))
    assert {node: expected[node] for node in known} == pytest.approx(known)
    assert 20 in {round(views) for views in known.values()}


def test_hardly_any_rate_is_of_views_that_nobody_had() -> None:
    """Of 600 ads nobody saw all but three; a test of each pair on its own would find dozens by chance."""
    size = 9000
    rng = seeded(8, "unseen")
    context = rng.integers(0, 6, size)
    log = AdLog(
        hierarchy=PLACES, ads=tuple(f"ad{number}" for number in range(600)), users=size, user=np.arange(size),
        context=context, ad=rng.integers(0, 3, size), clicked=rng.random(size) < 0.2,
    )  # fmt: skip
    table = rates_of(LocalCounts(rng), log, entries=1)
    assert {0, 1, 2} <= set(table.ad.tolist())
    assert (table.ad >= 3).sum() <= 2
