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
    """A handler with state: the sum of its setup and all requests. Some requests end it."""

    def __init__(self, setup: int) -> None:
        if setup < 0:
            raise ValueError(f"no {setup}")
        self.total = setup

    def __call__(self, request: Any) -> Any:
        match request:
            case int():
                self.total += request
                return self.total
            case "exit":
                os._exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "refuse":
                raise CommandFailed(f"no {self.total}")
            case "an error that cannot be pickled":
                raise Unpicklable(7, "lines")
            case "a reply that cannot be pickled":
                return lambda: None
            case "threads":
                return [os.environ.get(name) for name in ONE_THREAD]
            case "cluster":
                ray: Any = import_module("ray")

                return (
                    ray.util.get_node_ip_address(),
                    os.environ["RAY_AUTH_MODE"],
                    os.environ["RAY_USAGE_STATS_ENABLED"],
                )
            case "wait":
                time.sleep(1000)
        return os.getpid()


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
