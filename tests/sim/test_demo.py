"""`reticent demo`, small: its screen, its files and its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reticent.console import program
from reticent_sim.demo import SCENARIO

PROGRAM = Path(sys.executable).with_name("reticent")
FILES = {"report.html", "run.json", "days.csv", "counts.csv", "masks.csv", "faults.csv", "malice.csv"}


@pytest.mark.slow
def test_the_demo_tells_its_whole_story_on_one_screen(tmp_path: Path) -> None:
    """Real servers and phones; the folder has the files of a former demo, and another one."""
    folder = tmp_path / "deep" / "demo"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("former", encoding="utf-8")
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    run = subprocess.run(
        [PROGRAM, "demo", "--phones", "150", "--days", "2", "--output", folder],
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0].startswith("150 phones, 2 days")
    assert len(lines) <= 26
    topics = [line.split()[0] for line in lines if line[:1].strip()]
    for topic in ("adversary", "mask", "contexts", "ads", "counts", "phones", "cost", "budget", "malice"):
        assert topic in topics
    assert lines[-1] == f"report: {folder / 'report.html'}"
    assert {path.name for path in folder.iterdir()} == {*FILES, "notes.txt"}
    assert (folder / "notes.txt").read_text() == "mine"
    data = json.loads((folder / "run.json").read_text())
    assert data["problems"] == []
    assert sorted(each["kind"] for each in data["malice"]) == sorted(
        kind for kind, number in SCENARIO.attacks.items() for _ in range(number)
    )
    noticed = {each["kind"] for each in data["malice"] if each["noticed"]}
    assert {"garbage", "replay", "wild"} <= noticed
    assert any(each["counters"] for each in data["counts"])
    assert all(each["exact"] is not False for each in data["counts"])
    assert {each["check"] for each in data["masks"]} == {"optimal", "hybrid", "none"}


@pytest.mark.parametrize("option", [["--phones", "1"], ["--days", "0"], ["--seed", "often"], ["--output", os.devnull]])
def test_bad_arguments_are_answered_with_one_sentence(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["demo", *option]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert option[-1] in err
