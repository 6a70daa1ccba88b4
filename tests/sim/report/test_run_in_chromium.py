"""The page of a run in Debian's Chromium: its figures show the data, and its text can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from reticent_sim.report.run import write_report
from tests.sim.report import chromium
from tests.sim.report.chromium import Chromium
from tests.sim.report.made_run import made_run

pytestmark = pytest.mark.slow

RUN = made_run()
COUNTS = [each for each in RUN["counts"] if each["kind"] == "counters"]
PHONE, DESKTOP, PAPER = 360, 1280, 718
MEASURE = (Path(__file__).parent / "measure.js").read_text(encoding="utf-8")
PIXELS = 1.5
"""The most by which a mark may be off: a position is rounded, and that of a letter is known to half a pixel."""

Box = tuple[float, float, float, float]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if chromium.PROGRAM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with Chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(RUN, path)
    return path.as_uri()


def overlaps(one: Box, other: Box) -> bool:
    """Whether two boxes share more than their edges."""
    left, right = max(one[0], other[0]), min(one[1], other[1])
    top, bottom = max(one[2], other[2]), min(one[3], other[3])
    return right - left > 0.5 and bottom - top > 2.5  # letters leave some of the height of a line empty


def collisions(shown: dict[str, Any]) -> list[str]:
    """The texts of pictures that lie over one another, or outside the figure's frame."""
    found = []
    for plot in shown["plots"]:
        texts = [each for each in plot["texts"] if each["text"]]
        for number, one in enumerate(texts):
            found += [
                f"{plot['name']}: {one['text']} / {other['text']}"
                for other in texts[number + 1 :]
                if overlaps(one["box"], other["box"])
            ]
            left, right, top, bottom = plot["frame"]
            box = one["box"]
            if box[0] < left or box[1] > right or box[2] < top or box[3] > bottom:
                found.append(f"{plot['name']}: {one['text']} is outside")
    return found


