"""`reticent experiment`, small: its files agree, follow from the seed and from nothing else, and errors are clear."""

import csv
import json
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from reticent.console import program
from reticent_sim.cli import MASKIT
from reticent_sim.experiments.runner import Runner, Settings
from reticent_sim.experiments.subjects import from_traces
from reticent_sim.experiments.systems import (
    HYBRID,
    LEAKY,
    PROBABILISTIC,
    SIMULATABLE,
    SYSTEMS,
    Trial,
)
from reticent_sim.world import resident, write_traces

PROGRAM = Path(sys.executable).with_name("reticent")
PEOPLE = 6
SMALL = ["--quick", "--people", str(PEOPLE)]
NAMES = [experiment.name for experiment in MASKIT]
TIMES = "maskit-times"


@dataclass(frozen=True)
class Run:
    folder: Path
    out: str

    def result(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads((self.folder / f"{name}.json").read_text()))

    def rows(self, name: str) -> list[dict[str, str]]:
        with (self.folder / f"{name}.csv").open(newline="") as file:
            return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All experiments by the real command, on six people."""
    folder = tmp_path_factory.mktemp("experiments")
    done = subprocess.run(
        [PROGRAM, "experiment", "maskit", *SMALL, "--output", folder / "deep"],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return Run(folder / "deep", done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_writes_what_it_found(run: Run, name: str) -> None:
    result = run.result(name)
    settings = result["settings"]
    assert (settings["seed"], settings["quick"], settings["seeded"], settings["steps"]) == (1, True, True, 12)
    assert settings["people"] > 0
    assert settings["judged_days"] > settings["judged_days_off_model"] > 0
    assert settings["days"]["least"] >= 30
    assert result["rows"]
    for finding in result["findings"]:
        assert finding["verdict"] in {"holds", "does not hold", "undecided"}
        assert all(finding[part] for part in ("name", "claim", "ours", "rule"))
    head = (run.folder / f"{name}.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:24])[0] == 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_csv_holds_the_rows_of_the_json(run: Run, name: str) -> None:
    result = run.result(name)
    expected = []
    for row in result["people"] or result["rows"]:
        flat: dict[str, Any] = {}
        for column, value in row.items():
            if isinstance(value, dict):
                flat |= {column: value["value"], f"{column}_low": value["low"], f"{column}_high": value["high"]}
                flat[f"{column}_n"] = value["n"]
            else:
                flat[column] = value
        expected.append({column: "" if value is None else str(value) for column, value in flat.items()})
    columns = dict.fromkeys(column for row in expected for column in row)
    assert run.rows(name) == [dict.fromkeys(columns, "") | row for row in expected]


def estimates(data: object) -> list[dict[str, Any]]:
    """Every number with an interval in some data."""
    if isinstance(data, dict):
        if data.keys() == {"value", "low", "high", "n"}:
            return [data]
        return [found for value in data.values() for found in estimates(value)]
    return [found for value in data for found in estimates(value)] if isinstance(data, list) else []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_numbers_come_with_intervals_and_with_how_many_people_they_are_of(run: Run, name: str) -> None:
    found = estimates(run.result(name)["rows"])
    assert found
    for each in found:
        assert 1 <= each["n"] <= PEOPLE
        if each["n"] > 1:
            assert each["low"] is None or each["low"] <= each["value"] <= each["high"]
    assert any(each["low"] is not None and each["low"] < each["value"] < each["high"] for each in found)


@pytest.mark.slow
def test_the_parts_of_figure_3_5_are_all_states(run: Run) -> None:
    parts = ("released_other", "released_sensitive", "suppressed_sensitive", "suppressed_other")
    rows = {row["system"]: row for row in run.result("maskit-checks")["rows"]}
    assert list(rows) == list(SYSTEMS)
    for row in rows.values():
        assert sum(row[part]["value"] for part in parts) == pytest.approx(1, abs=1e-5)
        assert sum(row[part]["value"] for part in parts[:2]) == pytest.approx(row["utility"]["value"], abs=1e-5)
        assert 0 <= row["released_gaps"]["value"] <= row["gaps"]["value"]
        assert row["released_gaps"]["value"] <= row["released_other"]["value"]
        assert row["n"] == row["complete"] == PEOPLE
    leaky = rows.pop(LEAKY)
    assert leaky["released_gaps"]["value"] > 0
    assert leaky["breaches"] == leaky["breaches_on_model"] + leaky["breaches_off_model"] > 0
    share = leaky["breaches_of_sensitive_states"]["value"]
    assert share == pytest.approx(leaky["breaches"] / leaky["sensitive_states"], abs=1e-5)
    for row in rows.values():
        assert row["breaches_on_model"] == 0
        assert row["largest_gain_on_model"] <= 0.1 + 1e-6


@pytest.mark.slow
def test_the_hybrid_of_figure_3_6_is_the_check_that_it_chose(run: Run) -> None:
    people = run.result("maskit-users")["people"]
    assert len(people) == PEOPLE
    for row in people:
        assert row[HYBRID] == row[row["chosen"]]
        assert row["hybrid_expected"] == max(row["simulatable_expected"], row["probabilistic_expected"])
        assert row["right"] == (row[HYBRID] == max(row[SIMULATABLE], row[PROBABILISTIC]))
    picked = next(row for row in run.result("maskit-users")["rows"] if row["measure"].startswith("hybrid picks"))
    assert picked["share"]["value"] == pytest.approx(sum(row["right"] for row in people) / PEOPLE, abs=1e-5)


@pytest.mark.slow
def test_experiments_share_their_answers(run: Run) -> None:
    """MaskSensitive with one context is the same in two figures, for the same people."""
    over_delta = {
        row["utility"]["value"]
        for row in run.result("maskit-delta")["rows"]
        if row["system"] == LEAKY and row["series"].startswith("one")
    }
    assert len(over_delta) == 1


@pytest.mark.slow
def test_the_terminal_shows_every_finding(run: Run) -> None:
    shown = " ".join(run.out.split())
    for name in NAMES:
        for finding in run.result(name)["findings"]:
            assert " ".join(finding["claim"].split()) in shown
    assert run.out.count("this is a simulation and protects nobody") == len(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_seed_finds_the_same_with_any_number_of_workers(
    run: Run, workers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["experiment", "maskit-checks", *SMALL, "--output", str(tmp_path), "--workers", str(workers), "--json"]
    assert program.main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == run.result("maskit-checks")
    for ending in ("csv", "json", "png"):
        file = f"maskit-checks.{ending}"
        assert (tmp_path / file).read_bytes() == (run.folder / file).read_bytes()


@pytest.mark.slow
def test_another_seed_finds_something_else(run: Run, tmp_path: Path) -> None:
    arguments = ["experiment", "maskit-checks", *SMALL, "--output", str(tmp_path), "--seed", "2"]
    assert program.main(arguments) == 0
    assert Run(tmp_path, "").result("maskit-checks")["rows"] != run.result("maskit-checks")["rows"]


@pytest.mark.slow
def test_few_people_leave_a_finding_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever their numbers are: two people give up 40 % (-208 to 90)."""
    arguments = ["experiment", "maskit-checks", "--quick", "--people", "2", "--output", str(tmp_path)]
    assert program.main(arguments) == 0
    assert "undecided: too few people  The hybrid almost matches MaskSensitive." in capsys.readouterr().out
    verdicts = {each["name"]: each["verdict"] for each in Run(tmp_path, "").result("maskit-checks")["findings"]}
    assert set(verdicts.values()) == {"undecided"}  # no breach of two people is no counterexample, and proves nothing


