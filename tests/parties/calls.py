"""Many calls over one connection, no more at a time than a server accepts from one."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

AT_A_TIME = 8

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
