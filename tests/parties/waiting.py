"""Waiting for what other tasks, threads or processes bring about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(condition: Callable[[], bool], what: str = "the condition", *, within: float = 20.0) -> None:
    """Return when a condition holds, or raise TimeoutError after so many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while not condition():
        if loop.time() > end:
            raise TimeoutError(f"{what}: not within {within:g} s")
        await asyncio.sleep(0.001)


def block_until(condition: Callable[[], object], what: str = "the condition", *, within: float = 60.0) -> None:
    """As `until`, without an event loop: for other processes, which take longer to look at."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {within:g} s")
        time.sleep(0.02)
