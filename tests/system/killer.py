"""Kills of a server while requests to it are in flight."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from reticent_sim.engine import ServerProcess
from tests.parties.callers import TIMEOUT, CallsInFlight
from tests.parties.waiting import until


class Killer:
    """Kills a server, always while requests are in flight, and starts it again.

    Args:
        process: The server.
        calls: Those to it.
        least: How many must be in flight.
    """

    def __init__(self, process: ServerProcess, calls: CallsInFlight, least: int) -> None:
        self._process = process
        self._calls = calls
        self._least = least
        self._one_at_a_time = asyncio.Lock()
        self._before = 0  # answers in former lives
        self.in_flight: list[int] = []
        """How many requests were in flight at each kill."""

    async def kill(self, when: Callable[[], bool], delay: float = 0.0) -> None:
        """Kill it when it is time, and it has answered something in this life; return when it serves again."""
        await until(when, f"time to kill {self._process.name}", within=2 * TIMEOUT)
        async with self._one_at_a_time:
            await until(lambda: self._calls.replies > self._before, f"a reply of {self._process.name}", within=TIMEOUT)
            await asyncio.sleep(delay)
            await until(lambda: self._calls.in_flight >= self._least, "enough requests in flight", within=TIMEOUT)
            # From here on nothing else runs in this process until the server is dead.
            self.in_flight.append(self._calls.in_flight)
            assert self._process.is_running
            self._process.kill()
            assert self.in_flight[-1] >= self._least
            self._before = self._calls.replies
            await asyncio.to_thread(self._process.start)


def at_shares(of: int, kills: int, chance: random.Random) -> Sequence[int]:
    """How much of a work is done at each of so many kills, which are spread over it."""
    return [int((each + chance.random()) / kills * of) for each in range(kills)]
