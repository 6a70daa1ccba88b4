"""The guarantees of theorems 7 and 8, beside the optimum of all sets."""

import math
from collections.abc import Set as AbstractSet
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.selection import Rates, Revenues, _exact, exact, greedy
from tests.core.selection.instances import Instance, coverage, hardest, instances

SMALL = instances(most_ads=7, most_contexts=6)
ALPHAS = st.sampled_from([0.0, 0.05, 0.3])
SETS = st.lists(st.frozensets(st.integers(0, 9)), min_size=1, max_size=7)


def revenue_of(instance: Instance, ads: AbstractSet[int]) -> float:
    """The formula of proposition 6, context by context."""
    dense = instance.rates.rows(range(instance.rates.shape[0]))
    return math.fsum(
        weight * max((instance.bids[ad] * dense[ad, context] for ad in ads), default=0.0)
        for context, weight in enumerate(instance.weights)
    )


@given(instance=SMALL, alpha=ALPHAS)
def test_the_exact_selection_has_the_greatest_objective_of_all_sets(instance: Instance, alpha: float) -> None:
    rates, weights, bids, k = instance
    selection = exact(Revenues.of(rates, bids), weights, k, alpha=alpha)
    found = revenue_of(instance, set(selection.ads.tolist()))
    assert selection.gains.sum() == pytest.approx(found)
    most = max(
        revenue_of(instance, set(ads)) - alpha * size
        for size in range(min(k, rates.shape[0]) + 1)
        for ads in combinations(range(rates.shape[0]), size)
    )
    assert found - alpha * len(selection.ads) == pytest.approx(most)


@given(instance=SMALL)
def test_the_greedy_selection_has_the_guaranteed_part_of_the_optimum(instance: Instance) -> None:
    rates, weights, bids, k = instance
    optimum = exact(Revenues.of(rates, bids), weights, k).gains.sum()
    selection = greedy(rates, weights, bids, k)
    assert selection.gains.sum() == pytest.approx(revenue_of(instance, set(selection.ads.tolist())))
    assert selection.gains.sum() >= (1 - (1 - 1 / k) ** k) * optimum * (1 - 1e-12)


@given(instance=SMALL, alpha=ALPHAS)
def test_with_a_cost_of_ads_the_objective_has_the_guarantee_of_theorem_8(instance: Instance, alpha: float) -> None:
    rates, weights, bids, _ = instance
    ads = rates.shape[0]
    optimum = exact(Revenues.of(rates, bids), weights, ads, alpha=alpha)
    objective = (greedy(rates, weights, bids, ads, alpha=alpha).gains - alpha).sum()
    assert objective >= (1 - 1 / math.e) * optimum.gains.sum() - alpha * len(optimum.ads) - 1e-12
    prefixes = np.cumsum([0.0, *greedy(rates, weights, bids, ads).gains])
    assert objective == pytest.approx((prefixes - alpha * np.arange(len(prefixes))).max())  # Greedy' of proposition 7


@given(instance=SMALL, seed=st.integers(0, 999))
def test_revenue_is_monotone_and_submodular(instance: Instance, seed: int) -> None:
    rates, weights, bids, _ = instance
    revenues = Revenues.of(rates, bids)
    larger = np.flatnonzero(np.random.default_rng(seed).random(rates.shape[0]) < 0.5)
    smaller = larger[: len(larger) // 2]
    for ad in range(rates.shape[0]):
        gains = [revenues.revenue([*ads, ad], weights) - revenues.revenue(ads, weights) for ads in (smaller, larger)]
        assert gains[0] >= gains[1] - 1e-12
        assert gains[1] >= 0
        assert revenues.revenue(larger, weights) == pytest.approx(revenue_of(instance, set(larger.tolist())))


@given(sets=SETS, k=st.integers(1, 7))
def test_maximum_coverage_is_a_selection_of_ads(sets: list[frozenset[int]], k: int) -> None:
    rates, weights, bids, _ = coverage(sets, k)
    optimum = exact(Revenues.of(rates, bids), weights, k)
    most = max(len(frozenset().union(*chosen)) for chosen in combinations(sets, min(k, len(sets))))
    assert optimum.gains.sum() == most
    covered: set[int] = set()
    selection = greedy(rates, weights, bids, k)
    assert (len(selection.ads) == min(k, len(sets))) or selection.gains.sum() == len(frozenset().union(*sets))
    for ad, gain in zip(selection.ads, selection.gains, strict=True):
        gains = [len(each - covered) for each in sets]
        assert (ad, gain) == (gains.index(max(gains)), max(gains))
        covered |= sets[ad]


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_guarantee_is_tight(k: int) -> None:
    misleading, disjoint = hardest(k)
    rates, weights, bids, _ = coverage([*misleading, *disjoint], k)
    selection = greedy(rates, weights, bids, k)
    assert selection.ads.tolist() == list(range(k))
    optimum = exact(Revenues.of(rates, bids), weights, k)
    assert optimum.ads.tolist() == list(range(k, 2 * k))
    assert selection.gains.sum() / optimum.gains.sum() == pytest.approx(1 - (1 - 1 / k) ** k)


def test_too_many_sets_are_not_enumerated(monkeypatch: pytest.MonkeyPatch) -> None:
    revenues = Revenues.of(Rates.of(np.ones((30, 2))), np.ones(30))
    with pytest.raises(ValueError, match="an exact selection compares at most 1000000 sets of ads: got 1073741824"):
        exact(revenues, [1.0, 1.0], 30)
    monkeypatch.setattr(_exact, "MAX_SETS", 1 + 30 + 435)
    assert exact(revenues, [1.0, 1.0], 2).ads.tolist() == [0]
    monkeypatch.setattr(_exact, "MAX_SETS", 30 + 435)
    with pytest.raises(ValueError, match="at most 465 sets of ads: got 466"):
        exact(revenues, [1.0, 1.0], 2)


def test_sets_are_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_exact, "_CELLS", 1)
    rates = Rates.of(np.eye(5))
    assert exact(Revenues.of(rates, [1.0, 5.0, 2.0, 4.0, 3.0]), np.ones(5), 2).ads.tolist() == [1, 3]
