"""Tables of rates survive their file, and every ad gets the rate of the nearest node with enough views."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reticent.hierarchy import Decimals, Hierarchy
from reticent.randomness import seeded
from reticent.rates import RateTable, click_counter, counter_prefix, node_counter, parse_counter, resolve, view_counter


def a_hierarchy(rng: np.random.Generator, contexts: int) -> Hierarchy:
    spots = {(f"{x:.2f},{y:.2f}",) for x, y in rng.normal(0, 2, (contexts, 2))}
    return Hierarchy([Decimals("location", (None, 1, 0))], spots, [(0,), (1,), (2,)])


def a_table(rng: np.random.Generator, hierarchy: Hierarchy, ads: int, entries: int) -> RateTable:
    """Random rates at nodes below a random part of the hierarchy."""
    estimated = np.zeros(len(hierarchy.nodes), dtype=np.bool_)
    estimated[0] = True
    for node, parent in enumerate(hierarchy.parents[1:], start=1):
        estimated[node] = estimated[parent] and rng.random() < 0.7
    pairs = np.unique(rng.integers(0, [ads, estimated.sum()], (entries, 2)), axis=0)
    rates = np.sort(rng.random((len(pairs), 3)), axis=1)
    frequency = hierarchy.sums(np.full(len(hierarchy.contexts), 1 / len(hierarchy.contexts)))
    return RateTable(
        hierarchy=hierarchy.fingerprint,
        ads=tuple(f"ad {number}" for number in range(ads)),
        frequency=np.where(estimated, np.minimum(frequency, 1.0), np.nan),
        ad=pairs[:, 0].astype(np.int32),
        node=np.flatnonzero(estimated)[pairs[:, 1]].astype(np.int32),
        low=rates[:, 0],
        rate=rates[:, 1],
        high=rates[:, 2],
        views=rng.integers(0, 10, len(pairs)).astype(np.float64),
        epsilon=1.0,
        delta=1e-6,
        level=0.95,
        seeded=True,
        source="a test",
    )


@pytest.mark.parametrize("seed", range(20))
def test_each_ad_gets_the_rate_of_the_nearest_supported_node(seed: int) -> None:
    rng = seeded(seed)
    hierarchy = a_hierarchy(rng, int(rng.integers(1, 30)))
    table = a_table(rng, hierarchy, 5, int(rng.integers(0, 40)))
    resolved = resolve(table, hierarchy, 4)
    entries = {(ad, node): number for number, (ad, node) in enumerate(zip(table.ad, table.node, strict=True))}
    expected = {}
    for column, lowest in enumerate(resolved.columns):
        for ad in range(5):
            node = lowest
            while node >= 0 and ((ad, node) not in entries or table.views[entries[ad, node]] < 4):
                node = hierarchy.parents[node]
            if node >= 0:
                expected[ad, column] = entries[ad, node]
    found = list(zip(resolved.ad.tolist(), resolved.column.tolist(), strict=True))
    assert dict(zip(found, resolved.entry, strict=True)) == expected
    assert found == sorted(expected)
    for context, column in enumerate(resolved.column_of):
        node = hierarchy.leaves[context]
        while np.isnan(table.frequency[node]):
            node = hierarchy.parents[node]
        assert resolved.columns[column] == node
    assert resolved.weights.sum() == pytest.approx(1)


def test_a_table_survives_its_file(tmp_path: Path) -> None:
    rng = seeded(1)
    table = a_table(rng, a_hierarchy(rng, 20), 5, 30)
    table.save(tmp_path / "rates.npz")
    again = RateTable.load(tmp_path / "rates.npz")
    assert again.fingerprint == table.fingerprint
    np.testing.assert_equal(vars(again), vars(table) | {"fingerprint": again.fingerprint})


def test_names_of_counters() -> None:
    hierarchy = a_hierarchy(seeded(1), 3)
    prefix = counter_prefix(hierarchy)
    names: dict[str, tuple[Any, ...]] = {
        node_counter(prefix, 3): (prefix, 3, "node", None),
        click_counter(prefix, 0, "a/b|c"): (prefix, 0, "click", "a/b|c"),
        view_counter(prefix, 12, "x"): (prefix, 12, "view", "x"),
    }
    assert {name: parse_counter(name) for name in names} == names
    assert parse_counter("steps") is None
