"""Time, passed in: whoever acts by it asks a clock what it is, and to be woken."""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
import itertools
import time
from collections.abc import Coroutine
from typing import Any, Protocol

_NAP = 30.0
"""The longest sleep in seconds: a wall clock may be set, or stand still while the phone does."""


async def first_of(*waiting: Coroutine[Any, Any, object]) -> None:
    """Wait until one of them ends, and give the others up; what it raised is raised."""
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
    """What is asked of a clock."""

    def now(self) -> dt.datetime:
        """The present instant, in UTC."""

    async def wait_until(self, instant: dt.datetime) -> None:
        """Return once the instant has come, at once if it is over; sooner where the clock is set back meanwhile."""


class SystemClock:
    """The machine's clock, or a faster one for replays, which begins at an instant of its own.

    Args:
        start: What the clock says at first; the present unless given.
        speed: How many of its seconds pass in one.
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
        """Return once the instant has come, or the clock was set back."""
        before = self.now()
        while before <= (now := self.now()) < instant:
            before = now
            left = (instant - now).total_seconds()
            await asyncio.sleep(min(left / (1.0 if self._start is None else self._speed), _NAP))


class ManualClock:
    """A clock that stands still until it is moved: for tests, and for simulations as fast as they go."""

    def __init__(self, start: dt.datetime) -> None:
        self._now = start
        self._waiting: list[tuple[dt.datetime, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> dt.datetime:
        """The instant it stands at."""
        return self._now

    async def wait_until(self, instant: dt.datetime) -> None:
        """Return once the clock was moved there."""
        if instant <= self._now:
            return
        reached = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (instant, next(self._order), reached))
        await reached

    async def move_to(self, instant: dt.datetime) -> None:
        """Go there, stopping wherever somebody waits for."""
        await self._settle()
        while self._waiting and self._waiting[0][0] <= instant:
            at, _, reached = heapq.heappop(self._waiting)
            self._now = max(self._now, at)
            if not reached.cancelled():
                reached.set_result(None)
            await self._settle()
        self._now = max(self._now, instant)

    async def _settle(self) -> None:
        """Let those who were woken do what they do, and wait again."""
        for _ in range(5):
            await asyncio.sleep(0)


class PacedClock(ManualClock):
    """A clock for replays: it goes from one moment that somebody waits for to the next, never faster than they follow.

    Args:
        start: What it says at first.
        speed: How many of its seconds pass in one.
    """

    def __init__(self, start: dt.datetime, speed: float) -> None:
        super().__init__(start)
        if not 0 < speed < float("inf"):
            raise ValueError(f"a clock's speed is a positive number: got {speed}")
        self._speed = speed

    async def run(self) -> None:
        """Let time pass, for ever."""
        while True:
            await self._settle()
            due = self._waiting[0][0] if self._waiting else self._now + dt.timedelta(seconds=self._speed)
            await asyncio.sleep((due - self._now).total_seconds() / self._speed)
            await self.move_to(due)
