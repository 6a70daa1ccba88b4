"""Two tables side by side, and the ads of an estimate in a file."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from reticent.hierarchy import Node
from reticent.randomness import seeded
from reticent.rates import RateTable
from reticent_analyst.rates import compare, load_ads
from reticent_sim.local_counts import LocalCounts
from tests.analyst.rates.logs import hierarchy, log_of, rates_of

PLACES = hierarchy()

Entry = tuple[int, int, float, float, float, float]


def table(
    ads: tuple[str, ...], entries: list[tuple[int, int, float, float, float, float]], **changes: object
) -> RateTable:
    """A table of (ad, node, rate, low, high, views), with a frequency of the root and its children."""
    ad, node, rate, low, high, views = (np.array(column) for column in zip(*entries, strict=True))
    frequency = np.full(len(PLACES.nodes), np.nan)
    frequency[:3] = 1.0, 0.75, 0.25
    fields = {"frequency": frequency, "rate": rate, "low": low, "high": high, "views": views, **changes}
    facts = {"epsilon": 1.0, "delta": 1e-6, "level": 0.95, "seeded": True, "source": "test"}
    return RateTable(hierarchy=PLACES.fingerprint, ads=ads, ad=ad, node=node, **fields, **facts)  # type: ignore[arg-type]


def test_two_tables_are_compared_by_the_names_of_ads() -> None:
    first = table(("x", "y"), [(0, 0, 0.5, 0.4, 0.6, 90), (1, 0, 0.2, 0.1, 0.3, 40), (1, 1, 0.2, 0.1, 0.3, 5)])
    frequency = first.frequency.copy()
    frequency[1:5] = 0.5, 0.5, 0.3, 0.2
    second = table(
        ("y", "z", "x"), [(0, 0, 0.4, 0, 1, 30), (1, 0, 0.1, 0, 1, 9), (2, 0, 0.55, 0, 1, 90)], frequency=frequency
    )
    found = compare(first, second, PLACES)
    assert (found.common, found.first, found.second) == (2, 1, 1)
    assert found.rate_difference == pytest.approx((0.05 * 90 + 0.2 * 30) / 120)
    assert found.covered == 0.5
    assert found.views_difference == pytest.approx(math.sqrt(10**2 / 2))
    assert found.distribution_distance == pytest.approx(0.25)
    nothing = compare(first, table(("z",), [(0, 0, 0.1, 0, 1, 9)]), PLACES)
    assert (nothing.common, nothing.rate_difference, nothing.covered) == (0, None, None)


def test_a_table_of_another_hierarchy_is_refused() -> None:
    other = dataclasses.replace(table(("x",), [(0, 0, 0.5, 0.4, 0.6, 90)]), hierarchy="0" * 64)
    with pytest.raises(ValueError, match="these are rates of another hierarchy"):
        compare(other, other, PLACES)


def test_a_trusted_server_is_the_better_rival() -> None:
    """Of the same code, with everybody's entries and noise once: it is closer to the truth than absent phones are."""
    distances = []
    for number in range(10):
        rng = seeded(number, "trusted")
        log = log_of(PLACES, users=2000, size=8000, ads=2, rng=rng).sample(3, rng)
        exact = log.rates("exact")
        private = rates_of(LocalCounts(rng, absent=0.4), log, entries=3, absent=0.5)
        trusted = rates_of(LocalCounts(rng, trusted=True), log, entries=3)
        distances.append([compare(each, exact, PLACES).distribution_distance for each in (private, trusted)])
    ours, rival = np.mean(distances, axis=0)
    assert 1.2 * rival < ours


# The ads of an estimate


def test_ads_are_read_from_a_catalogue(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.csv"
    path.write_text("ad,payment,contexts\nx,1.5,\ny,2,1|a\nz,3, 1|a=0.25; 0|b1=1e3\n")
    assert load_ads(path, PLACES) == {"x": [], "y": [Node(1, ("a",))], "z": [Node(1, ("a",)), Node(0, ("b1",))]}
    path.write_text("ad\nx\n")
    assert load_ads(path, PLACES) == {"x": []}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name\nx\n", "line 1: the header needs a column named 'ad'"),
        ("", "line 1: the header needs a column named 'ad'"),
        ("ad\nx\nx\n", "line 3: each line has an ad of its own: got 'x'"),
        ("ad,contexts\nx,1|nowhere\n", r"line 2: the hierarchy has no node '1\|nowhere'"),
        ("ad,contexts\nx,1|nowhere=3\n", r"line 2: the hierarchy has no node '1\|nowhere'"),
        ("ad,contexts\nx,somewhere\n", 'line 2: a node is a level and values, as "7'),
    ],
)
def test_bad_files_of_ads_are_refused_with_the_line(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "catalogue.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"catalogue.csv, {said}"):
        load_ads(path, PLACES)