@pytest.fixture(scope="module")
def odd_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A month of a hundred thousand phones with long names."""
    path = tmp_path_factory.mktemp("odd") / "report.html"
    write_report(with_long_names(made_run(2, 100_000, 30)), path)
    return path.as_uri()


def with_long_names(value: Any, key: str = "") -> Any:
    """The same data with long texts in place of all but dates."""
    if isinstance(value, dict):
        return {key: with_long_names(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [with_long_names(each) for each in value]
    return f"{value} or another {'long' * 12}" if isinstance(value, str) and key != "date" else value


@pytest.mark.parametrize("width", [320, DESKTOP])
def test_long_names_and_large_numbers_can_be_read(browser: Chromium, odd_page: str, width: int) -> None:
    browser.open(odd_page, width)
    shown = browser.run(MEASURE)
    assert shown["width"] == [width, width]
    assert (shown["outside"], shown["cut"], shown["faint"], collisions(shown)) == ([], [], [], [])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, PHONE, 768, DESKTOP])
def test_all_text_can_be_read(browser: Chromium, page: str, width: int, scheme: str) -> None:
    """On any screen nothing is wider than it, and no text is cut, covered, faint or small; tables open or not."""
    browser.open(page, width, scheme)
    for is_open in (False, True):
        browser.run(f"for (const each of document.querySelectorAll('details')) each.open = {str(is_open).lower()}")
        shown = browser.run(MEASURE)
        assert shown["width"] == [width, width]
        assert (shown["outside"], shown["cut"], shown["faint"], collisions(shown)) == ([], [], [], [])
        assert shown["broken"] == []
        assert shown["sizes"] >= 12
        assert len(shown["plots"]) >= 15
        assert shown["lines"] > 200


def test_text_that_cannot_be_read_is_found(browser: Chromium, page: str) -> None:
    browser.open(page, PHONE)
    browser.run("document.querySelector('style').append('.plot{font-size:30px} h3{color:#ccc;white-space:nowrap}')")
    shown = browser.run(MEASURE)
    assert shown["width"][0] > PHONE
    assert shown["outside"]
    assert shown["cut"]
    assert len(shown["faint"]) >= 16
    assert any("outside" in each for each in collisions(shown))
    assert any(" / " in each for each in collisions(shown))


def plot(shown: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in shown["plots"] if each["name"] == name)
    return found


def number(text: str) -> float:
    """The value of a tick from what is written at it."""
    if text == "truth":
        return 0.0
    return float(re.sub(r"[,\s%]", "", text)) / (100 if "%" in text else 1)


def axis(picture: dict[str, Any], name: str, *, is_log: bool = False) -> tuple[float, float]:
    """The line through the ticks of an axis: value = slope * pixels + intercept."""
    ticks = [each for each in picture["ticks"] if each["axis"] == name]
    low, high = (0, 1) if name == "x" else (2, 3)
    places = [(each["box"][low] + each["box"][high]) / 2 for each in ticks]
    values = [np.log10(number(each["text"])) if is_log else number(each["text"]) for each in ticks]
    slope, intercept = np.polyfit(places, values, 1)
    return float(slope), float(intercept)


def read(picture: dict[str, Any], series: str) -> tuple[list[float], list[float]]:
    """The values of a series across and down, read off the axes, and at most a pixel or two off."""
    places = np.array(sorted(each["place"] for each in picture["marks"] if each["series"] == series))
    (across, begin), (down, top) = axis(picture, "x"), axis(picture, "y")
    return (places[:, 0] * across + begin).tolist(), (places[:, 1] * down + top).tolist()


def near(picture: dict[str, Any], values: list[float], name: str = "y") -> Any:
    slope, _ = axis(picture, name)
    return pytest.approx(values, abs=PIXELS * abs(slope))


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_figures_show_the_data(browser: Chromium, page: str, width: int) -> None:
    """The values of marks and bars, read off the axes as an eye does it, are those of the run."""
    browser.open(page, width)
    shown = browser.run(MEASURE)
    ads = [day["ads"] for day in RUN["days"]]
    days = [float(day["day"]) for day in RUN["days"]]
    lines = [("revenue-lines", key, [day["revenue"][key] for day in ads]) for key in ("none", "learned", "exact")]
    lines += [(f"{key}-line", key, [day[key] for day in ads]) for key in ("progress", "precision", "coverage")]
    for name, series, values in lines:
        picture = plot(shown, name)
        across, down = read(picture, series)
        assert across == near(picture, days, "x")
        assert down == near(picture, values)
    shown_bars(shown, "shares-bars", {"no mask": 1.0, "optimal": 0.842, "hybrid": 0.781})
    shown_bars(shown, "budget-bars", {"the mean phone": 2.918 / 4.08, "the phone that spent most": 3.5 / 4.08})
    shown_bars(shown, "memory-bars", {key: size / 612.4 for key, size in RUN["cost"]["memory_mb"].items()})
    shown_bars(shown, "cohorts-bars", {each["id"]: each["contributors"] / 1000 for each in COUNTS})
    for k, each in enumerate(each for each in COUNTS if each["counters"]):
        shown_intervals(plot(shown, f"intervals-{k}"), each["counters"])
    shown_faults(plot(shown, "faults-timeline"))
    for k, check in enumerate(("none", "hybrid", "optimal")):
        shown_rises(plot(shown, f"rises-{k}"), next(mask for mask in RUN["masks"] if mask["check"] == check))


def shown_bars(shown: dict[str, Any], name: str, shares: dict[str, float]) -> None:
    """Each bar is as long as its share of the whole width."""
    picture = plot(shown, name)
    left, right = picture["area"]
    found = {bar["series"]: (bar["box"][1] - bar["box"][0]) / (right - left) for bar in picture["bars"]}
    assert found == pytest.approx(shares, abs=PIXELS / (right - left))


def shown_intervals(picture: dict[str, Any], counters: list[dict[str, Any]]) -> None:
    """The errors and their intervals, the largest counters on the left."""
    slope, intercept = axis(picture, "y")
    ordered = sorted(counters, key=lambda each: -each["truth"])
    lines = [[bottom * slope + intercept, top * slope + intercept] for _, _, top, bottom in picture["intervals"]]
    for (low, high), each in zip(lines, ordered, strict=True):
        assert low == near(picture, each["low"] - each["truth"])
        assert high == near(picture, each["high"] - each["truth"])
    values = [mark["place"][1] * slope + intercept for mark in picture["marks"]]
    assert values == near(picture, [each["value"] - each["truth"] for each in ordered])


def shown_faults(picture: dict[str, Any]) -> None:
    """A mark for each hour with a fault."""
    slope, intercept = axis(picture, "x")
    for kind in {fault["kind"] for fault in RUN["faults"]}:
        times = sorted({fault["day"] + fault["step"] / 24 for fault in RUN["faults"] if fault["kind"] == kind})
        found = [mark["place"][0] * slope + intercept for mark in picture["marks"] if mark["series"] == kind]
        assert found == near(picture, times, "x")


def shown_rises(picture: dict[str, Any], mask: dict[str, Any]) -> None:
    """The numbers of rises on the logarithmic axis, and which of them are above delta."""
    slope, intercept = axis(picture, "y", is_log=True)
    counts = [(k, size) for k, size in enumerate(mask["rises"]["histogram"]["counts"]) if size]
    heights = [bar["box"][2] * slope + intercept for bar in picture["bars"]]
    assert heights == pytest.approx([np.log10(size) for _, size in counts], abs=PIXELS * abs(slope))
    edges = mask["rises"]["histogram"]["edges"]
    assert [bar["series"] for bar in picture["bars"]] == ["above" if edges[k] >= 0.1 else "below" for k, _ in counts]
    across, begin = axis(picture, "x")
    middles = [(bar["box"][0] + bar["box"][1]) / 2 * across + begin for bar in picture["bars"]]
    assert middles == near(picture, [(edges[k] + edges[k + 1]) / 2 for k, _ in counts], "x")


def test_screenshots_are_light_and_dark_and_not_empty(browser: Chromium, page: str, tmp_path: Path) -> None:
    for width in (PHONE, DESKTOP):
        means = {}
        for scheme in ("light", "dark"):
            browser.open(page, width, scheme)
            path = tmp_path / f"{width}-{scheme}.png"
            browser.screenshot(path)
            picture = imread(path)[::4, :, :3]
            assert picture.shape[1] == width
            assert len(np.unique((picture[:, ::4] * 255).astype(np.uint32) @ [65536, 256, 1])) > 50  # colours
            means[scheme] = float(picture.mean())
        assert means["light"] > 0.85
        assert means["dark"] < 0.25


def test_a_keyboard_reaches_everything(browser: Chromium, page: str) -> None:
    browser.open(page, DESKTOP)
    browser.press("Tab")
    assert browser.run("document.activeElement.textContent") == "Skip to the results"
    assert browser.run("document.activeElement.getBoundingClientRect().top") >= 0
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter")
    assert browser.run("document.activeElement.id") == "results"
    browser.press("Tab")
    assert browser.run("document.activeElement.tagName") == "SUMMARY"
    browser.press("Enter")
    assert browser.run("document.activeElement.parentElement.open")
    browser.press("Tab")
    assert browser.run("document.activeElement.getAttribute('role')") == "region"  # it scrolls by the arrow keys


def test_a_screen_reader_gets_names_and_words(browser: Chromium, page: str) -> None:
    browser.open(page, PHONE)
    tree = browser.command("Accessibility.getFullAXTree")["nodes"]
    named: dict[str, list[str]] = {}
    for node in tree:
        if not node.get("ignored"):
            named.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    assert named["figure"][0].startswith("With a mask, no belief rose by more than delta = 0.1")
    assert len(named["figure"]) == len(set(named["figure"])) == 18
    assert len(named["image"]) >= 15
    for role in ("figure", "image", "heading", "link", "region", "navigation"):
        assert all(named[role]), role
    assert named["heading"][0].replace("\N{NO-BREAK SPACE}", " ") == "1,000 phones, 7 days"


def test_paper_has_every_table_and_ink_on_white(browser: Chromium, page: str) -> None:
    browser.open(page, PAPER, "dark", media="print")
    shown = browser.run(MEASURE)
    assert shown["width"] == [PAPER, PAPER]
    assert shown["faint"] == []
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("document.querySelector('#revenue-numbers').getBoundingClientRect().height") > 100
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert len(browser.command("Page.printToPDF", paperWidth=8.3, paperHeight=11.7)["data"]) > 100_000


def test_the_page_asks_for_nothing_else(browser: Chromium, page: str) -> None:
    browser.requests.clear()
    browser.errors.clear()
    browser.open(page, DESKTOP)
    assert browser.requests == [page]
    assert browser.errors == []
