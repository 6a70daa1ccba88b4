"""A simulation gives the same trace for any number of workers, and says when a worker dies or is not deterministic."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reticent.errors import ExitCode
from reticent_sim.engine.backends import BackendName
from reticent_sim.engine.faults import Fault, FaultSchedule
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.simulation import TRACE_FILE, Run, simulate
from reticent_sim.engine.trace import first_difference
from tests.parties.waiting import block_until
from tests.sim.processes import of_session

pytestmark = pytest.mark.slow

AT_MOST = 240.0  # seconds, on a busy machine

FULL = Scenario(phones=24, days=2, routines=3, counters=4)
"""Masks, ads, learned rates and a count, with absent phones."""


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return simulate(FULL, tmp_path_factory.mktemp("one") / "run", workers=1)


CRASH = FaultSchedule(
    (
        Fault(day=0, step=10, kind="crash", target="worker 1"),
        Fault(day=1, step=23, kind="crash", target="worker 1", phase=1),  # in the middle of the first round
    )
)


STEP_CALLS = 4
"""The most calls of the mean phone in a step or a round."""


@pytest.mark.parametrize(
    ("engine", "workers", "faults"),
    [("local", 2, None), ("local", 3, CRASH), ("ray", 2, CRASH)],
    ids=["two", "three-of-which-one-crashes", "two-on-ray-of-which-one-crashes"],
)
def test_the_trace_is_the_same_for_any_workers(
    engine: BackendName, workers: int, faults: FaultSchedule | None, one_worker: Run, tmp_path: Path
) -> None:
    run = simulate(FULL, tmp_path / "run", engine=engine, workers=workers, faults=faults)
    assert one_worker.folder is not None
    assert first_difference(one_worker.folder / TRACE_FILE, tmp_path / "run" / TRACE_FILE) is None
    assert results_of(run) == results_of(one_worker)
    assert run.problems == []
    assert [each["outcome"] for each in run.data["faults"]] == ["killed, works again"] * (0 if faults is None else 2)
    assert all(each["exact"] for each in run.counts)
    cost, of_one = run.data["cost"], one_worker.data["cost"]
    assert cost["calls"] >= of_one["calls"] - STEP_CALLS  # a crash loses what was not reported


def results_of(run: Run) -> dict[str, Any]:
    """All that a run computes. Real time and memory differ."""
    counts = [{name: value for name, value in each.items() if name != "seconds"} for each in run.counts]
    return {name: run.data[name] for name in ("trace", "days", "masks", "rates", "budget")} | {"counts": counts}


COUNT = ["--phones", "24", "--routines", "3", "--counters", "4", "--check", "none", "--no-ads"]


@contextmanager
def simulated(*options: object) -> Iterator[subprocess.Popen[str]]:
    """The real command, in a session of its own."""
    command = [sys.executable, "-m", "reticent", "simulate", *COUNT, *map(str, options)]
    run = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield run
    finally:
        for each in of_session(run.pid):
            os.kill(each, signal.SIGKILL)
        run.communicate()


@pytest.mark.parametrize(
    ("engine", "program", "how"),
    [("local", "import serve", "was killed by SIGKILL"), ("ray", "ray::Worker", "died on the Ray cluster")],
)
def test_a_worker_that_dies_ends_the_simulation_with_one_sentence(engine: str, program: str, how: str) -> None:
    """The servers end as well."""
    with simulated("--days", 50, "--workers", 2, "--engine", engine) as run:
        assert run.stderr is not None
        assert any("masks and ads" in line for line in run.stderr)
        os.kill(of_session(run.pid, program)[-1], signal.SIGKILL)
        out, err = run.communicate(timeout=AT_MOST)
        last = err.splitlines()[-1]
        assert re.fullmatch(rf"reticent: worker [01] {how}: use fewer --workers if memory was short", last)
        assert (run.returncode, out) == (ExitCode.SYSTEM, "")
        block_until(lambda: not of_session(run.pid), within=AT_MOST)


@pytest.mark.parametrize("phase", ["start the servers", "masks and ads"])
def test_one_interrupt_ends_a_simulation_and_leaves_nothing(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt goes to all processes, as that of a terminal does."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with simulated("--days", 50, "--workers", 2) as run:
        assert run.stderr is not None
        assert any(phase in line for line in run.stderr)
        os.killpg(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=AT_MOST)
        assert (run.returncode, out, err.splitlines()[-1]) == (ExitCode.STOPPED, "", "reticent: stopped")
        assert "Traceback" not in err
        block_until(lambda: not of_session(run.pid), within=AT_MOST)
    assert list(tmp_path.iterdir()) == []


def test_two_simulations_agree_and_are_printed_as_json() -> None:
    with simulated("--days", 1, "--workers", 2, "--twice", "--json") as run:
        out, err = run.communicate(timeout=AT_MOST)
    assert run.returncode == ExitCode.DONE, err
    assert "differ" not in err
    data = json.loads(out)
    assert data["problems"] == []
    assert [count["exact"] for count in data["counts"]] == [True]
    assert data["trace"]
    assert {"cpu_ms", "simulation_cpu_ms", "calls"} <= data["cost"].keys()
    assert "coordinator" in data["cost"]["memory_mb"]


UNDETERMINED = {
    "the wall clock": "time.time_ns() // 1000 % 4 == 0",
    "an unordered set": "phone in [int(each) for each in {str(number) for number in range(24)}][:4]",
}
PATCH = """
import sys, time
if any("import serve" in each for each in sys.orig_argv):
    from reticent_sim.engine.scenario import Scenario
    is_absent = Scenario.is_absent
    Scenario.is_absent = lambda scenario, phone, query: is_absent(scenario, phone, query) or (query and {absent})
"""


@pytest.mark.parametrize("source", UNDETERMINED)
def test_two_simulations_find_a_decision_that_nothing_determines(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a phone is absent. Python imports `sitecustomize` when it starts, also in a worker."""
    (tmp_path / "sitecustomize.py").write_text(PATCH.replace("{absent}", UNDETERMINED[source]))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with simulated("--days", 1, "--workers", 1, "--twice") as run:
        err = run.communicate(timeout=AT_MOST)[1]
    assert run.returncode == ExitCode.BAD_ANSWER
    [_, first, second] = err.splitlines()[-3:]
    assert "the traces differ, first in these events:" in err
    assert first != second
    assert re.search("contributed to counters-0|released counters-0", first + second)
