"""Batches of contributions: one transaction, and one wait for the disk, for all that arrive meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_agg import metrics
from reticent_agg.counting.collection import RETRY_AFTER, ContributionResult

__all__ = ["Batches"]

_log = logging.getLogger(__name__)

MAX_BATCH = 256
"""Contributions in a transaction."""
MAX_WAITING = 2048
"""Contributions that wait for one."""
MAX_BYTES_WAITING = 64 << 20
"""The bytes of their ciphertexts."""

Collect = Callable[[Sequence[wire.Contribution]], Awaitable[list[ContributionResult]]]


class Batches:
    """Collects contributions while others are being written, and then has them written together.

    Args:
        collect: Takes the contributions of a batch, and returns their results.
    """

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self._waiting: deque[tuple[wire.Contribution, asyncio.Future[ContributionResult]]] = deque()
        self._bytes = 0
        self._writing: asyncio.Task[None] | None = None

    async def add(self, contribution: wire.Contribution) -> wire.Acknowledgement:
        """Wait until a contribution is durable.

        Raises:
            Refused: It is not counted; BUSY if too many wait.
        """
        if len(self._waiting) >= MAX_WAITING or self._bytes >= MAX_BYTES_WAITING:
            raise Refused(Refusal.BUSY, "too many contributions at a time", retry_after=RETRY_AFTER)
        result: asyncio.Future[ContributionResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((contribution, result))
        metrics.CONTRIBUTIONS_WAITING.inc()
        self._bytes += len(contribution.ciphertexts)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        outcome = await result
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    async def _write(self) -> None:
        """Write batches until no contribution waits."""
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
                metrics.CONTRIBUTIONS_WAITING.dec(len(batch))
                metrics.BATCH_SIZE.observe(len(batch))
                self._bytes -= sum(len(contribution.ciphertexts) for contribution, _ in batch)
                await self._write_batch(batch)
        finally:
            self._writing = None

    async def _write_batch(self, batch: Sequence[tuple[wire.Contribution, asyncio.Future[ContributionResult]]]) -> None:
        results: Sequence[ContributionResult | Exception]
        try:
            results = await self._collect([contribution for contribution, _ in batch])
        except OSError as error:
            _log.error("contributions cannot be written: %s", error)
            results = [Refused(Refusal.UNAVAILABLE, retry_after=RETRY_AFTER)] * len(batch)
        except Exception as error:  # noqa: BLE001  # each caller gets it, and the next batch is written
            results = [error] * len(batch)
        metrics.CONTRIBUTIONS.inc(sum(isinstance(each, wire.Acknowledgement) for each in results))
        for (_, result), outcome in zip(batch, results, strict=True):
            if result.done():  # the caller has hung up
                continue
            if isinstance(outcome, Exception) and not isinstance(outcome, Refused):
                result.set_exception(outcome)
            else:
                result.set_result(outcome)
