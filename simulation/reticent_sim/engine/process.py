"""A server in a process of its own."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from reticent.protocol.calls import failure_of
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import SimulatedClockStub
from reticent_sim.engine.endpoint import Endpoint
from reticent_sim.engine.errors import LaunchError, ServerExited, ServerTimeout

__all__ = ["TIMEOUT", "ServerProcess", "environment"]

TIMEOUT = 60.0
"""Default seconds in which a server must start, exit or move its clock; a start takes three on a busy machine."""
_PAUSE = 0.02  # seconds between two looks at a server that starts
_SHOWN = 6000  # characters of a log in an error

_GUARD = 'read -r _ || kill -9 "$0"'
"""A shell script that waits for a line on its standard input. At its end, it kills the process whose id it has got."""


class ServerProcess:
    """A server, which can be killed and started again at the same addresses with the same data.

    Args:
        name: Of the server, and of its log in the folder.
        folder: The working directory.
        command: Returns the command line for the next start.
        endpoints: Of the server. Its simulated clock is moved through the last one.
        clock: Where its simulated clock starts; None for the machine's clock.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        command: Callable[[], Sequence[str | Path]],
        endpoints: Sequence[Endpoint],
        clock: dt.datetime | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        """All output of all its processes."""
        self.clock = clock
        """The instant of its simulated clock, at which it starts again."""
        self.after_kill: Callable[[], object] = lambda: None
        """Called after each kill: a test may let the machine lose power."""
        self._folder = folder
        self._command = command
        self._endpoints = endpoints
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process that was started last."""
        return self._started.pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process, which serves or is about to."""
        return self._process is not None and self.exit_status is None

    @property
    def exit_status(self) -> int | None:
        """Of the process that was started last: negative after a signal, None while it runs."""
        status = self._started.poll()
        if status is not None:
            self._release_guard()
        return status

    def start(self, timeout: float = TIMEOUT) -> None:
        """Start the server, and return when it serves.

        Raises:
            ServerExited: It exited instead.
            ServerTimeout: It does not serve in time, and still runs.
        """
        self.spawn()
        self.wait(timeout)

    def spawn(self) -> None:
        """Start the server without waiting for it."""
        if self.is_running:
            raise LaunchError(f"the server {self.name} is running already")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                [str(part) for part in self._command()],
                cwd=self._folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        # The kernel closes the pipe when this process ends, for whatever reason.
        self._guard = subprocess.Popen(  # noqa: S603  # a constant
            ["/bin/sh", "-c", _GUARD, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # no signal of the terminal reaches it
        )

    def wait(self, timeout: float = TIMEOUT) -> None:
        """Return when the server serves at all its endpoints.

        Raises:
            ServerExited: It exited instead.
            ServerTimeout: It does not serve in time.
        """
        end = time.monotonic() + timeout
        for endpoint in self._endpoints:
            while not endpoint.is_serving(max(0.1, end - time.monotonic())):
                if not self.is_running:
                    raise ServerExited(
                        f"the server {self.name} exited with status {self.exit_status}:\n{self.end_of_log()}"
                    )
                if time.monotonic() > end:
                    raise ServerTimeout(
                        f"the server {self.name} does not serve within {timeout:g} s:\n{self.end_of_log()}"
                    )
                time.sleep(_PAUSE)

    def kill(self) -> None:
        """Kill the server by SIGKILL."""
        self._signal(signal.SIGKILL)
        self.after_kill()

    def stop(self) -> None:
        """Let the server exit by SIGTERM.

        Raises:
            ServerExited: Its exit status is not 0.
            ServerTimeout: It does not exit in time.
        """
        status = self._signal(signal.SIGTERM)
        if status != 0:
            raise ServerExited(f"the server {self.name} exited with status {status}:\n{self.end_of_log()}")

    def restart(self) -> None:
        """Kill the server, start it again, and return when it serves."""
        self.kill()
        self.start()

    def move_clock(self, instant: dt.datetime) -> None:
        """Move the simulated clock forward. A server that is not running starts at this instant.

        Raises:
            Unreachable: The server was killed meanwhile. It starts at this instant, too.
        """
        if self.clock is None:
            raise LaunchError(f"the server {self.name} uses the machine's clock")
        if instant < self.clock:
            raise ValueError(f"a simulated clock never goes back: got {instant}, after {self.clock}")
        self.clock = instant
        if self.is_running:
            with self._endpoints[-1].blocking_channel() as channel:
                message = wire.Instant(milliseconds=milliseconds(instant))
                try:
                    SimulatedClockStub(channel).Move(message, timeout=TIMEOUT, wait_for_ready=True)
                except grpc.RpcError as error:
                    raise failure_of(error) from error

    def memory(self) -> int:
        """Resident memory in bytes; on Linux only."""
        return self._memory("VmRSS")

    def peak_memory(self) -> int:
        """The most resident memory in bytes since the start or `reset_peak_memory`; on Linux only."""
        return self._memory("VmHWM")

    def cpu_seconds(self) -> float:
        """The processor time so far, of user and system; on Linux only."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def reset_peak_memory(self) -> None:
        """Forget the peak so far; on Linux only."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="utf-8")

    def end_of_log(self) -> str:
        """The last output of the server."""
        return self.log.read_text(errors="replace")[-_SHOWN:] if self.log.exists() else "(no output)"

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise LaunchError(f"the server {self.name} was never started")
        return self._process

    def _memory(self, field: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
        if found is None:
            raise LaunchError(f"the server {self.name} is not running")
        return int(found[1]) * 1024

    def _signal(self, number: signal.Signals) -> int:
        """Send a signal; returns the exit status."""
        if not self.is_running:
            raise LaunchError(f"the server {self.name} is not running:\n{self.end_of_log()}")
        self._started.send_signal(number)
        try:
            status = self._started.wait(TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise ServerTimeout(
                f"the server {self.name} did not exit within {TIMEOUT:g} s:\n{self.end_of_log()}"
            ) from error
        self._release_guard()
        return status

    def _release_guard(self) -> None:
        """End the guard of a process that has exited: another process may get its id."""
        if self._guard is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.communicate(b"\n", timeout=TIMEOUT)
            self._guard = None


def environment() -> dict[str, str]:
    """The environment of this process without the options of `reticent`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RETICENT_")}
