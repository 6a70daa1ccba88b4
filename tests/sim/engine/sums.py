"""A handler for the tests of backends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from reticent_sim.engine.backends import Backend, backend_of
from reticent_sim.engine.backends.worker import ONE_THREAD
from reticent_sim.engine.errors import CommandFailed


class Sum:
    """A handler with state: the sum of its setup and all numbers. Bytes are returned; a name calls a method."""

    def __init__(self, setup: int) -> None:
        if setup < 0:
            raise ValueError(f"no {setup}")
        self.total = setup

    def __call__(self, request: Any) -> Any:
        if isinstance(request, int):
            self.total += request
            return self.total
        return request if isinstance(request, bytes) else getattr(self, request)()

    def process(self) -> int:
        return os.getpid()

    def threads(self) -> list[str | None]:
        return [os.environ.get(name) for name in ONE_THREAD]

    def cluster(self) -> list[str]:
        ray: Any = import_module("ray")
        return [
            ray.util.get_node_ip_address(),
            *(os.environ[name] for name in ("RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED")),
        ]

    def wait(self) -> None:
        time.sleep(1000)

    def exit(self) -> None:
        os._exit(3)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def refuse(self) -> None:
        raise CommandFailed(f"no {self.total}")

    def raise_unpicklable(self) -> None:
        raise Unpicklable(7, "lines")

    def reply_unpicklable(self) -> Any:
        return lambda: None


class Unpicklable(Exception):
    def __init__(self, count: int, what: str) -> None:
        super().__init__(f"{count} {what}")


@contextmanager
def started(name: Any, *setups: int, address: str | None = None) -> Iterator[Backend]:
    backend = backend_of(name, address)
    try:
        backend.start(Sum, setups)
        yield backend
    finally:
        backend.stop()
