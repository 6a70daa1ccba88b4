"""The workers of a run, as one: requests to all of them, and their replies."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reticent.protocol.invitation import Invitation
from reticent_sim.engine.backends import Backend
from reticent_sim.engine.errors import WorkerDied
from reticent_sim.engine.faults import FaultSchedule, Moment
from reticent_sim.engine.messages import ComputePolicies, Crash, LiveReport, MaskLeakage, Measure, Setup, Start, Streams
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.worker import PhoneWorker

__all__ = ["WorkerPool"]


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
        self._backend = backend
        self._setups = [
            Setup(worker, scenario, folder, tuple(range(worker, scenario.phones, number)), faults)
            for worker in range(number)
        ]
        self._starts: dict[int, Start] = {}
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
                self._backend.call({worker: Crash()})
            for other in self._backend.start(PhoneWorker, self._setups):
                if other != worker:
                    raise WorkerDied(other, "died without a fault of the run: use fewer --workers if memory was short")
            self._backend.call({worker: replace(self._starts[worker], now=now, moment=moment)})

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
            replies = self._backend.call(requests)
        return [replies[number] for number in sorted(replies)]
