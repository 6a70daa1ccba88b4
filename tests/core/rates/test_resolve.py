"""Every ad gets, in every column, the rate of the nearest node with enough views."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reticent.hierarchy import Decimals, Hierarchy
from reticent.randomness import seeded
from reticent.rates import RateTable, _resolved, resolve
from tests.core.rates.tables import a_hierarchy, a_table

ADS = 5


@given(seed=st.integers(0, 10**9), contexts=st.integers(1, 30), entries=st.integers(0, 40), support=st.integers(0, 10))
def test_a_rate_is_that_of_the_nearest_node_with_enough_views(
    seed: int, contexts: int, entries: int, support: int
) -> None:
    rng = seeded(seed)
    hierarchy = a_hierarchy(rng, contexts)
    table = a_table(rng, hierarchy, ADS, entries)
    resolved = resolve(table, hierarchy, support)
    known = {(ad, node): number for number, (ad, node) in enumerate(zip(table.ad, table.node, strict=True))}
    expected = {}
    for column, lowest in enumerate(resolved.columns):
        for ad in range(ADS):
            node = lowest
            while node >= 0 and ((ad, node) not in known or table.views[known[ad, node]] < support):
                node = hierarchy.parents[node]
            if node >= 0:
                expected[ad, column] = known[ad, node]
    found = list(zip(resolved.ad.tolist(), resolved.column.tolist(), strict=True))
    assert found == sorted(expected)
    assert resolved.entry.tolist() == [expected[pair] for pair in found]
    for name in ("rate", "low", "high", "views"):
        assert getattr(resolved, name).tolist() == getattr(table, name)[resolved.entry].tolist()


@given(seed=st.integers(0, 10**9), contexts=st.integers(1, 30))
def test_columns_are_the_lowest_nodes_with_estimates_and_share_the_probability(seed: int, contexts: int) -> None:
    rng = seeded(seed)
    hierarchy = a_hierarchy(rng, contexts)
    table = a_table(rng, hierarchy, ADS, 0)
    resolved = resolve(table, hierarchy, 0)
    assert set(resolved.column_of) == set(range(len(resolved.columns)))
    lowest = []
    for node in hierarchy.leaves:
        while np.isnan(table.frequency[node]):
            node = hierarchy.parents[node]  # noqa: PLW2901
        lowest.append(node)
    assert resolved.columns[resolved.column_of].tolist() == lowest
    starts = hierarchy.leaf_starts[resolved.columns]
    assert (np.diff(starts) >= 0).all()
    for node in np.flatnonzero(~np.isnan(table.frequency)):
        inside = [c for c, column in enumerate(resolved.columns) if node in path(hierarchy, column)]
        assert resolved.weights[inside].sum() == pytest.approx(table.frequency[node])


def path(hierarchy: Hierarchy, node: int) -> list[int]:
    """A node and those above it."""
    nodes = [node]
    while nodes[-1] > 0:
        nodes.append(hierarchy.parents[nodes[-1]])
    return nodes


def test_weights_are_never_negative() -> None:
    """Estimated children may add up to more than their parent."""
    hierarchy = Hierarchy([Decimals("place")], [("1,1",), ("1,2",), ("1,3",)], [(0,)])
    frequency = np.array([1.0, 0.7, 0.6, np.nan])
    resolved = resolve(rates_at_the_root(hierarchy, frequency, 0), hierarchy, 0)
    assert resolved.columns.tolist() == [0, 1, 2]
    assert resolved.weights.tolist() == [0.0, 0.7, 0.6]
    assert resolved.column_of.tolist() == [1, 2, 0]


def rates_at_the_root(hierarchy: Hierarchy, frequency: NDArray[np.float64], ads: int) -> RateTable:
    """A table of frequencies, and of the same rate for all ads."""
    zeros = np.zeros(ads)
    return RateTable(
        hierarchy.fingerprint,
        tuple(map(str, range(ads))),
        frequency,
        np.arange(ads, dtype=np.int32),
        zeros.astype(np.int32),
        zeros,
        zeros,
        zeros,
        zeros,
        *(1.0, 0.0, 0.9, False, "a test"),
    )


def test_too_many_rates_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_resolved, "MAX_RATES", 20)
    hierarchy = Hierarchy([Decimals("place")], [(f"1,{number}",) for number in range(10)], [(0,)])
    frequency = np.full(11, 0.1)
    assert len(resolve(rates_at_the_root(hierarchy, frequency, 2), hierarchy, 0).ad) == 20
    with pytest.raises(ValueError, match="the rates fill 30 pairs of an ad and a column, and at most 20 are resolved"):
        resolve(rates_at_the_root(hierarchy, frequency, 3), hierarchy, 0)


def test_the_rates_of_another_hierarchy_are_refused() -> None:
    hierarchy = a_hierarchy(seeded(1), 10)
    table = a_table(seeded(2), hierarchy, ADS, 10)
    other = Hierarchy(hierarchy.attributes, hierarchy.contexts, hierarchy.sequence[:2])
    with pytest.raises(ValueError, match="these are rates of another hierarchy"):
        resolve(table, other, 0)
    with pytest.raises(ValueError, match="least_support must be a finite number of at least 0"):
        resolve(table, hierarchy, np.nan)


@pytest.mark.slow
def test_a_million_rates_are_resolved_in_seconds() -> None:
    """10^5 ads, 2,000 columns."""
    rng = seeded(3)
    spots = [
        (f"{10 + row // 10}.{row % 10},{10 + column // 10}.{column % 10}",) for row in range(50) for column in range(40)
    ]
    hierarchy = Hierarchy([Decimals("location")], spots, [(0,), (4,), (5,)])
    nodes = np.arange(1, len(hierarchy.nodes))
    pairs = np.unique(rng.integers(0, 10**5, 1_020_000) * len(hierarchy.nodes) + rng.choice(nodes, 1_020_000))
    ad, node = np.divmod(pairs, len(hierarchy.nodes))
    rates = np.sort(rng.random((3, len(ad))), axis=0)
    table = RateTable(
        hierarchy=hierarchy.fingerprint,
        ads=tuple(map(str, range(10**5))),
        frequency=np.minimum(hierarchy.sums(np.full(2000, 1 / 2000)), 1.0),
        ad=ad.astype(np.int32),
        node=node.astype(np.int32),
        low=rates[0],
        rate=rates[1],
        high=rates[2],
        views=rng.random(len(ad)),
        epsilon=1.0,
        delta=1e-6,
        level=0.95,
        seeded=True,
        source="a test",
    )
    start = time.process_time()
    resolved = resolve(table, hierarchy, 0.1)
    assert time.process_time() - start < 2
    assert len(resolved.columns) == 2000
    assert len(resolved.rate) > 10**6