def test_what_was_answered_is_not_asked_again() -> None:
    runner = Runner(Settings(people=2, quick=True, workers=1))
    counted: list[int] = []
    runner.progress = lambda _done, total: counted.append(total)
    subject = runner.subjects[0]
    trials = [Trial(subject.name, system, (subject.home,), 0.1) for system in (HYBRID, SIMULATABLE, HYBRID)]
    first = runner.run([subject], trials)
    assert counted == [2]  # of the hybrid its two parts, one of which was asked for anyway
    assert runner.run([subject], trials) == first
    assert counted == [2]


# Traces


@pytest.mark.slow
def test_traces_of_the_population_give_the_same_result(tmp_path: Path) -> None:
    """What is read from a file is what was made up, but for the name of the source."""
    write_traces(tmp_path / "traces.csv", [resident(1, number) for number in range(2)])
    common = ["experiment", "maskit-checks", "--people", "2", "--workers", "1"]
    assert program.main([*common, "--output", str(tmp_path / "made")]) == 0
    read = ["--traces", str(tmp_path / "traces.csv"), "--output", str(tmp_path / "read")]
    assert program.main([*common, *read]) == 0
    made, found = (Run(tmp_path / folder, "").result("maskit-checks") for folder in ("made", "read"))
    assert (made["settings"].pop("source"), found["settings"].pop("source")) == ("made-up population", "traces.csv")
    for settings, source in ((made["settings"], "made-up population"), (found["settings"], "traces.csv")):
        assert settings["sample"] == f"2 people ({source}), 24 steps a day"
        settings["summary"] = settings["summary"].removeprefix(settings.pop("sample"))
    assert made == found


