"""Faults of processes, applied at the beginning of a step: crashes, and full disks of servers."""

from __future__ import annotations

import resource
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from reticent_sim.engine.errors import LaunchError
from reticent_sim.engine.faults.fault import Fault, Moment
from reticent_sim.engine.faults.schedule import FaultSchedule
from reticent_sim.engine.process import ServerProcess

__all__ = ["ProcessFaults", "ProcessOutcome", "fill_disk", "free_disk"]


_NO_SERVER = "not applied: the run has no such server"
_NO_WORKER = "not applied: workers of this run do not crash"
_NO_DISK = "not applied: its data is in PostgreSQL"
_DOWN = "it did not run"


@dataclass(frozen=True)
class ProcessOutcome:
    """The outcome of a fault of a process.

    Args:
        moment: Of the outcome.
        fault: The cause.
        outcome: In a few words.
    """

    moment: Moment
    fault: Fault
    outcome: str

    @property
    def is_applied(self) -> bool:
        """Whether the fault took effect."""
        return self.outcome not in {_NO_SERVER, _NO_WORKER, _NO_DISK, _DOWN}


class ProcessFaults:
    """Applies the crashes and the full disks of a schedule.

    Args:
        schedule: The faults of the run.
        servers: The servers, by name.
        crash_worker: Kills the worker of this number at a moment, and starts it again.
        without_disks: The names of servers that write no data to files: their disks cannot be full.
    """

    def __init__(
        self,
        schedule: FaultSchedule,
        servers: Mapping[str, ServerProcess],
        crash_worker: Callable[[int, Moment], object] | None = None,
        *,
        without_disks: Collection[str] = (),
    ) -> None:
        if any(each.kind == "full" and not each.phones for each in schedule.faults):
            _check_limits()
        self._schedule = schedule
        self._servers = servers
        self._crash_worker = crash_worker
        self._without_disks = without_disks
        self._down: dict[str, tuple[Moment, Fault]] = {}  # with the moment at which it starts again
        self._full: dict[str, tuple[Moment, Fault]] = {}  # with the moment at which there is room again

    def begin(self, moment: Moment) -> list[ProcessOutcome]:
        """End and begin faults at a step, or at a round of counting in it, and return the outcomes.

        It blocks until each server that starts again serves.
        """
        outcomes = self._end(moment)
        for fault in self._schedule.at(moment):
            outcomes.append(ProcessOutcome(moment, fault, self._apply(fault, moment)))
        return outcomes

    def finish(self, moment: Moment) -> list[ProcessOutcome]:
        """End all that still lasts: every server serves, and has room on its disk."""
        return self._end(moment, last=True)

    def _end(self, moment: Moment, *, last: bool = False) -> list[ProcessOutcome]:
        ended = []
        for ending, stop, outcome in (
            (self._full, self._free, "its disk has room again"),
            (self._down, self._start, "serves again"),
        ):
            for name, (end, fault) in list(ending.items()):
                if last or moment >= end:
                    del ending[name]
                    stop(name)
                    ended.append(ProcessOutcome(moment, fault, outcome))
        return ended

    def _apply(self, fault: Fault, moment: Moment) -> str:
        if fault.worker is not None:
            return self._crash_of_worker(fault.worker, moment)
        if fault.target not in self._servers:
            return _NO_SERVER
        if fault.kind == "full" and fault.target in self._without_disks:
            return _NO_DISK
        if fault.kind == "full":
            return self._fill(fault)
        return self._crash(fault)

    def _crash_of_worker(self, number: int, moment: Moment) -> str:
        if self._crash_worker is None:
            return _NO_WORKER
        self._crash_worker(number, moment)
        return "killed, works again"

    def _fill(self, fault: Fault) -> str:
        process = self._servers[fault.target]
        before, _ = self._full.get(fault.target, (fault.end, fault))
        self._full[fault.target] = max(before, fault.end), fault
        if process.is_running:
            fill_disk(process)
        return "its disk is full"

    def _crash(self, fault: Fault) -> str:
        process = self._servers[fault.target]
        if not process.is_running:
            before, _ = self._down.get(fault.target, (fault.end, fault))
            self._down[fault.target] = max(before, fault.end), fault
            return _DOWN
        process.kill()
        if fault.steps:
            self._down[fault.target] = fault.end, fault
            return "killed"
        self._start(fault.target)
        return "killed, serves again"

    def _start(self, name: str) -> None:
        self._servers[name].start()
        if name in self._full:
            fill_disk(self._servers[name])

    def _free(self, name: str) -> None:
        if self._servers[name].is_running:
            free_disk(self._servers[name])


def fill_disk(process: ServerProcess) -> None:
    """Let each write of a server to a file fail from now on, as on a full disk. On Linux only."""
    _limit_files(process, 0)


def free_disk(process: ServerProcess) -> None:
    """Let a server write to files again."""
    _limit_files(process, resource.RLIM_INFINITY)


def _limit_files(process: ServerProcess, limit: int) -> None:
    _check_limits()
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    soft = hard if limit == resource.RLIM_INFINITY else limit
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))


def _check_limits() -> None:
    if not hasattr(resource, "prlimit"):
        raise LaunchError("only Linux can limit the files of another process: leave out full disks of servers")
