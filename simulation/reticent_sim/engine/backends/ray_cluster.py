"""Workers as actors of a Ray cluster: of an existing one, or of one on this machine that lives as long as the run."""

from __future__ import annotations

import atexit
import importlib.util
import os
import pickle
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reticent.address import check_address
from reticent.errors import MissingExtra
from reticent_sim.engine.backends.backend import Factory, replies_or_error
from reticent_sim.engine.backends.local import LocalBackend
from reticent_sim.engine.backends.worker import ONE_THREAD, Worker, outcome_of
from reticent_sim.engine.errors import LaunchError, WorkerDied

__all__ = ["RayBackend", "RayDriver"]

_OBJECT_STORE = 100 * 2**20
"""Bytes of shared memory, for requests and replies of more than 100 kB."""
_CONNECT_SECONDS = 5.0
_REMOVALS, _PAUSE = 20, 0.1  # the attempts to delete a folder, and the seconds in between
_SHORT = "/tmp"  # noqa: S108  # the path of a socket has at most 103 characters


class RayBackend:
    """A `Backend` whose workers are actors of a Ray cluster.

    All nodes of the cluster run on this machine: the servers of a simulation listen on its loopback address, and
    workers share its files. Ray's driver runs in a process of its own, because it prints, forks and handles signals.

    Args:
        address: Of a cluster: "HOST:PORT", or "auto" for one that runs on this machine. By default, a cluster of this
            machine starts and stops with the workers, at addresses that no other machine reaches.

    Raises:
        MissingExtra: Ray is not installed.
    """

    def __init__(self, address: str | None = None) -> None:
        if importlib.util.find_spec("ray") is None:
            raise MissingExtra("the engine ray", "cluster", "ray")
        if address not in {None, "auto"}:
            check_address(address)
        self._address = address
        self._id = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._driver = LocalBackend(_environment(local=address is None), quiet=True)
        self._turn = threading.RLock()

    def start(self, factory: Factory, setups: Sequence[Any]) -> list[int]:
        """Start one worker for each setup, or those that are known to have died; returns their numbers."""
        paths = {name: os.environ[name] for name in ["PYTHONPATH"] if name in os.environ}
        with self._turn:
            self._driver.start(RayDriver, [(self._address, paths, len(setups), self._id)])
            missing: list[int] = self._ask(len(setups))
            self.call({number: (factory, setups[number]) for number in missing})
            return missing

    def call(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        """The replies of workers to their requests, by worker number."""
        with self._turn:
            replies = self._ask({number: pickle.dumps(request) for number, request in requests.items()})
        return replies_or_error({number: _outcome(number, reply) for number, reply in replies.items()})

    def stop(self) -> None:
        """End all workers at once, whatever they are doing."""
        for driver in self._driver.workers.values():
            driver.terminate()
        self._driver.stop()
        for folder in Path(_SHORT).glob(f"reticent-{self._id}-*"):  # of a driver that was too slow, and killed
            _remove(folder)

    def _ask(self, request: int | dict[int, bytes]) -> Any:
        try:
            return self._driver.call({0: request})[0]
        except WorkerDied as error:
            raise LaunchError(f"the driver of Ray {error.how}") from None


class RayDriver:
    """Run by the driver's process: connects to a cluster, and hands on requests and replies."""

    def __init__(self, setup: tuple[str | None, dict[str, str], int, str]) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # until Ray's own handler, which does the same
        address, paths, count, name = setup
        folder = tempfile.mkdtemp(prefix=f"reticent-{name}-", dir=_SHORT)
        atexit.register(_remove, folder)  # after Ray, which registers itself later
        self._ray: Any = importlib.import_module("ray")  # in an extra
        self._actors: dict[int, Any] = {}
        self._dead: set[int] = set()
        if address is None:
            self._start_cluster(count, folder)
        else:
            self._connect(address, paths, count)

    def _start_cluster(self, processors: int, folder: str) -> None:
        self._ray.init(
            address="local",
            num_cpus=processors,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE,
            _temp_dir=folder,
            _system_config={"memory_monitor_refresh_ms": 0},
        )

    def _connect(self, address: str, paths: dict[str, str], count: int) -> None:
        try:
            if address != "auto":  # Ray would wait for minutes
                host, _, port = address.rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
            self._ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": ONE_THREAD | paths})
        except OSError as error:
            raise LaunchError(f"no Ray cluster answers at {address}") from error
        if (processors := self._ray.cluster_resources().get("CPU", 0)) < count:
            raise LaunchError(f"the Ray cluster at {address} has {processors:g} CPUs: got {count} workers")
        own = self._ray.get_runtime_context().get_node_id()
        addresses = {each["NodeID"]: each["NodeManagerAddress"] for each in self._ray.nodes() if each["Alive"]}
        if others := sorted({each for each in addresses.values() if each != addresses[own]}):
            raise LaunchError(
                f"the Ray cluster at {address} must be of this machine alone, where the servers listen: "
                f"got {', '.join(others)}"
            )

    def __call__(self, request: int | Mapping[int, bytes]) -> Any:
        """Start missing workers up to a number, and return their numbers; or pass on requests."""
        if isinstance(request, int):
            return self._start(request)
        pending = {number: self._actors[number].reply.remote(content) for number, content in request.items()}
        return {number: self._reply(number, reply) for number, reply in pending.items()}

    def _start(self, count: int) -> list[int]:
        actor = self._ray.remote(num_cpus=1)(Worker)
        missing = [number for number in range(count) if number not in self._actors or number in self._dead]
        self._actors.update({number: actor.remote() for number in missing})
        self._dead.clear()
        return missing

    def _reply(self, number: int, reply: Any) -> bytes | None:
        """The content of a reply, or None if the worker died."""
        try:
            content: bytes = self._ray.get(reply)
        except self._ray.exceptions.RayActorError:
            self._dead.add(number)
            return None
        return content


def _remove(folder: str | Path) -> None:
    """Delete a folder of Ray, whose processes may still write to it for a moment."""
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not Path(folder).exists():
            return
        time.sleep(_PAUSE)


def _outcome(number: int, reply: bytes | None) -> tuple[Any, Exception | None]:
    if reply is None:
        return None, WorkerDied(number, "died on the Ray cluster: use fewer --workers if memory was short")
    return outcome_of(reply)


def _environment(*, local: bool) -> dict[str, str]:
    """Ray's settings: no statistics of use are sent. Only this machine and this run reach a local cluster."""
    settings = {"RAY_USAGE_STATS_ENABLED": "0"}
    if local:
        settings |= {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux too, it selects the loopback address
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }
    return settings
