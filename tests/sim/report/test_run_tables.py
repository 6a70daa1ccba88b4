"""The CSV files of a run, its screen of results, and the view while it goes on."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reticent_sim.engine.snapshot import Snapshot
from reticent_sim.report.run import LiveView, summary, write_csvs
from tests.sim.report.made_run import made_run

RUN = made_run(phones=60, days=3)


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_csv_files_have_all_rows_and_values(tmp_path: Path) -> None:
    write_csvs(RUN, tmp_path)
    days = rows(tmp_path, "days.csv")
    for row, day in zip(days, RUN["days"], strict=True):
        assert [int(row[key]) for key in ("day", "steps", "released", "suppressed", "missing", "clicks")] == [
            *(day[key] for key in ("day", "steps", "released", "suppressed", "missing")),
            day["ads"]["clicks"],
        ]
        assert float(row["revenue_learned"]) == day["ads"]["revenue"]["learned"]
        assert [float(row["progress_low"]), float(row["progress_high"])] == day["ads"]["progress_interval"]
    counts = rows(tmp_path, "counts.csv")
    counters = [(each, counter) for each in RUN["counts"] for counter in each["counters"]]
    for row, (each, counter) in zip(counts, counters, strict=True):
        assert (row["id"], row["counter"], row["cohorts_left_out"]) == (each["id"], counter["name"], "3 11")
        assert [float(row[key]) for key in ("truth", "value", "low", "high", "sigma")] == [
            counter[key] for key in ("truth", "value", "low", "high", "sigma")
        ]
    for mask in RUN["masks"]:
        bins = [row for row in rows(tmp_path, "masks.csv") if row["check"] == mask["check"]]
        assert [int(row["rises"]) for row in bins] == mask["rises"]["histogram"]["counts"]
        assert [float(row["rise_to"]) for row in bins] == mask["rises"]["histogram"]["edges"][1:]
        assert {(float(row["largest_rise"]), int(row["breaches"])) for row in bins} == {
            (mask["rises"]["max"], mask["breaches"])
        }
    faults = rows(tmp_path, "faults.csv")
    assert faults == [{key: str(value) for key, value in fault.items()} for fault in RUN["faults"]]
    malice = rows(tmp_path, "malice.csv")
    assert malice == [
        {**{key: str(value) for key, value in each.items()}, "by": " ".join(each["by"])} for each in RUN["malice"]
    ]


def test_the_csv_files_of_an_empty_run_have_headings_only(tmp_path: Path) -> None:
    write_csvs({}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "counts.csv", "days.csv", "faults.csv", "malice.csv", "masks.csv",
    ]  # fmt: skip
    assert all(len(path.read_text().splitlines()) == 1 for path in tmp_path.iterdir())


def screen(run: dict[str, Any]) -> list[str]:
    output = io.StringIO()
    summary(Console(file=output, width=80), run)
    return output.getvalue().splitlines()


def test_the_results_fit_one_screen() -> None:
    lines = screen(made_run())
    text = " ".join(" ".join(lines).split())
    assert lines[0].startswith("1,000 phones, 7 days, simulated in 61.2 s")
    for words in (
        "no belief rose by more than delta = 0.1 (largest: 0.0993) on the 7,000 of 7,031 days that follow the learned",
        "Without one, it did in 7",
        "optimal 84.2%, hybrid 78.1%.",
        "learned rates bring 87.8% (79.6% to 94.1%) of what exact rates would add",
        "190 of 192 intervals at 95% contain the truth. 9 of 9 sums were compared with the contributions: all equal",
        "41.3 kB sent",
        "No phone spent more than 3.5 of its epsilon of 4",
        "38 faults of 7 kinds injected, 34 in effect",
        "8 of 12 malicious phones were noticed; not noticed: colluder (2), silence (2).",
        RUN["trace"],
    ):
        assert words in text
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("letters", ["long name " * 30, "\x1b[31m" * 40, "[red]\n" * 40])
def test_the_results_fit_one_screen_whatever_they_are(letters: str) -> None:
    run = made_run() | {"problems": [letters] * 50, "trace": letters}
    run["masks"] = [mask | {"check": f"{letters}{k}"} for k, mask in enumerate(run["masks"])]
    run["malice"] = [each | {"kind": letters} for each in run["malice"]]
    run["cost"] = dict.fromkeys(run["cost"], 1000000000000000.0) | {"memory_mb": {}}
    lines = screen(run)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
    assert any(line.startswith("50 problems: ") for line in lines)


def test_an_empty_run_has_a_heading() -> None:
    assert screen({}) == ["A simulated run"]


def snapshot(phase: str, seconds: float) -> Snapshot:
    return Snapshot(3, 14, 7, phase, 1000, 903, 512, 318.2, 1.5, 4.0, seconds)


def test_a_file_gets_a_line_every_five_seconds_and_one_for_each_phase() -> None:
    output = io.StringIO()
    with LiveView(Console(file=output, width=80)) as view:
        for seconds in (1.0, 1.4, 5.99, 6.0, 6.5):
            view.update(snapshot("masks", seconds))
        view.update(snapshot("count\x1b[31m visits-3", 6.6))
    lines = output.getvalue().splitlines()
    assert [line.split(" s  ")[0].strip() for line in lines] == ["1.0", "6.0", "6.6"]
    assert lines[0].split("  ")[-5:] == [
        "day 4 of 7, 14:00", "masks", "903 of 1,000 phones", "512 contributions (318/s)", "epsilon 1.5 of 4",
    ]  # fmt: skip
    assert "\x1b" not in lines[2]


def test_a_terminal_gets_lines_that_are_gone_at_the_end() -> None:
    output = io.StringIO()
    console = Console(file=output, width=80, force_terminal=True, color_system=None, legacy_windows=False)
    with LiveView(console) as view:
        view.update(snapshot("collecting visits-3", 31.2))
        shown = output.getvalue()
    for words in (
        "collecting visits-3  31 s",
        "day 4 of 7, 14:00",
        "903 of 1,000 present",
        "epsilon 1.5 of 4",
        "318 a second",
    ):
        assert words in shown
    erased = output.getvalue()[len(shown) :]
    assert erased.count("\x1b[1A\x1b[2K") >= 5
    assert erased.count("\x1b[?25h") == 1  # the cursor is back
