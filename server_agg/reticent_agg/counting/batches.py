"""Contributions that wait are taken in together: one transaction, and one wait for the disk, for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_agg.counting.collection import Outcome

__all__ = ["Batches"]

_log = logging.getLogger(__name__)

MAX_BATCH = 256
"""Contributions in a transaction."""
MAX_WAITING = 2048
"""Contributions that wait for one."""
MAX_BYTES_WAITING = 64 << 20
"""And how many bytes they have."""
COME_BACK = 1.0
"""In so many seconds, where there is no room, or the disk fails."""

Take = Callable[[Sequence[wire.Contribution]], Awaitable[list[Outcome]]]


class Batches:
    """Collects contributions while others are being written, and then has them written together.

    Args:
        take: Takes contributions in.
    """

    def __init__(self, take: Take) -> None:
        self._take = take
        self._waiting: deque[tuple[wire.Contribution, asyncio.Future[Outcome]]] = deque()
        self._bytes = 0
        self._writing: asyncio.Task[None] | None = None

    async def add(self, contribution: wire.Contribution) -> wire.Acknowledgement:
        """Wait until a contribution is on disk.

        Raises:
            Refused: It is not; BUSY where too many wait.
        """
        if len(self._waiting) >= MAX_WAITING or self._bytes >= MAX_BYTES_WAITING:
            raise Refused(Refusal.BUSY, "too many contributions at a time", retry_after=COME_BACK)
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((contribution, answer))
        self._bytes += len(contribution.ciphertexts)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        outcome = await answer
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    async def _write(self) -> None:
        """Have all written that wait, also those that begin to wait meanwhile."""
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
                self._bytes -= sum(len(contribution.ciphertexts) for contribution, _ in batch)
                await self._write_these(batch)
        finally:
            self._writing = None

    async def _write_these(self, batch: Sequence[tuple[wire.Contribution, asyncio.Future[Outcome]]]) -> None:
        outcomes: Sequence[Outcome | Exception]
        try:
            outcomes = await self._take([contribution for contribution, _ in batch])
        except OSError as error:
            _log.error("contributions cannot be written: %s", error)
            outcomes = [Refused(Refusal.UNAVAILABLE, retry_after=COME_BACK)] * len(batch)
        except Exception as error:  # noqa: BLE001  # each caller is told, and the next ones are served
            outcomes = [error] * len(batch)
        for (_, answer), outcome in zip(batch, outcomes, strict=True):
            if answer.done():  # whoever waited has gone
                continue
            if isinstance(outcome, Exception) and not isinstance(outcome, Refused):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)
