"""Many calls, some at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

AT_A_TIME = 8
"""As many as a server accepts from one connection."""

Reply = TypeVar("Reply")


async def all_replies(calls: Iterable[Awaitable[Reply]]) -> list[Reply | BaseException]:
    """The reply to each call, or the exception that it raised."""
    waiting = iter(calls)
    replies: list[Reply | BaseException] = []

    async def work() -> None:
        for call in waiting:
            try:
                replies.append(await call)
            except Exception as error:  # noqa: BLE001  # that is the reply
                replies.append(error)

    await asyncio.gather(*(work() for _ in range(AT_A_TIME)))
    return replies


async def in_turn(work: Iterable[Callable[[], Any]], at_a_time: int) -> None:
    """Do some of this work at a time, until all of it is done."""
    waiting = iter(work)

    async def worker() -> None:
        for each in waiting:
            await each()

    async with asyncio.TaskGroup() as group:
        for _ in range(at_a_time):
            group.create_task(worker())
