"""Clocks for replays."""

import asyncio
import datetime as dt

import pytest

from reticent.clock import PacedClock

START = dt.datetime(2027, 2, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize("speed", [5.0, 20_000.0])
def test_a_paced_clock_serves_whoever_comes_while_others_wait_for_days(speed: float) -> None:
    """A request of an app, between two steps of a day."""
    asyncio.run(serve_one(speed))


async def serve_one(speed: float) -> None:
    """One task waits for a second, and another for days."""
    clock = PacedClock(START, speed)
    running = asyncio.create_task(clock.run())
    step = asyncio.create_task(clock.wait_until(START + dt.timedelta(days=300)))
    await asyncio.sleep(0.01)
    before = clock.now()
    async with asyncio.timeout(2):
        await clock.wait_until(before + dt.timedelta(seconds=1))
    assert not step.done()
    assert clock.now() == before + dt.timedelta(seconds=1)
    for each in (running, step):
        each.cancel()
    await asyncio.gather(running, step, return_exceptions=True)
