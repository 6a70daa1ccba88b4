"""`reticent mask`, run as people run it: from file to file, its streams and its exit codes."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from reticent_client import MarkovChain
from reticent_client.cli.mask_files import busy
from reticent_client.mask.days_file import read_days
from tests.client.commands import Run, days, furnish, runner

PROGRAM = Path(sys.executable).with_name("reticent")

RunProcess = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files."""
    furnish(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program in that folder, in this process."""
    return runner(folder, monkeypatch, capsys)


@pytest.fixture
def run_process(folder: Path) -> RunProcess:
    """Runs the program in that folder, in a process of its own."""

    def run(*arguments: str, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [PROGRAM, "mask", *arguments],
            cwd=folder,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    return run


# A whole walk


def test_from_days_to_an_audit(run: Run, folder: Path) -> None:
    """Learn, compute, filter, explain, audit: each from the files of the one before."""
    run("fit", "days.csv", "-o", "learned.json")
    learned = MarkovChain.load(folder / "learned.json")
    assert learned.to_json() == MarkovChain.fit([day.labels for day in days(20)]).to_json()
    run("policy", "learned.json", "--sensitive", "s", "--delta", "0.1", "--check", "adaptive", "-o", "policy.npz")
    run("filter", "policy.npz", "days.csv", "-o", "released.csv")
    with (folder / "released.csv").open(newline="") as file:
        released = read_days(file, "released.csv", 3)
    real = {day.name: day.labels for day in days(20)}
    assert [day.name for day in released] == list(real)
    for day in released:
        assert all(label in {None, real[day.name][t]} for t, label in enumerate(day.labels))
    assert any(label for day in released for label in day.labels)
    assert "At 00:00 (step 0), when nothing was released before" in run("explain", "policy.npz", "--at", "0").stdout
    assert "breaches" in run("audit", "policy.npz", "days.csv").stdout


# Streams and exit codes


def test_filter_reads_and_writes_streams(run_process: RunProcess, folder: Path) -> None:
    """The report goes to standard error."""
    text = (folder / "days.csv").read_text()
    done = run_process("filter", "private.npz", stdin=text)
    assert done.stdout.startswith("day,step,context\n")
    assert done.stdout.count("\n") == 61
    assert done.stderr.startswith("20 days: released ")
    assert done.stderr.count("\n") == 1
    assert "seeded" not in done.stdout + done.stderr


def test_an_audit_with_breaches(run_process: RunProcess) -> None:
    """Exits with 1, and says where."""
    done = run_process("audit", "leaky.npz", "days.csv", "--delta", "0.1", "--json", code=1)
    facts = json.loads(done.stdout)
    visits = sum(label == "s" for day in days(20) for label in day.labels)
    assert len(facts["breaches"]) == facts["on_model"]["visits"] == visits > 0
    assert facts["on_model"]["largest"]["rise"] == pytest.approx(0.53)
    assert facts["seeded"] is False
    assert done.stderr == ""


def test_a_damaged_policy_is_bad_input(run: Run, folder: Path) -> None:
    """Not a bad answer."""
    whole = (folder / "private.npz").read_bytes()
    (folder / "private.npz").write_bytes(whole[:1000] + b"?" + whole[1001:])
    done = run("audit", "private.npz", "days.csv", code=2)
    assert done.stderr == "reticent: private.npz: the policy is damaged: its digest does not fit its content\n"


def test_too_large_is_refused(run: Run, folder: Path) -> None:
    """Exits with 3: it was asked properly, and cannot be done."""
    MarkovChain.uniform([str(i) for i in range(4)], 6).save(folder / "large.json")
    options = ["--check", "probabilistic", "--search", "exact", "-o", "p.npz"]
    done = run("policy", "large.json", "--sensitive", "1", "--delta", "0.1", *options, code=3)
    assert done.stderr.startswith("reticent: ")
    assert done.stderr.count("\n") == 1


def test_the_optimal_check_without_scipy(folder: Path) -> None:
    """The extra that brings it is named."""
    code = "import sys; sys.modules['scipy'] = None; from reticent.__main__ import main; sys.exit(main())"
    options = ["--sensitive", "s", "--delta", ".1", "--check", "optimal", "-o", "p.npz"]
    command = [sys.executable, "-c", code, "mask", "policy", "chain.json", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'reticent[plan]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_spinner_shows_the_time() -> None:
    """On a terminal; elsewhere there is none."""
    shown, hidden = io.StringIO(), io.StringIO()
    with busy("Computing", Console(file=shown, force_terminal=True, width=80)) as show:
        show("Computing [more]")
    assert "Computing [more]" in shown.getvalue()
    assert "0:00:00" in shown.getvalue()
    with busy("Computing", Console(file=hidden)):
        pass
    assert hidden.getvalue() == ""
