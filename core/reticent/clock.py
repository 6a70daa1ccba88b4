"""Clocks, which are passed in: they tell the time and wait for an instant."""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
import itertools
import time
from collections.abc import Coroutine
from typing import Any, Protocol

_NAP = 30.0
"""The longest sleep in seconds: the wall clock may be set, or the phone suspended."""
_TICK = 0.05
"""The longest sleep of a clock for replays: a task may meanwhile wait for an instant before all others."""


async def first_of(*waiting: Coroutine[Any, Any, object]) -> None:
    """Wait until one of them ends, and cancel the others; raises what it raised."""
    tasks = {asyncio.create_task(each) for each in waiting}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for each in done:
        each.result()


class Clock(Protocol):
    """A source of time."""

    def now(self) -> dt.datetime:
        """The present instant, in UTC."""

    async def wait_until(self, instant: dt.datetime) -> None:
        """Return at the instant, at once if it has passed; earlier if the clock is set back meanwhile."""


class SystemClock:
    """The machine's clock, or a faster one for replays that starts at a given instant.

    Args:
        start: The first instant; the present unless given.
        speed: Its seconds per real second.
    """

    def __init__(self, start: dt.datetime | None = None, speed: float = 1.0) -> None:
        if not 0 < speed < float("inf"):
            raise ValueError(f"a clock's speed is a positive number: got {speed}")
        self._start = start
        self._speed = speed
        self._begun = time.monotonic()

    def now(self) -> dt.datetime:
        """The present instant, in UTC."""
        if self._start is None:
            return dt.datetime.now(dt.UTC)
        return self._start + dt.timedelta(seconds=(time.monotonic() - self._begun) * self._speed)

    async def wait_until(self, instant: dt.datetime) -> None:
        """Return at the instant, or when the clock is set back."""
        before = self.now()
        while before <= (now := self.now()) < instant:
            before = now
            left = (instant - now).total_seconds()
            await asyncio.sleep(min(left / (1.0 if self._start is None else self._speed), _NAP))


class ManualClock:
    """A clock that moves only when told to: for tests and fast simulations."""

    def __init__(self, start: dt.datetime) -> None:
        self._now = start
        self._waiting: list[tuple[dt.datetime, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> dt.datetime:
        """The present instant of this clock."""
        return self._now

    async def wait_until(self, instant: dt.datetime) -> None:
        """Return when the clock has been moved to the instant."""
        if instant <= self._now:
            return
        reached = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (instant, next(self._order), reached))
        await reached

    async def move_to(self, instant: dt.datetime) -> None:
        """Move to the instant, with a stop at each instant that tasks wait for."""
        await self._settle()
        while self._waiting and self._waiting[0][0] <= instant:
            self._now = max(self._now, self._waiting[0][0])
            while self._waiting and self._waiting[0][0] <= self._now:
                _, _, reached = heapq.heappop(self._waiting)
                if not reached.cancelled():
                    reached.set_result(None)
            await self._settle()
        self._now = max(self._now, instant)

    async def _settle(self) -> None:
        """Let the tasks that woke up run until they wait again."""
        for _ in range(5):
            await asyncio.sleep(0)


class PacedClock(ManualClock):
    """A clock for replays: it moves by small steps, stops at each awaited instant, and waits for slow tasks.

    Args:
        start: The first instant.
        speed: Its seconds per real second.
    """

    def __init__(self, start: dt.datetime, speed: float) -> None:
        super().__init__(start)
        if not 0 < speed < float("inf"):
            raise ValueError(f"a clock's speed is a positive number: got {speed}")
        self._speed = speed

    async def run(self) -> None:
        """Let time pass."""
        while True:
            await self._settle()
            seconds = self._speed * _TICK
            if self._waiting:
                seconds = min(seconds, (self._waiting[0][0] - self._now).total_seconds())
            await asyncio.sleep(seconds / self._speed)
            await self.move_to(self._now + dt.timedelta(seconds=seconds))
