"""Worker processes: every job runs once, errors arrive, and no worker outlives the process that started it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reticent_sim.engine.errors import WorkerDied
from reticent_sim.experiments.workers import run_jobs
from tests.parties.waiting import block_until
from tests.sim.jobs import end, interrupt, refuse, square, square_then_wait
from tests.sim.processes import of_session

RETICENT = (sys.executable, "-m", "reticent")
AT_MOST = 5.0
"""Seconds in which all processes must have ended."""
STARTED = 60.0


@pytest.mark.parametrize("workers", [1, 3])
def test_every_job_runs_once(workers: int) -> None:
    found = dict(run_jobs(square, range(7), workers))
    assert {job: result for job, (_, result) in found.items()} == {number: number**2 for number in range(7)}
    processes = {process for process, _ in found.values()}
    assert 1 <= len(processes) <= workers
    assert os.getpid() not in processes


def test_an_error_of_a_job_is_raised_with_the_workers_traceback() -> None:
    with pytest.raises(ValueError, match="no 5") as caught:
        list(run_jobs(refuse, [5], 2))
    assert "in refuse" in caught.value.__notes__[0]


def test_a_killed_worker_is_an_error() -> None:
    with pytest.raises(WorkerDied, match=r"^worker 0 ended with exit code 3$"):
        list(run_jobs(end, [3], 1))


def test_workers_are_killed_when_their_results_are_no_longer_read() -> None:
    results = run_jobs(square_then_wait, [1, 2, 3], 2)
    next(results)
    begun = time.monotonic()
    results.close()  # type: ignore[attr-defined]  # it is a generator
    assert time.monotonic() - begun < AT_MOST


def test_an_interrupt_of_the_terminal_does_not_reach_the_workers() -> None:
    assert dict(run_jobs(interrupt, [1, 2], 2)) == {1: True, 2: True}


@contextmanager
def experiment(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The real command, in a process group of its own, whose two workers have begun."""
    process = subprocess.Popen(
        [*RETICENT, "experiment", "maskit-checks", "--workers", "2", "--output", folder],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        block_until(lambda: len(of_session(process.pid)) >= 3, within=STARTED)
        yield process
    finally:
        for each in of_session(process.pid):
            os.kill(each, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.5, 4.0])
def test_one_interrupt_ends_an_experiment_and_its_workers(tmp_path: Path, delay: float) -> None:
    """While the workers start, and while they compute."""
    with experiment(tmp_path) as process:
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(AT_MOST) == 130
        block_until(lambda: not of_session(process.pid), within=AT_MOST)
        out, err = process.communicate()
        assert (out, err.removeprefix("reticent: stopped\n")) == ("", "")  # no traceback of a worker
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 4.0])
def test_workers_end_when_the_experiment_is_killed(tmp_path: Path, delay: float) -> None:
    with experiment(tmp_path) as process:
        time.sleep(delay)
        process.kill()
        process.wait()
        block_until(lambda: not of_session(process.pid), within=AT_MOST)
