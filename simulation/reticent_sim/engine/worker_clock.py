"""The time of a worker: its simulated clock, and deadlines in real seconds for calls of its phones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, TypeVar

from reticent.clock import ManualClock
from reticent_client import PhoneStore

__all__ = ["TIMEOUT", "WorkerClock", "some_at_a_time", "within"]

TIMEOUT = 300.0
"""Real seconds in which the phones of a worker must have made a step."""
TIMEOUT_PER_PHONE = 1.0
"""Further seconds for each phone, where all of them call the servers."""
AT_A_TIME = 64
"""Phones that call the servers at the same time."""

Result = TypeVar("Result")


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


async def some_at_a_time(work: Iterable[Coroutine[Any, Any, Result]], phones: int) -> list[Result]:
    """The results of work of so many phones that calls the servers, some at a time, in order."""
    turns = asyncio.Semaphore(AT_A_TIME)

    async def in_turn(each: Coroutine[Any, Any, Result]) -> Result:
        async with turns:
            return await each

    async with within(TIMEOUT + TIMEOUT_PER_PHONE * phones, "not all calls of the phones have ended"):
        return await asyncio.gather(*map(in_turn, work))
