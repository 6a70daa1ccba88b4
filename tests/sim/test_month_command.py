"""`reticent experiment month`, small: its table, its files, its picture and its exit codes."""

import csv
import json
import os
import struct
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from rich.text import Text

from reticent.console import program
from reticent_client import mask_sensitive
from reticent_client.mask.checks.registry import CHECKS, Check
from reticent_sim.experiments.month import LEAKY
from reticent_sim.report.day import draw
from reticent_sim.report.example_day import SHOWN_CHECKS, CheckedDay, ExampleDay
from reticent_sim.world.people import CONTEXTS, HOME, HOSPITAL, HOURS, Day

PROGRAM = Path(sys.executable).with_name("reticent")
SMALL = ["experiment", "month", "--days", "4", "--seed", "3"]
PIXELS = (2000, 1240)


@dataclass(frozen=True)
class Run:
    folder: Path
    code: int
    out: str
    err: str

    @property
    def table(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads((self.folder / "month.json").read_text()))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The real command, on what it takes for a terminal of 80 columns."""
    folder = tmp_path_factory.mktemp("month")
    done = subprocess.run(
        [PROGRAM, *SMALL, "--people", "2", "--output", folder / "deep" / "month"],
        env={**os.environ, "COLUMNS": "80", "FORCE_COLOR": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return Run(folder / "deep" / "month", done.returncode, done.stdout, done.stderr)


def test_the_table_says_what_each_check_released_and_leaked(run: Run) -> None:
    assert run.code == 0, run.err
    table = run.table
    assert (table["people"], table["days"], table["steps"], table["delta"]) == (2, 4, 24, 0.1)
    assert (table["seed"], table["seeded"], table["sensitive"]) == (3, True, [HOSPITAL])
    assert table["days_on_model"] + table["days_off_model"] == 8
    assert table["kept"] is True
    rows = {row["check"]: row for row in table["checks"]}
    assert list(rows) == list(CHECKS)
    leaky = rows.pop(LEAKY)
    assert leaky["breaches"] > 0
    assert leaky["largest_gain"] > 0.5
    assert leaky["to_ceiling"] < 0
    for row in rows.values():
        assert row["breaches"] == 0
        assert row["largest_gain"] <= 0.1 + 1e-9
        assert 0 < row["expected"] <= row["ceiling"] + 1e-9
        assert 0 < row["realised"] <= HOURS
        assert row["visits"] == leaky["visits"]


def test_the_csv_holds_the_rows_of_the_json(run: Run) -> None:
    with (run.folder / "month.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [{name: str(value) for name, value in row.items()} for row in run.table["checks"]]


def test_the_picture_is_a_png_of_the_promised_size(run: Run) -> None:
    assert _size(run.folder / "month.png") == PIXELS
    place = run.table["picture"]
    assert 0 <= place["person"] < 2
    assert run.table["learned_days"] <= place["day"] < run.table["learned_days"] + 4


def test_the_terminal_shows_the_table_and_says_that_it_is_seeded(run: Run) -> None:
    lines = Text.from_ansi(run.out).plain.splitlines()
    assert all(len(line) <= 80 for line in lines if "Written" not in line)
    shown = {line.split()[0]: line.split() for line in lines if line.split() and line.split()[0] in CHECKS}
    for row in run.table["checks"]:
        words = shown[row["check"]]
        assert words[1:3] == [f"{row['expected']:.2f}", f"{row['realised']:.2f}"]
        assert words[4:6] == [str(row["breaches"]), f"{row['largest_gain']:.3f}"]
    assert any("seed 3: this is a simulation" in line for line in lines)


def test_progress_is_shown_on_a_terminal(run: Run) -> None:
    assert "person 1" in run.err


@pytest.mark.slow
def test_the_same_seed_prints_the_same_as_json(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([*SMALL, "--people", "2", "--output", str(tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == run.table
    assert err == ""
    assert (tmp_path / "month.csv").read_bytes() == (run.folder / "month.csv").read_bytes()
    assert (tmp_path / "month.png").read_bytes() == (run.folder / "month.png").read_bytes()


def test_a_check_that_breaks_its_promise_ends_the_run_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = replace(CHECKS["hybrid"], compute=mask_sensitive)
    monkeypatch.setitem(cast("dict[str, Check]", CHECKS), "hybrid", broken)
    assert program.main([*SMALL, "--people", "1", "--output", str(tmp_path), "--json"]) == 1
    table = json.loads(capsys.readouterr().out)
    assert table["kept"] is False
    assert [row["check"] for row in table["checks"] if row["breaches"]] == [LEAKY, "hybrid"]


def staying(start: int, stop: int) -> Day:
    """A day in the hospital from one hour until another, and at home otherwise."""
    return [HOSPITAL if start <= hour < stop else HOME for hour in range(HOURS)]


RESTLESS: Day = [*[*CONTEXTS[::-1], None] * 2, None, None, None, HOSPITAL]


@pytest.mark.parametrize(
    "day",
    [
        pytest.param(RESTLESS, id="restless"),
        *(
            pytest.param(staying(*hours), id=str(hours), marks=[pytest.mark.slow] * (hours != (0, 1)))
            for hours in [(0, 0), (0, 24), (0, 1), (0, 14), (5, 20), (23, 24)]
        ),
    ],
)
def test_any_day_can_be_drawn(day: Day, tmp_path: Path) -> None:
    """Also those whose labels have little room, or nothing to point at."""
    here = np.array([float(context == HOSPITAL) for context in day])
    outputs: Day = [None if context == HOSPITAL else context for context in day]
    checked = tuple(CheckedDay(check, outputs, here) for check in SHOWN_CHECKS)
    draw(ExampleDay(1, 0, 84, 0.1, day, np.full(HOURS, 0.05), checked), tmp_path / "month.png")
    assert _size(tmp_path / "month.png") == PIXELS


def _size(picture: Path) -> tuple[int, int]:
    """Width and height, from a PNG's header."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return cast("tuple[int, int]", struct.unpack(">II", head[16:24]))
