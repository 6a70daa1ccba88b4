"""The workers of a simulation: they keep their state, errors arrive, and no worker outlives a run."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from reticent.errors import ExitCode
from reticent_sim.engine.backends import Backend, backend_of
from reticent_sim.engine.backends.worker import ONE_THREAD
from reticent_sim.engine.errors import CommandFailed, WorkerDied
from tests.parties.waiting import block_until
from tests.sim.engine.sums import Sum, started
from tests.sim.processes import of_session

AT_MOST = 5.0
"""Seconds in which all processes must have ended."""


ENGINES = ["local"]


@pytest.fixture(scope="module", params=ENGINES)
def running(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with started(request.param, 10, 20) as backend:
        yield backend


@pytest.fixture
def backend(running: Backend) -> Backend:
    """Two workers. An earlier test may have let them die."""
    running.start(Sum, [10, 20])
    return running


def test_workers_keep_their_state_and_reply_by_number(backend: Backend) -> None:
    before = backend.call({0: 0, 1: 0})
    assert backend.call({1: 5, 0: 7}) == {0: before[0] + 7, 1: before[1] + 5}
    replies = backend.call({1: 1, 0: 1})
    assert list(replies.items()) == [(0, before[0] + 8), (1, before[1] + 6)]
    assert backend.call({1: 0}) == {1: before[1] + 6}
    assert backend.call({}) == {}


def test_workers_are_processes_with_one_thread_for_each_library(backend: Backend) -> None:
    processes = backend.call({0: "process", 1: "process"})
    assert len({os.getpid(), *processes.values()}) == 3
    assert backend.call({0: "threads"}) == {0: ["1"] * len(ONE_THREAD)}


@pytest.mark.parametrize(("order", "how"), [("exit", "ended with exit code 3"), ("kill", "was killed by SIGKILL")])
def test_a_worker_that_dies_is_one_sentence_and_starts_again(backend: Backend, order: str, how: str) -> None:
    [total] = backend.call({1: 0}).values()
    with pytest.raises(WorkerDied, match=f"^worker 0 {how}") as caught:
        backend.call({0: order, 1: 5})
    assert (caught.value.number, caught.value.replies) == (0, {1: total + 5})
    assert caught.value.exit_code is ExitCode.SYSTEM
    with pytest.raises(WorkerDied, match=f"^worker 0 {how}"):
        backend.call({0: 1})
    backend.start(Sum, [100, 200])
    assert backend.call({0: 1, 1: 1}) == {0: 101, 1: total + 6}


def test_an_error_of_a_handler_is_raised_when_all_have_replied(backend: Backend) -> None:
    before = backend.call({0: 0, 1: 0})
    with pytest.raises(CommandFailed, match=f"no {before[0]}") as caught:
        backend.call({1: 5, 0: "refuse"})
    assert "in __call__" in caught.value.__notes__[0]
    assert backend.call({0: 1, 1: 1}) == {0: before[0] + 1, 1: before[1] + 6}


def test_what_cannot_be_pickled_is_an_error_of_one_call(backend: Backend) -> None:
    with pytest.raises(RuntimeError, match=r"^Unpicklable: 7 lines\n") as caught:
        backend.call({0: "an error that cannot be pickled"})
    assert "in __call__" in caught.value.__notes__[0]
    with pytest.raises((AttributeError, pickle.PicklingError)):
        backend.call({0: "a reply that cannot be pickled"})
    assert backend.call({0: "process"})[0] != os.getpid()


def test_an_error_of_a_factory_is_raised() -> None:
    with pytest.raises(ValueError, match="no -1"), started("local", 1, -1):
        pass


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="the engine must be one of local"):
        backend_of("cloud")  # type: ignore[arg-type]  # it is what is tested


PARENT = """
from tests.sim.engine.sums import started
with started({name!r}, 1, 2) as backend:
    print("started", flush=True)
    backend.call({{0: "wait", 1: "wait"}})
"""


@pytest.mark.parametrize(("order", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGKILL, -signal.SIGKILL)])
def test_no_worker_outlives_a_process_that_is_interrupted_or_killed(order: signal.Signals, status: int) -> None:
    """The interrupt goes to all processes, as that of a terminal does."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(name="local")],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == "started\n"
        assert len(of_session(parent.pid)) == 3
        (os.killpg if order is signal.SIGINT else os.kill)(parent.pid, order)
        assert parent.wait(AT_MOST) == status
        block_until(lambda: not of_session(parent.pid), within=AT_MOST)
        assert parent.communicate()[1].count("Traceback") == (order is signal.SIGINT)  # none of a worker
    finally:
        for each in of_session(parent.pid):
            os.kill(each, signal.SIGKILL)
        parent.communicate()
