"""Rate limits, concurrent calls, and callers that disconnect."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from reticent.protocol import Refusal
from reticent.protocol.calls import reply_of
from reticent.protocol.channels import channel_credentials
from reticent.rpc import Limits, RateLimit
from reticent.v1 import counting_pb2 as wire
from tests.core.rpc.scenes import HELLO, play, refusal
from tests.core.rpc.services import calling, served, until


def test_a_caller_above_its_rate_gets_a_retry_delay(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        limits = Limits(call_rate=RateLimit(per_second=1.0, burst=3.0))
        async with served(folder, limits=limits) as (_, listener), calling(listener, phone) as calls:
            for _ in range(3):
                await reply_of(calls.once(HELLO))
            refused = await refusal(calls.once(HELLO))
            assert refused.refusal is Refusal.BUSY
            assert refused.retry_after is not None
            assert 0.0 < refused.retry_after <= 1.001
            await asyncio.sleep(refused.retry_after)
            await reply_of(calls.once(HELLO))

    play(scene())


@pytest.mark.parametrize("limits", [Limits(in_flight=5), Limits(in_flight_per_network=5)])
def test_too_many_concurrent_calls_get_a_retry_delay(
    folder: Path, phone: grpc.ChannelCredentials, limits: Limits
) -> None:
    async def scene() -> None:
        async with served(folder, limits=limits) as (echo, listener), calling(listener, phone) as calls:
            echo.may.clear()
            inside = [asyncio.ensure_future(reply_of(calls.once(HELLO))) for _ in range(5)]
            await until(lambda: echo.inside == 5)
            if limits.in_flight_per_network == 5:  # where all are counted, a channel keeps the next one to itself
                refused = await refusal(calls.once(HELLO))
                assert (refused.refusal, refused.retry_after) == (Refusal.BUSY, 1.001)
            else:
                async with calling(listener, phone) as others:
                    refused = await refusal(others.once(HELLO))
                    assert refused.refusal is Refusal.BUSY
                    assert refused.retry_after is not None
            echo.may.set()
            assert len(await asyncio.gather(*inside)) == 5
            assert echo.inside == 0
            await reply_of(calls.once(HELLO))

    play(scene())


def test_a_call_without_a_message_times_out(folder: Path, phone: grpc.ChannelCredentials) -> None:
    """In a while, though nobody else comes."""

    async def scene() -> None:
        limits = Limits(timeout=0.3, in_flight_per_network=10)
        async with served(folder, limits=limits) as (echo, listener), calling(listener, phone) as calls:
            idle = [calls.open() for _ in range(10)]
            await until(lambda: echo.inside == 10)
            for each in idle:
                refused = await refusal(each)
                assert (refused.refusal, refused.detail) == (Refusal.BUSY, "the message took too long to arrive")
            assert echo.inside == 0
            await reply_of(calls.once(HELLO))
            stream = calls.sum()
            await stream.write(HELLO.SerializeToString())
            assert (await refusal(stream)).refusal is Refusal.BUSY

    play(scene())


def test_a_caller_that_disconnects_leaves_nothing_behind(
    folder: Path, phone: grpc.ChannelCredentials, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a place taken nor an error logged, wherever it was when it went."""

    async def scene() -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            echo.may.clear()
            hello = HELLO.SerializeToString()
            for call in (partial(calls.once, HELLO), calls.open, calls.sum, partial(calls.many, hello)):
                leaving = call()
                await until(lambda: echo.inside == 1)
                leaving.cancel()
                await until(lambda: echo.inside == 0)
            assert echo.streams_ended == 1
            async with calling(listener, phone) as others:
                calling_still = [others.once(HELLO), others.many(HELLO.SerializeToString())]
                await until(lambda: echo.inside == len(calling_still))
            await until(lambda: echo.inside == 0)
            echo.may.set()
            flood = calls.many(HELLO.SerializeToString())
            await flood.read()
            flood.cancel()
            await until(lambda: echo.inside == 0)
            await reply_of(calls.once(HELLO))

    play(scene())
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("leaves", ["calls", "channel"])
@pytest.mark.parametrize(("size", "pause"), [(100_000, 0.0), (10_000, 0.001)])
def test_a_caller_that_disconnects_during_a_reply_leaves_nothing_behind(
    folder: Path, caplog: pytest.LogCaptureFixture, size: int, pause: float, leaves: str
) -> None:
    """Whether it had to take a message, or to wait for the next one."""
    phone = channel_credentials((folder / "ca.crt").read_bytes())

    async def scene() -> None:
        async with served(folder) as (echo, listener):
            echo.pause = pause
            async with calling(listener, phone) as calls:
                unread = [calls.many(wire.KeyRequest(key_id=bytes(size)).SerializeToString()) for _ in range(20)]
                for each in unread:
                    await each.read()
                await asyncio.sleep(0.2)  # until no more can be written
                assert echo.inside == len(unread)
                if leaves == "calls":
                    for each in unread:
                        each.cancel()
                    await until(lambda: echo.inside == 0)
            await until(lambda: echo.inside == 0)
            assert echo.streams_ended == len(unread)

    play(scene())
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "wrong",
    [
        {"in_flight": 0},
        {"in_flight_per_network": -1},
        {"message_bytes": 0},
        {"timeout": 0.0},
        {"reply_bytes": 0},
        {"reply_bytes_per_connection": -1},
        {"connections": 0},
        {"connections_per_network": 0},
    ],
)
def test_limits_are_positive(wrong: dict[str, Any]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(ValueError, match=f"{name} must be positive: got {value}"):
        Limits(**wrong)
