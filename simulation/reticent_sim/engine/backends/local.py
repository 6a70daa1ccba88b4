"""Workers as processes of this machine, which end at once with the process that has started them."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from reticent_sim.engine.backends.backend import Factory, replies_or_error
from reticent_sim.engine.backends.worker import ONE_THREAD, Worker, outcome_of
from reticent_sim.engine.errors import WorkerDied

__all__ = ["LocalBackend", "WorkerProcess", "serve"]

_SERVE = f"from {__name__} import serve; serve()"
_QUIET = {"GRPC_VERBOSITY": "ERROR"}
"""Without it, gRPC prints that idle connections were closed."""
_EXIT_SECONDS = 10.0
"""A process that should end is killed after this time."""


class LocalBackend:
    """A `Backend` whose workers are spawned processes of this machine.

    Args:
        environment: Variables that the processes get besides those of this process.
        quiet: Whether the output of the processes is discarded.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, *, quiet: bool = False) -> None:
        self.workers: dict[int, WorkerProcess] = {}
        self._environment = environment or {}
        self._output = subprocess.DEVNULL if quiet else None
        self._turn = threading.RLock()
        """Held while workers have requests: threads take turns, for the replies of a worker have no names."""

    def start(self, factory: Factory, setups: Sequence[Any]) -> list[int]:
        """Start one worker for each setup, or those that have died; returns their numbers."""
        with self._turn:
            for number in [number for number, worker in self.workers.items() if not worker.is_running]:
                self.workers.pop(number).close()
            missing = {number: (factory, setup) for number, setup in enumerate(setups) if number not in self.workers}
            with _interrupts_later():
                for number in missing:
                    self.workers[number] = WorkerProcess(number, self._environment, self._output)
            self.call(missing)
            return list(missing)

    def call(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        """The replies of workers to their requests, by worker number."""
        with self._turn:
            pickled = {self.workers[number]: pickle.dumps(request) for number, request in requests.items()}
            for worker, request in pickled.items():
                worker.send(request)
            return replies_or_error({worker.number: worker.receive() for worker in pickled})

    def stop(self) -> None:
        """End all workers at once, whatever they are doing."""
        for worker in self.workers.values():
            worker.kill()
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()


class WorkerProcess:
    """A process that replies to one request after the other. Nothing of this process is in it."""

    def __init__(self, number: int, environment: Mapping[str, str], output: int | None) -> None:
        self.number = number
        self.pipe, there = Pipe()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109  # a string
        with there:
            self._process = subprocess.Popen(  # noqa: S603  # this module
                [sys.executable, "-P", "-c", _SERVE, str(there.fileno())],
                stdin=subprocess.PIPE,  # it closes when this process ends
                stdout=output,
                stderr=output,
                pass_fds=[there.fileno()],
                env={**_QUIET, **os.environ, **ONE_THREAD, "PYTHONPATH": paths, **environment},
            )

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def send(self, request: bytes) -> None:
        """Send a pickled request. If the process has ended, `receive` says so."""
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(request)

    def receive(self) -> tuple[Any, Exception | None]:
        """The reply to the last request, or the error."""
        try:
            return outcome_of(self.pipe.recv_bytes())
        except (EOFError, OSError):
            return None, WorkerDied(self.number, self._end())

    def kill(self) -> None:
        """Let the process end."""
        self._process.kill()

    def terminate(self) -> None:
        """Let the process end what it has started itself; return when it has ended, or does not in time."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)

    def close(self) -> None:
        """Return when the process has ended."""
        self._process.communicate()
        self.pipe.close()

    def _end(self) -> str:
        try:
            status = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if status >= 0:
            return f"ended with exit code {status}"
        hint = ": use fewer --workers if memory was short" if status == -signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-status).name}{hint}"


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Block SIGINT in processes started here, and handle it when all have been started.

    Ctrl-C goes to all processes of a terminal, and this one handles it.
    """
    interrupts: list[tuple[int, FrameType | None]] = []
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda *arguments: interrupts.append(arguments)) if is_main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # for this thread, and what it starts
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
    if callable(handler) and interrupts:
        handler(*interrupts[0])


def serve() -> None:
    """Run by a worker: reply to one request after the other."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    pipe, worker = Connection(int(sys.argv[1])), Worker()
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        while True:
            pipe.send_bytes(worker.reply(pipe.recv_bytes()))


def _exit_with_parent() -> None:
    """Run by a thread of a worker: also a parent that was killed takes its workers with it."""
    os.read(0, 1)  # its end
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_EXIT_SECONDS)  # for what the worker has started itself
    os._exit(1)
