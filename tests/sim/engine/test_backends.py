"""The workers of a simulation: they keep their state, errors arrive, and no worker outlives a run."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from reticent.errors import ExitCode, MissingExtra
from reticent_sim.engine.addresses import free_address
from reticent_sim.engine.backends import Backend, LocalBackend, backend_of, ray_cluster
from reticent_sim.engine.backends.worker import ONE_THREAD
from reticent_sim.engine.errors import CommandFailed, LaunchError, WorkerDied
from tests.parties.waiting import block_until
from tests.sim.engine.sums import Sum, started
from tests.sim.processes import of_session

AT_MOST = 20.0
"""Seconds in which all processes must have ended."""


ENGINES = ["local", pytest.param("ray", marks=pytest.mark.slow)]


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
    sentence = f"^worker 0 {how if isinstance(backend, LocalBackend) else 'died on the Ray cluster'}"
    [total] = backend.call({1: 0}).values()
    with pytest.raises(WorkerDied, match=sentence) as caught:
        backend.call({0: order, 1: 5})
    assert (caught.value.number, caught.value.replies) == (0, {1: total + 5})
    assert caught.value.exit_code is ExitCode.SYSTEM
    with pytest.raises(WorkerDied, match=sentence):
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
        backend.call({0: "raise_unpicklable"})
    assert "in __call__" in caught.value.__notes__[0]
    with pytest.raises((AttributeError, pickle.PicklingError)):
        backend.call({0: "reply_unpicklable"})
    assert backend.call({0: "process"})[0] != os.getpid()


def test_threads_take_turns(backend: Backend) -> None:
    with ThreadPoolExecutor(4) as threads:
        contents = [f"{number}".encode() for number in range(200)]
        replies = threads.map(lambda content: backend.call({1: content, 0: content}), contents)
    assert list(replies) == [{0: content, 1: content} for content in contents]


def test_an_error_of_a_factory_is_raised() -> None:
    with pytest.raises(ValueError, match="no -1"), started("local", 1, -1):
        pass


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="the engine must be one of local, ray"):
        backend_of("cloud")  # type: ignore[arg-type]  # it is what is tested


def test_an_address_is_for_ray_and_has_a_port() -> None:
    with pytest.raises(ValueError, match="only the engine ray has an address"):
        backend_of("local", "127.0.0.1:6379")
    with pytest.raises(ValueError, match="an address is host:port"):
        backend_of("ray", "127.0.0.1")


def test_without_ray_the_engine_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"^the engine ray needs ray: pip install 'reticent\[cluster\]'$"):
        backend_of("ray")


@pytest.mark.slow
@pytest.mark.parametrize("running", ["ray"], indirect=True)
def test_only_this_machine_and_this_run_reach_a_local_cluster(backend: Backend) -> None:
    assert backend.call({0: "cluster"}) == {0: ["127.0.0.1", "token", "0"]}


@pytest.mark.slow
def test_workers_run_on_an_existing_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its errors come first: it is not there, or too small."""
    address = free_address()
    for name, value in ray_cluster._environment(local=True).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match=f"^no Ray cluster answers at {address}"), started("ray", 1, address=address):
        pass
    monkeypatch.setenv("RAY_ADDRESS", address)
    with existing_cluster(address):
        for total in (1, 2):  # the cluster outlives the first run
            with started("ray", total) as backend:
                assert backend.call({0: 5}) == {0: total + 5}
                assert backend.call({0: "threads"}) == {0: ["1"] * len(ONE_THREAD)}
        with pytest.raises(LaunchError, match="has 1 CPUs: got 2 workers"), started("ray", 1, 2, address=address):
            pass


@pytest.mark.parametrize(("other", "refused"), [("10.0.0.2", True), ("10.0.0.1", False)])
def test_a_cluster_of_several_machines_is_refused(other: str, refused: bool) -> None:
    nodes = [{"NodeID": "a", "Alive": True, "NodeManagerAddress": "10.0.0.1"}]
    nodes += [{"NodeID": "b", "Alive": True, "NodeManagerAddress": other}]
    nodes += [{"NodeID": "c", "Alive": False, "NodeManagerAddress": "10.0.0.3"}]
    driver = object.__new__(ray_cluster.RayDriver)
    driver._ray = SimpleNamespace(
        init=lambda **_: None,
        cluster_resources=lambda: {"CPU": 8},
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "a"),
        nodes=lambda: nodes,
    )
    sentence = r"^the Ray cluster at auto must be of this machine alone, .*: got 10.0.0.2$"
    with pytest.raises(LaunchError, match=sentence) if refused else nullcontext():
        driver._connect("auto", {}, 2)


@contextmanager
def existing_cluster(address: str) -> Iterator[None]:
    """A cluster of one processor, started by Ray's own command."""
    host, _, port = address.rpartition(":")
    with tempfile.TemporaryDirectory(dir=ray_cluster._SHORT, ignore_cleanup_errors=True) as folder:
        command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--num-cpus", "1"]
        options = ["--node-ip-address", host, "--port", port, "--include-dashboard", "false", "--temp-dir", folder]
        options += ["--min-worker-port", "0", "--max-worker-port", "0"]  # the range by default may contain the address
        head = subprocess.Popen(
            [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            block_until(lambda: sorted(Path(folder).glob("session_latest/sockets/raylet*")))
            yield
            assert head.poll() is None
        finally:
            head.terminate()
            head.wait(AT_MOST)
            block_until(lambda: not of_session(head.pid), within=AT_MOST)


PARENT = """
from tests.sim.engine.sums import started
with started({name!r}, 1, 2) as backend:
    print("started", flush=True)
    backend.call({{0: "wait", 1: "wait"}})
"""


@pytest.mark.parametrize("order", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("name", ENGINES)
def test_nothing_outlives_a_process_that_is_interrupted_or_killed(name: str, order: signal.Signals) -> None:
    """The interrupt goes to all processes, as that of a terminal does."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(name=name)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == "started\n"
        assert len(of_session(parent.pid)) >= 3
        assert name == "local" or list(Path(ray_cluster._SHORT).glob(f"reticent-{parent.pid}-*"))
        (os.killpg if order is signal.SIGINT else os.kill)(parent.pid, order)
        assert parent.wait(AT_MOST) == -order
        block_until(lambda: not of_session(parent.pid), within=AT_MOST)
        assert parent.communicate()[1].count("Traceback") == (order is signal.SIGINT)  # none of a worker
    finally:
        for each in of_session(parent.pid):
            os.kill(each, signal.SIGKILL)
        parent.communicate()
    assert list(Path(ray_cluster._SHORT).glob(f"reticent-{parent.pid}-*")) == []
