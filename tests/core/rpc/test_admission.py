"""Calls of all kinds, unreadable messages and internal errors, over gRPC and TLS on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import REFUSAL, reply_of
from reticent.rpc import Caller, Limits
from reticent.rpc.listener import OVERSIZED_MARGIN
from reticent.v1 import counting_pb2 as wire
from tests.core.rpc.scenes import HELLO, play, refusal
from tests.core.rpc.services import calling, served, until


async def outcome(call: Any) -> bytes | Refusal:
    """The key that a call is answered with, or why it is refused."""
    try:
        return wire.KeyReply.FromString(await reply_of(call)).public_key
    except Refused as refused:
        return refused.refusal


def test_all_three_kinds_of_calls_are_answered(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            assert (await reply_of(calls.once(HELLO))).public_key == b"hello"
            stream = calls.many(HELLO.SerializeToString())
            assert [wire.KeyReply.FromString(each).public_key async for each in stream] == [b"hello"] * 1000
            parts = (wire.KeyRequest(key_id=bytes([each])).SerializeToString() for each in range(5))
            assert wire.KeyReply.FromString(await calls.sum(parts)).public_key == bytes(range(5))
            assert echo.callers == [Caller("127.0.0.1")] or echo.callers == [Caller("::1")]
            assert echo.inside == 0

    play(scene())


@pytest.mark.parametrize("content", [b"\xff", b"\x0a\x05ab", b"\x0a"])
def test_an_unreadable_message_is_malformed(folder: Path, phone: grpc.ChannelCredentials, content: bytes) -> None:
    async def scene() -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            refused = await refusal(calls.raw(content))
            assert (refused.refusal, refused.detail) == (Refusal.MALFORMED, "the message is not a KeyRequest")
            assert not echo.callers
            stream = calls.many(content)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(aiter(stream))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert (await refusal(calls.sum(iter([HELLO.SerializeToString(), content])))).refusal is Refusal.MALFORMED
            assert echo.inside == 0

    play(scene())


def test_a_call_without_a_message_is_malformed(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with served(folder) as (_, listener), calling(listener, phone) as calls:
            assert (await refusal(calls.open(iter([])))).refusal is Refusal.MALFORMED

    play(scene())


def test_a_refusal_reaches_a_caller_that_still_sends(folder: Path, phone: grpc.ChannelCredentials) -> None:
    """The first of 64 large messages is refused: without reading the others, a few refusals of a hundred are lost."""
    first = wire.KeyRequest(key_id=b"refuse").SerializeToString()
    other = wire.KeyRequest(key_id=bytes(1 << 16)).SerializeToString()

    async def messages() -> AsyncIterator[bytes]:
        yield first
        for _ in range(63):
            yield other

    async def scene() -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            for _ in range(150):
                assert (await refusal(calls.sum(messages()))).refusal is Refusal.BAD_QUERY
            await until(lambda: echo.inside == 0)

    play(scene())


def test_a_refused_caller_that_sends_without_end_is_cut_off(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with (
            served(folder, limits=Limits(timeout=0.3)) as (echo, listener),
            calling(listener, phone) as calls,
        ):
            call = calls.sum()
            await call.write(wire.KeyRequest(key_id=b"refuse").SerializeToString())
            while not call.done():
                with suppress(grpc.RpcError):  # the call ends
                    await call.write(HELLO.SerializeToString())
                await asyncio.sleep(0.01)
            assert echo.came == 1
            await until(lambda: echo.inside == 0)

    play(scene())


def test_random_bytes_change_nothing(folder: Path, phone: grpc.ChannelCredentials) -> None:
    """Each gets an answer or a typed error, and then the server still serves."""

    async def scene(contents: list[bytes]) -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            for content in contents:
                try:
                    expected: bytes | Refusal = wire.KeyRequest.FromString(content).key_id
                except DecodeError:
                    expected = Refusal.MALFORMED
                for call in (calls.raw(content), calls.sum(iter([content]))):
                    assert await outcome(call) == expected
            assert (await reply_of(calls.once(HELLO))).public_key == b"hello"
            assert echo.inside == 0

    @settings(max_examples=15)
    @given(st.lists(st.binary(max_size=300), max_size=20))
    def property_holds(contents: list[bytes]) -> None:
        play(scene([each for each in contents if each != b"\x0a\x04fail"]))

    property_holds()


def test_a_large_message_is_oversized(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with (
            served(folder, limits=Limits(message_bytes=1000)) as (echo, listener),
            calling(listener, phone) as calls,
        ):
            assert (await refusal(calls.once(wire.KeyRequest(key_id=bytes(1000))))).refusal is Refusal.OVERSIZED
            assert not echo.callers
            assert (await reply_of(calls.once(wire.KeyRequest(key_id=bytes(900))))).public_key == bytes(900)
            await until(lambda: echo.inside == 0)

    play(scene())


@pytest.mark.parametrize("limit", [32 << 10, 256 << 10])
def test_a_message_slightly_above_the_limit_is_refused_by_name(
    folder: Path, phone: grpc.ChannelCredentials, limit: int
) -> None:
    """By all kinds of methods. gRPC itself ends the call of what is larger still, with a bare status."""
    size = limit + 40_000
    content = wire.KeyRequest(key_id=bytes(size)).SerializeToString()
    detail = f"KeyRequest may have {limit} bytes: got {len(content)}"

    async def scene() -> None:
        async with (
            served(folder, limits=Limits(message_bytes=limit)) as (echo, listener),
            calling(listener, phone) as calls,
        ):
            for call in (calls.raw(content), calls.sum(iter([HELLO.SerializeToString(), content]))):
                refused = await refusal(call)
                assert (refused.refusal, refused.detail) == (Refusal.OVERSIZED, detail)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(aiter(calls.many(content)))
            assert (REFUSAL, "OVERSIZED") in tuple(caught.value.trailing_metadata() or ())
            assert echo.came == 1
            much = wire.KeyRequest(key_id=bytes(limit + OVERSIZED_MARGIN)).SerializeToString()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await calls.raw(much)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert not caught.value.trailing_metadata()
            await until(lambda: echo.inside == 0)

    play(scene())


def test_an_unknown_method_is_unimplemented(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with served(folder) as (_, listener), calling(listener, phone) as calls:
            with pytest.raises(Unreachable, match="UNIMPLEMENTED"):
                await reply_of(calls.unknown(b""))

    play(scene())


def test_a_long_detail_of_a_refusal_is_cut_to_fit_its_header(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with served(folder) as (_, listener), calling(listener, phone) as calls:
            refused = await refusal(calls.once(wire.KeyRequest(key_id=b"refuse")))
            assert (refused.refusal, refused.detail) == (Refusal.BAD_QUERY, "ä\n" * 200)

    play(scene())


def test_an_internal_error_is_logged_and_not_sent(
    folder: Path, phone: grpc.ChannelCredentials, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            with pytest.raises(Unreachable) as caught:
                await reply_of(calls.once(wire.KeyRequest(key_id=b"fail")))
            assert "internal error of the server" in str(caught.value)
            assert "secret" not in str(caught.value)
            assert echo.inside == 0
            await reply_of(calls.once(HELLO))

    play(scene())
    [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)


def test_a_disk_or_database_that_fails_has_the_caller_retry_later(
    folder: Path, phone: grpc.ChannelCredentials, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            refused = await refusal(calls.once(wire.KeyRequest(key_id=b"disk")))
            assert (refused.refusal, "secret" in str(refused)) == (Refusal.UNAVAILABLE, False)
            assert refused.retry_after == pytest.approx(1.0, abs=0.01)
            assert echo.inside == 0

    play(scene())
    assert "No space left on device" in caplog.text


def test_a_method_may_have_a_smaller_limit_than_its_listener(folder: Path, phone: grpc.ChannelCredentials) -> None:
    """What is larger is not parsed, nor does anybody see it."""

    async def scene() -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            assert (await reply_of(calls.small(wire.KeyRequest(key_id=bytes(98))))).public_key == bytes(98)
            refused = await refusal(calls.small(wire.KeyRequest(key_id=bytes(99))))
            assert (refused.refusal, refused.detail) == (Refusal.OVERSIZED, "KeyRequest may have 100 bytes: got 101")
            assert (await refusal(calls.small(wire.KeyRequest(key_id=bytes(100_000))))).refusal is Refusal.OVERSIZED
            assert len(echo.callers) == 1
            assert (await reply_of(calls.once(wire.KeyRequest(key_id=bytes(99))))).public_key == bytes(99)
            assert echo.inside == 0

    play(scene())
