"""Waiting for what other tasks, threads or processes bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], what: str = "the condition", *, within: float = 20.0) -> None:
    """Return when a condition holds, or raise TimeoutError after so many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while not condition():
        if loop.time() > end:
            raise TimeoutError(f"{what}: not within {within:g} s")
        await asyncio.sleep(0.001)
