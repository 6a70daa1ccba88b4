"""The workers of a run, as one: requests to all of them, and their replies."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import threading
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any

from reticent.protocol.invitation import Invitation
from reticent_sim.engine.backends import Backend
from reticent_sim.engine.errors import WorkerDied
from reticent_sim.engine.faults import FaultSchedule, Moment
from reticent_sim.engine.messages import (
    ComputePolicies,
    Crash,
    LiveReport,
    MaskLeakage,
    Measure,
    RoundReport,
    Setup,
    Start,
    Streams,
    TakeRounds,
)
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.usage import Reported, TotalUsage
from reticent_sim.engine.worker import PhoneWorker

__all__ = ["WorkerPool", "default_workers"]

MEASURED = 100
"""The phones of whose streams the adversary's beliefs are computed, and as many of those with a wrong clock or a full
disk."""


class WorkerPool:
    """Workers, each with a part of the phones.

    Args:
        backend: Where they run.
        number: Their number.
        scenario: The scenario.
        folder: Where the files of the run are.
        faults: The faults of the run.
    """

    def __init__(
        self, backend: Backend, number: int, *, scenario: Scenario, folder: Path, faults: FaultSchedule
    ) -> None:
        self.number = number
        """The number of workers."""
        self.measured = _measured(scenario.phones, faults)
        """The phones that report what they publish."""
        self._backend = backend
        self._setups = [
            Setup(worker, scenario, folder, tuple(range(worker, scenario.phones, number)), faults, self.measured)
            for worker in range(number)
        ]
        self._starts: dict[int, Start] = {}
        self.usage = TotalUsage()
        """The resources that all workers have used so far."""
        self._turn = threading.Lock()  # a worker that is killed gets no request before its phones are back

    def start(self) -> None:
        """Start the workers, without their phones."""
        self._backend.start(PhoneWorker, self._setups)

    def stop(self) -> None:
        """End the workers."""
        self._backend.stop()

    def call(self, request: Any) -> list[Any]:
        """The replies of all workers to a request, in the order of their numbers."""
        return self._replies({setup.number: request for setup in self._setups})

    def compute_policies(self, check: str, routines: int) -> None:
        """Compute the policies of a check, for all routines."""
        number = len(self._setups)
        self._replies(
            {worker: ComputePolicies(check, tuple(range(worker, routines, number))) for worker in range(number)}
        )

    def start_phones(
        self, now: dt.datetime, invitations: Sequence[Invitation], ad_service: str | None
    ) -> list[LiveReport]:
        """Start the phones, and enrol them."""
        self._starts = {
            setup.number: Start(
                now, Moment(0, 0), {phone: invitations[phone].to_text() for phone in setup.phones}, ad_service
            )
            for setup in self._setups
        }
        return self._replies(self._starts)

    def crash(self, worker: int, now: dt.datetime, moment: Moment) -> None:
        """Kill a worker, and start it again: its phones go on from their stores. Other requests wait meanwhile.

        The trace does not say so, since its phones depend on the number of workers.

        Raises:
            WorkerDied: Another worker has died as well, for no fault of the run.
        """
        with self._turn:
            with contextlib.suppress(WorkerDied):
                self._call({worker: Crash()})
            self._restart({worker}, now, moment)

    def take_rounds(self, request: TakeRounds, crashing: AbstractSet[int]) -> list[RoundReport]:
        """The reports of all workers about a round. Some crash in the middle of it, and repeat it from their stores.

        Raises:
            WorkerDied: Another worker has died.
        """
        with self._turn:
            requests = {each.number: replace(request, crash=each.number in crashing) for each in self._setups}
            try:
                replies = self._call(requests)
            except WorkerDied as error:
                if error.number not in crashing:
                    raise
                replies = {number: self._added(reply) for number, reply in error.replies.items()}
                self._restart(crashing, request.now, request.moment)
                replies |= self._call(dict.fromkeys(sorted(crashing), request))
        return [replies[number] for number in sorted(replies)]

    def _restart(self, workers: AbstractSet[int], now: dt.datetime, moment: Moment) -> None:
        """Start workers that were killed, with their phones.

        Raises:
            WorkerDied: Another worker has died as well, for no fault of the run.
        """
        for other in self._backend.start(PhoneWorker, self._setups):
            if other not in workers:
                raise WorkerDied(other, "died without a fault of the run: use fewer --workers if memory was short")
        self._call({each: replace(self._starts[each], now=now, moment=moment) for each in sorted(workers)})

    def measure(self, streams: Streams, *, check: str, checks: tuple[str, ...], delta: float) -> list[MaskLeakage]:
        """The beliefs of an adversary who sees streams, for each check; the workers share the work."""
        replies = self._replies(
            {
                setup.number: Measure(
                    {phone: streams[phone] for phone in setup.phones if phone in streams}, check, checks, delta
                )
                for setup in self._setups
            }
        )
        return [MaskLeakage.merged(parts) for parts in zip(*replies, strict=True)]

    def _replies(self, requests: Mapping[int, Any]) -> list[Any]:
        with self._turn:
            replies = self._call(requests)
        return [replies[number] for number in sorted(replies)]

    def _call(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        """The replies of workers, without the usage that they report."""
        return {number: self._added(reply) for number, reply in self._backend.call(requests).items()}

    def _added(self, reported: Reported) -> Any:
        self.usage.add(reported.usage)
        return reported.reply


def _measured(phones: int, faults: FaultSchedule) -> frozenset[int]:
    faulty = {phone for each in faults.faults if each.kind in {"skew", "full"} for phone in each.phones}
    return frozenset([*range(min(phones, MEASURED)), *sorted(faulty)[:MEASURED]])


def default_workers() -> int:
    """One worker for each processor."""
    return os.cpu_count() or 1
