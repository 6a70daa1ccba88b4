"""Check-ins as a log of ads: every choice that the module states, on files written by hand."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from reticent_sim.world import checkins
from reticent_sim.world.ads import AdData
from reticent_sim.world.checkins import read_checkins

CATEGORIES = """category_id,name,checkins,path
c,Coffee Shop,9,Food > Coffee Shop
r,Ramen Restaurant,3,Food > Asian Restaurant > Ramen Restaurant
f,Food,1,Food
h,Home,4,Residence > Home
"""
HEADER = "user,venue,category_id,lat,lon,local_time\n"
HOME, WORK = "40.70001,-74.00001", "40.75001,-73.95001"


def line(user: str, venue: str, category: str, place: str, time: int) -> str:
    return f"{user},{venue},{category},{place},2012-04-{time // 24 + 1:02} {time % 24:02}:00\n"


def write(folder: Path, lines: list[str], *, zipped: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "categories.csv").write_text(CATEGORIES)
    if zipped:
        with gzip.open(folder / "checkins.csv.gz", "wt") as file:
            file.write(HEADER + "".join(lines))
    else:
        (folder / "checkins.csv").write_text(HEADER + "".join(lines))
    return folder


def regular(user: str, visits: int, first: int = 0) -> list[str]:
    """Somebody who is at home, then has a coffee, day after day."""
    days = range(first, first + 24 * visits, 24)
    return [each for day in days for each in (line(user, "h1", "h", HOME, day), line(user, "v1", "c", WORK, day + 9))]


@pytest.fixture
def data(tmp_path: Path) -> AdData:
    """Two regulars of one coffee shop, one of whom has ramen once, and somebody with two clicks."""
    ramen = [line("bob", "v2", "r", WORK, 12)]
    rare = [line("eve", "h2", "h", HOME, 1), line("eve", "v1", "c", WORK, 2), line("eve", "v1", "c", WORK, 3)]
    return read_checkins(write(tmp_path / "data", [*rare, *regular("ada", 10), *regular("bob", 10, 1), *ramen]))


def test_the_location_is_the_check_in_before_and_the_query_is_the_category(data: AdData) -> None:
    contexts = set(data.training.hierarchy.contexts)
    assert contexts == {
        (HOME, "Coffee Shop", "coffee shop"),
        (HOME, "Coffee Shop+Ramen Restaurant", "coffee shop"),
        (WORK, "Coffee Shop+Ramen Restaurant", "ramen restaurant"),
    }
    assert data.training.users == 2  # eve has two clicks
    assert data.training.ads == ("v1", "v2")


def test_queries_and_interests_generalise_along_the_path(data: AdData) -> None:
    hierarchy = data.training.hierarchy
    path = hierarchy.ancestors((WORK, "Coffee Shop+Ramen Restaurant", "ramen restaurant"))
    assert [node.values[1:] for node in (path[0], path[1], path[3], path[5], path[8])] == [
        ("Coffee Shop+Ramen Restaurant", "ramen restaurant"),
        ("Coffee Shop+Ramen Restaurant", "Ramen Restaurant"),
        ("all Asian Restaurant+all Coffee Shop", "Ramen Restaurant"),
        ("all Food", "Ramen Restaurant"),
        ("all Food", "all Asian Restaurant"),
    ]


def test_a_visited_venue_is_the_click(data: AdData) -> None:
    log = data.training
    assert log.clicked.sum() == 18  # nine tenths of 21
    searches = log.context[log.clicked]
    assert {
        (log.hierarchy.contexts[context][2], log.ads[ad])
        for context, ad in zip(searches, log.ad[log.clicked], strict=True)
    } == {
        ("coffee shop", "v1"),
        ("ramen restaurant", "v2"),
    }
    assert log.clicked.all()  # in its region, each venue is the only one of its category


def test_the_last_tenth_in_time_are_the_tests(data: AdData) -> None:
    assert len(data.tests) == 3
    assert [data.training.hierarchy.contexts[test][0] for test in data.tests] == [HOME] * 3
    assert data.clicks(np.arange(3), np.zeros(3, dtype=int)).tolist() == [1, 1, 1]
    assert data.clicks(np.arange(3), np.ones(3, dtype=int)).tolist() == [0, 0, 0]
    assert data.payments.tolist() == [1, 1]
    assert data.bids.tolist() == [0, 0]


def test_a_page_has_the_venues_with_most_clicks_and_a_few_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below level (3, 2, 2), a venue that is on the page has its part of all check-ins as rate."""
    monkeypatch.setattr(checkins, "PAGE", 2)
    monkeypatch.setattr(checkins, "OTHERS", 0)
    visited = ["v1"] * 6 + ["v2"] * 3 + ["v3"] * 1
    lines = []
    for number, venue in enumerate(visited * 2):
        lines += [line("ada", "h1", "h", HOME, 2 * number), line("ada", venue, "c", WORK, 2 * number + 1)]
    log = read_checkins(write(tmp_path / "data", lines)).training
    assert sorted(set(log.ad.tolist())) == [0, 1]
    clicks = {venue: int((log.clicked & (log.ad == log.ads.index(venue))).sum()) for venue in ("v1", "v2")}
    assert clicks == {"v1": visited[:10].count("v1") + 6, "v2": 5}
    assert len(log) == 2 * 18


def test_other_venues_are_drawn_from_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkins, "PAGE", 1)
    lines = []
    for number in range(40):
        lines += [
            line("ada", "h1", "h", f"40.7{number % 8}001,-74.00001", 2 * number),
            line("ada", f"v{number % 8}", "c", WORK, 2 * number + 1),
        ]
    folder = write(tmp_path / "data", lines)
    logs = [read_checkins(folder, seed=seed).training for seed in (1, 1, 2)]
    assert np.array_equal(logs[0].ad, logs[1].ad)
    assert not np.array_equal(logs[0].ad, logs[2].ad)
    assert len(logs[0]) > 36  # the page of each search, and others
    assert logs[0].clicked.sum() >= 36


def test_zipped_files_and_other_roots(tmp_path: Path) -> None:
    lines = [line("ada", f"h{number % 2}", "h", HOME, number) for number in range(40)]
    data = read_checkins(write(tmp_path / "data", lines, zipped=True), root="Residence")
    assert {context[2] for context in data.training.hierarchy.contexts} == {"home"}


@pytest.mark.parametrize(
    ("lines", "categories", "expected"),
    [
        ([], CATEGORIES, "too few check-ins below 'Food'"),
        (regular("ada", 2), CATEGORIES, "too few check-ins"),
        (["ada,v1,c\n"], CATEGORIES, "line 2: it has not as many values as the header"),
        (regular("ada", 9), "category_id,name\n", "categories.csv needs a column 'path'"),
        (regular("ada", 9), "category_id,path\nh,Residence > Home\n", "no category below 'Food'"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, lines: list[str], categories: str, expected: str) -> None:
    folder = write(tmp_path / "data", lines)
    (folder / "categories.csv").write_text(categories)
    with pytest.raises(ValueError, match=expected):
        read_checkins(folder)


def test_a_folder_without_check_ins_is_named(tmp_path: Path) -> None:
    (tmp_path / "categories.csv").write_text(CATEGORIES)
    with pytest.raises(ValueError, match=r"has neither checkins.csv nor checkins.csv.gz"):
        read_checkins(tmp_path)
    with pytest.raises(OSError, match=r"categories\.csv"):
        read_checkins(tmp_path / "nowhere")
