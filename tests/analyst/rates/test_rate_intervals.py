"""Rates from counts: their intervals, the pairs that have one, and counts that are no part of a known sum."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_analyst.rates.consistency import Estimates
from reticent_analyst.rates.table import rate_intervals
from reticent_sim.ad_log import AdLog
from reticent_sim.local_counts import LocalCounts
from tests.analyst.rates.logs import ExactCounts, hierarchy, rates_of

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
    low, high = (float(each[0]) for each in rate_intervals(parts[0], parts[1], level))
    assert low < clicks / (clicks + others) < high
    for rate in (low, high):
        gap = abs((1 - rate) * clicks - rate * others)
        assert gap == pytest.approx(t * ((1 - rate) ** 2 * clicks_variance + rate**2 * others_variance) ** 0.5)


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