def test_the_population_is_written_for_other_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "traces.csv"
    assert program.main(["experiment", "population", "-o", str(path), "--people", "6", "--activities"]) == 0
    assert "2 people" in capsys.readouterr().out
    assert [subject.name for subject in from_traces(path, steps=24)] == ["p01", "p05"]


@pytest.mark.parametrize(
    ("traces", "arguments", "expected_text"),
    [
        ("user,time\n", ["maskit-checks"], "'context'"),
        ("user,time,context\nada,2027-01-04T00:00,home\n", ["maskit-checks"], "nobody has 30 days"),
        (None, ["maskit-checks"], "lost.csv: No such file or directory"),
    ],
)
def test_traces_that_will_not_do_are_answered_with_one_sentence(
    traces: str | None, arguments: list[str], expected_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lost.csv"
    if traces is not None:
        path.write_text(traces)
    output = tmp_path / "experiments"
    assert program.main(["experiment", *arguments, "--traces", str(path), "--output", str(output)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert expected_text in err
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "expected_text"),
    [
        (["maskit-checks", "--people", "0"], "--people"),
        (["maskit-checks", "--workers", "0"], "--workers"),
        (["maskit-checks", "--zone", "UTC"], "needs --traces"),
        (["maskit-contexts", "--quick", "--people", "1"], "needs two people with 15 to 20 contexts"),
        (["maskit-activities", "--quick", "--people", "1"], "use more people"),
        (["population", "--people", "1", "--activities", "-o", "traces.csv"], "use more than 1"),
        (["maskit-figures"], "reticent experiment --help"),
        (["month", "--people", "0"], "--people"),
        (["month", "--days", "0"], "--days"),
        (["month", "--seed", "often"], "--seed"),
        (["month", "--people", "1", "--days", "1", "--delta", "1.5"], "delta must lie in (0, 1): got 1.5"),
        (["month", "--output", os.devnull], os.devnull),
        (["ads-private-rates", "--data", "."], "leave out --data"),
        (["ads-min-ctr", "--data", ".", "--people", "5"], "leave it out with --data"),
        (["ads-surface", "--people", "0"], "--people"),
    ],
)
def test_bad_arguments_are_answered_with_one_sentence(
    arguments: list[str],
    expected_text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program.main(["experiment", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert expected_text in err
    assert not list(tmp_path.iterdir())
