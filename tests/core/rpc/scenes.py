"""Scenes with a time limit, and the refusal of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from reticent.protocol import Refused
from reticent.protocol.calls import reply_of
from reticent.v1 import counting_pb2 as wire

HELLO = wire.KeyRequest(key_id=b"hello")


def play(scene: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(30):
            await scene

    asyncio.run(in_time())


async def refusal(call: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await reply_of(call)
    return caught.value
