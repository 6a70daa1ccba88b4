"""The time of a worker: its simulated clock, and deadlines in real seconds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from reticent.clock import ManualClock
from reticent_client import PhoneStore

__all__ = ["WorkerClock", "within"]


class WorkerClock(ManualClock):
    """The clock of a worker: it moves on when its phones have stored what they decided, however many they are."""

    store: PhoneStore | None = None

    async def _settle(self) -> None:
        await super()._settle()
        if self.store is not None:
            await self.store.transact(lambda: None)  # after all that waits for the disk
            await super()._settle()


@contextlib.asynccontextmanager
async def within(seconds: float, problem: str) -> AsyncIterator[None]:
    """Let something take at most so long; then the error says what has not happened."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TimeoutError(f"{problem} within {seconds:g} s") from error
