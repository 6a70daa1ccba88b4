"""Idle and slow callers beside busy ones: over TLS, from several addresses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from reticent.protocol import Refusal, Refused
from reticent.protocol.calls import reply_of
from reticent.rpc import Limits
from reticent.rpc.listener import Listener
from tests.core.rpc.addresses import calling_from
from tests.core.rpc.scenes import HELLO, play, refusal
from tests.core.rpc.services import Calls, Echo, calling, served, until

FEW = Limits(in_flight=8, in_flight_per_network=4)
"""As many calls as two addresses may have at a time."""


async def hold(calls: Calls) -> None:
    """Have a call open that brings nothing, for ever; when it is sent away, the next one."""
    while True:
        with contextlib.suppress(Refused):
            await reply_of(calls.open())


@contextlib.asynccontextmanager
async def held(echo: Echo, listener: Listener, phone: grpc.ChannelCredentials) -> AsyncIterator[None]:
    """Two addresses, of one connection each, hold all the calls that are admitted, and open more."""
    async with contextlib.AsyncExitStack() as stack:
        for address in ("127.0.0.2", "127.0.0.3"):
            calls = await stack.enter_async_context(calling_from(address, listener, phone))
            for _ in range(6):
                holding = asyncio.create_task(hold(calls))
                stack.callback(holding.cancel)
        await until(lambda: echo.inside == FEW.in_flight)
        yield


def test_two_idle_addresses_lock_nobody_out(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with served(folder, limits=FEW) as (echo, listener), held(echo, listener, phone):
            async with calling(listener, phone) as calls:
                for _ in range(20):
                    assert (await reply_of(calls.once(HELLO))).public_key == b"hello"
            assert echo.inside <= FEW.in_flight

    play(scene())


def test_a_late_message_is_served_beside_idle_callers(folder: Path, phone: grpc.ChannelCredentials) -> None:
    """Who holds most of the calls loses them, and not the slow phone, however long it has been there."""

    async def scene() -> None:
        async with (
            served(folder, limits=FEW) as (echo, listener),
            calling(listener, phone) as calls,
            calling_from("127.0.0.4", listener, phone) as others,
        ):
            slow = calls.open()
            await until(lambda: echo.inside == 1)
            async with held(echo, listener, phone):
                for _ in range(20):
                    await reply_of(others.once(HELLO))
                await slow.write(HELLO.SerializeToString())
                await slow.done_writing()
                await reply_of(slow)

    play(scene())


def test_the_longest_waiting_call_of_an_address_is_evicted(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        limits = Limits(in_flight_per_network=2)
        async with served(folder, limits=limits) as (echo, listener), calling(listener, phone) as calls:
            first = calls.open()
            await until(lambda: echo.inside == 1)
            second = calls.open()
            await until(lambda: echo.inside == 2)
            await reply_of(calls.once(HELLO))
            refused = await refusal(first)
            assert (refused.refusal, refused.detail) == (
                Refusal.BUSY,
                "evicted by newer calls while waiting for a message",
            )
            assert refused.retry_after is not None
            await second.write(HELLO.SerializeToString())
            await second.done_writing()
            await reply_of(second)
            assert echo.inside == 0

    play(scene())


def test_a_call_with_its_message_is_never_evicted(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        limits = Limits(in_flight_per_network=3)
        async with served(folder, limits=limits) as (echo, listener), calling(listener, phone) as calls:
            echo.may.clear()
            stream = calls.sum()
            await stream.write(HELLO.SerializeToString())
            once = asyncio.ensure_future(reply_of(calls.once(HELLO)))
            many = calls.many(HELLO.SerializeToString())
            await many.read()
            await until(lambda: echo.inside == echo.came == 3)
            for call in (calls.open, lambda: calls.once(HELLO)):
                refused = await refusal(call())
                assert (refused.refusal, refused.detail) == (Refusal.BUSY, "too many concurrent calls")
            echo.may.set()
            await reply_of(once)
            await stream.done_writing()
            await reply_of(stream)
            many.cancel()
            await until(lambda: echo.inside == 0)

    play(scene())


def test_idle_callers_do_not_block_health_checks(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with (
            served(folder, limits=Limits(in_flight=8)) as (_, listener),
            calling_from("127.0.0.2", listener, phone) as strangers,
            calling(listener, phone) as calls,
        ):
            idle = [strangers.health_open() for _ in range(8)]
            for _ in range(20):
                await reply_of(calls.health(b""))
            for each in idle:
                each.cancel()

    play(scene())
