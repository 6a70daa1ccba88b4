"""A table of rates survives its file bit for bit, and no table holds impossible numbers."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reticent.hierarchy import Decimals, Hierarchy
from reticent.randomness import seeded
from reticent.rates import RateTable, click_counter, counter_prefix, node_counter, parse_counter, view_counter
from reticent.rates._table import FORMAT
from tests.core.rates.tables import a_hierarchy, a_table

HIERARCHY = Hierarchy([Decimals("place")], [("1.1,1",), ("1.2,1",), ("2,3",)], [(0,), (5,)])
GOOD: dict[str, Any] = {
    "hierarchy": HIERARCHY.fingerprint,
    "ads": ["shoes", "tea"],
    "frequency": [1.0, 0.75, np.nan, 0.5, 0.25, np.nan],
    "ad": [1, 0, 1],
    "node": [0, 3, 1],
    "rate": [0.1, 1.0, 0.0],
    "low": [0.0, 0.5, 0.0],
    "high": [0.1, 1.0, 0.5],
    "views": [12.5, -3.0, 0.0],
    "epsilon": 1,
    "delta": 0,
    "level": 0.95,
    "seeded": False,
    "source": "autumn",
}
FIELDS = [each.name for each in dataclasses.fields(RateTable)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9), entries=st.integers(0, 40), epsilon=st.sampled_from([0.0, 0.1, math.inf]))
def test_a_table_survives_its_file(seed: int, entries: int, epsilon: float, tmp_path: Path) -> None:
    rng = seeded(seed)
    table = dataclasses.replace(a_table(rng, a_hierarchy(rng, 10), 5, entries), epsilon=epsilon)
    table.save(tmp_path / "rates.npz")
    again = RateTable.load(tmp_path / "rates.npz")
    assert again.fingerprint == table.fingerprint
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(again, name), getattr(table, name), strict=True)


def test_entries_are_sorted_and_cannot_change() -> None:
    table = RateTable(**GOOD)
    assert len(table) == 3
    assert list(zip(table.ad, table.node, table.views, strict=True)) == [(0, 3, -3.0), (1, 0, 12.5), (1, 1, 0.0)]
    with pytest.raises(ValueError, match="read-only"):
        table.rate[0] = 0
    assert RateTable(**GOOD | {"views": [12.5, -3.0, 0.5]}).fingerprint != table.fingerprint
    assert RateTable(**GOOD | {"source": "winter"}).fingerprint != table.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": [0.1, 1.0, np.nan]}, "the rate of entry 2 is impossible: nan"),
        ({"rate": [0.1, 1.0, -0.01]}, "the rate of entry 2 is impossible: -0.01"),
        ({"rate": [0.1, 1.01, 0.0]}, "the rate of entry 1 is impossible: 1.01"),
        ({"low": [np.nan, 0.5, 0.0]}, "the low of entry 0 is impossible"),
        ({"high": [0.1, 1.5, 0.5]}, "the high of entry 1 is impossible"),
        ({"low": [0.0, 0.5, 0.2]}, "the interval does not contain the rate of entry 2"),
        ({"high": [0.05, 1.0, 0.5]}, "the interval does not contain the rate of entry 0"),
        ({"views": [np.inf, 0.0, 0.0]}, "the views of entry 0 is impossible"),
        ({"ad": [1, 0, 2]}, "entry 2: there is no ad 2, only 0 to 1"),
        ({"ad": [1, -1, 0]}, "entry 1: there is no ad -1"),
        ({"node": [0, 6, 1]}, "entry 1: there is no node 6, only 0 to 5"),
        ({"node": [0, 2, 1]}, "entry 1 is at node 2, which has no frequency"),
        ({"ad": [1, 1, 1], "node": [1, 0, 1]}, "the ad 'tea' has two rates at node 1"),
        ({"ad": [1.0, 0.0, 1.0]}, "ad must be a list of whole numbers"),
        ({"rate": [[0.1, 1.0, 0.0]]}, "rate must be a list of numbers"),
        ({"rate": ["a", "b", "c"]}, "rate must be a list of numbers"),
        ({"rate": [0.1, 1.0]}, "must be equally long"),
        ({"frequency": []}, "the root needs a frequency"),
        ({"frequency": [np.nan] * 6}, "the root needs a frequency"),
        ({"frequency": [1.0, 0.75, 0.25, 1.1, 0.25, 0.25]}, "the frequency of node 3 is impossible"),
        ({"frequency": [1.0, -0.75, 0.25, 0.1, 0.25, 0.25]}, "the frequency of node 1 is impossible"),
        ({"ads": ["tea", "tea"]}, "two ads have the same name"),
        ({"ads": ["tea", ""]}, "ad 1 must be text that is not empty"),
        ({"ads": "tea"}, "ads must be a list of names"),
        ({"hierarchy": "1234"}, "hierarchy must be a fingerprint"),
        ({"hierarchy": None}, "hierarchy must be text"),
        ({"epsilon": math.nan}, "epsilon must be a finite number"),
        ({"delta": 1.0}, "delta must lie in"),
        ({"level": 0.0}, r"level in \(0, 1\)"),
        ({"seeded": 1}, "seeded must be true or false"),
        ({"source": ""}, "the source of rates must be text"),
    ],
)
def test_impossible_tables_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RateTable(**GOOD | change)


@pytest.mark.parametrize(
    ("header", "arrays"),
    [
        ({"ads": ["tea"]}, {}),
        ({"ads": 3}, {}),
        ({"hierarchy": 3}, {}),
        ({"epsilon": "1"}, {}),
        ({"seeded": None}, {}),
        ({}, {"rate": np.array([0.1, 1.0, np.nan])}),
        ({}, {"rate": np.array(0.1)}),
        ({}, {"ad": np.array([0.0, 1.0, 1.0])}),
    ],
)
def test_a_file_of_an_impossible_table_is_refused(
    header: dict[str, Any], arrays: dict[str, Any], tmp_path: Path
) -> None:
    """Its digest fits, as anyone can write one."""
    path = tmp_path / "rates.npz"
    good_header, good_arrays = RateTable(**GOOD)._described()
    FORMAT.write(path, good_header | header, good_arrays | arrays)
    with pytest.raises(ValueError, match="the rate table is damaged") as error:
        RateTable.load(path)
    assert str(error.value).startswith(f"{path}: ")


def test_files_of_another_kind_version_or_content_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rates.npz"
    table = RateTable(**GOOD)
    header, arrays = table._described()
    table.save(path)
    whole = path.read_bytes()
    for content, message in [
        (b"PK", "this is not a rate table written by Reticent"),
        (whole[:-1], "the rate table is damaged: its digest does not fit its content"),
        (whole[:200] + b"\0" + whole[201:], "the rate table is damaged"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            RateTable.load(path)
    newer = dataclasses.replace(FORMAT, header=dataclasses.replace(FORMAT.header, version=2))
    newer.write(path, header, arrays)
    with pytest.raises(ValueError, match="the rate table has format version 2: this program reads 1"):
        RateTable.load(path)
    for less, fewer in ((header, {}), ({}, arrays), (header | {"x": 1}, arrays)):
        FORMAT.write(path, less, fewer)
        with pytest.raises(ValueError, match="it has not the entries that a rate table has"):
            RateTable.load(path)
    FORMAT.write(path, header, arrays | {"rate": arrays["rate"].astype(np.float32)})
    with pytest.raises(ValueError, match="not of numbers as NumPy writes them"):
        RateTable.load(path)


def test_a_table_must_fit_its_hierarchy() -> None:
    RateTable(**GOOD).check(HIERARCHY)
    with pytest.raises(ValueError, match="these are rates of another hierarchy"):
        RateTable(**GOOD | {"hierarchy": "0" * 64}).check(HIERARCHY)
    with pytest.raises(ValueError, match="the hierarchy has 6 nodes, the rates 7"):
        RateTable(**GOOD | {"frequency": [*GOOD["frequency"], 0.0]}).check(HIERARCHY)
    with pytest.raises(ValueError, match=r"the node 0\|2,3 has a frequency, and its parent has none"):
        RateTable(**GOOD | {"frequency": [1.0, 0.75, np.nan, 0.5, 0.25, 0.25]}).check(HIERARCHY)


def test_names_of_counters() -> None:
    prefix = counter_prefix(HIERARCHY)
    names: dict[str, tuple[Any, ...]] = {
        node_counter(prefix, 3): (prefix, 3, "node", None),
        click_counter(prefix, 0, "a/b|c\n"): (prefix, 0, "click", "a/b|c\n"),
        view_counter(prefix, 12, "x"): (prefix, 12, "view", "x"),
    }
    assert {name: parse_counter(name) for name in names} == names


@pytest.mark.parametrize(
    "name",
    [
        "steps",
        "ads/0123/3",
        "ads/0123456789abcdef/",
        "ads/0123456789abcdef/03",
        "ads/0123456789abcdef/3/click/",
        "ads/0123456789abcdef/3/buy/x",
    ],
)
def test_other_names_are_not_those_of_rates(name: str) -> None:
    assert parse_counter(name) is None
