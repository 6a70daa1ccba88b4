"""Who is let in, at what pace, and how everybody else is told; over gRPC and TLS, on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.protocol.calls import answered
from reticent.protocol.refusals import Refusal, Refused, Unreachable
from reticent.server import Caller, Door, Limits, Listener
from reticent.server.certificates import ANALYST, KEY_SERVER, Certificate, channel_credentials
from reticent.server.rates import Rate
from reticent.v1 import counting_pb2 as wire
from tests.server.services import Echo, calling, certified, served, until

HELLO = wire.KeyRequest(key_id=b"hello")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certified(tmp_path_factory.mktemp("certificates") / "certs", "ada")


@pytest.fixture(scope="module")
def phone(folder: Path) -> grpc.ChannelCredentials:
    return channel_credentials((folder / "ca.crt").read_bytes())


def play(scene: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(30):
            await scene

    asyncio.run(in_time())


async def refusal(call: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await answered(call)
    return caught.value


async def outcome(call: Any) -> bytes | Refusal:
    """The key that a call is answered with, or why it is refused."""
    try:
        return wire.KeyReply.FromString(await answered(call)).public_key
    except Refused as refused:
        return refused.refusal


def test_all_three_kinds_of_calls_are_answered(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            assert (await answered(calls.once(HELLO))).public_key == b"hello"
            stream = calls.many(HELLO.SerializeToString())
            assert [wire.KeyReply.FromString(each).public_key async for each in stream] == [b"hello"] * 1000
            parts = (wire.KeyRequest(key_id=bytes([each])).SerializeToString() for each in range(5))
            assert wire.KeyReply.FromString(await calls.sum(parts)).public_key == bytes(range(5))
            assert echo.callers == [Caller("127.0.0.1")] or echo.callers == [Caller("::1")]
            assert echo.door.inside == 0

    play(scene())


@pytest.mark.parametrize("content", [b"\xff", b"\x0a\x05ab", b"\x0a"])
def test_what_cannot_be_read_is_malformed(folder: Path, phone: grpc.ChannelCredentials, content: bytes) -> None:
    async def scene() -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            refused = await refusal(calls.raw(content))
            assert (refused.refusal, refused.detail) == (Refusal.MALFORMED, "this is no KeyRequest")
            assert not echo.callers
            stream = calls.many(content)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(aiter(stream))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert (await refusal(calls.sum(iter([HELLO.SerializeToString(), content])))).refusal is Refusal.MALFORMED
            assert echo.door.inside == 0

    play(scene())


def test_a_call_without_a_message_is_malformed(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with served(folder) as (_, listener), calling(listener, phone) as calls:
            assert (await refusal(calls.open(iter([])))).refusal is Refusal.MALFORMED

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
            assert (await answered(calls.once(HELLO))).public_key == b"hello"
            assert echo.door.inside == 0

    @settings(max_examples=15)
    @given(st.lists(st.binary(max_size=300), max_size=20))
    def property_holds(contents: list[bytes]) -> None:
        play(scene([each for each in contents if each != b"\x0a\x04fail"]))

    property_holds()


def test_what_is_too_large_is_oversized(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with (
            served(folder, limits=Limits(message_bytes=1000)) as (echo, listener),
            calling(listener, phone) as calls,
        ):
            assert (await refusal(calls.once(wire.KeyRequest(key_id=bytes(1000))))).refusal is Refusal.OVERSIZED
            assert not echo.callers
            assert (await answered(calls.once(wire.KeyRequest(key_id=bytes(900))))).public_key == bytes(900)
            await until(lambda: echo.door.inside == 0)

    play(scene())


def test_a_method_that_is_not_there_is_not_answered(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with served(folder) as (_, listener), calling(listener, phone) as calls:
            with pytest.raises(Unreachable, match="UNIMPLEMENTED"):
                await answered(calls.unknown(b""))

    play(scene())


def test_who_calls_too_often_is_told_when_to_come_back(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        limits = Limits(address=Rate(per_second=4.0, burst=3.0))
        async with served(folder, limits=limits) as (_, listener), calling(listener, phone) as calls:
            for _ in range(3):
                await answered(calls.once(HELLO))
            refused = await refusal(calls.once(HELLO))
            assert refused.refusal is Refusal.BUSY
            assert refused.retry_after is not None
            assert 0.0 < refused.retry_after <= 0.251
            await asyncio.sleep(refused.retry_after)
            await answered(calls.once(HELLO))

    play(scene())


@pytest.mark.parametrize("limits", [Limits(in_flight=5), Limits(in_flight_of_one=5)])
def test_too_many_calls_at_a_time_are_told_to_come_back(
    folder: Path, phone: grpc.ChannelCredentials, limits: Limits
) -> None:
    async def scene() -> None:
        async with served(folder, limits=limits) as (echo, listener), calling(listener, phone) as calls:
            echo.may.clear()
            inside = [asyncio.ensure_future(answered(calls.once(HELLO))) for _ in range(5)]
            await until(lambda: echo.door.inside == 5)
            if limits.in_flight_of_one == 5:  # where all are counted, a channel keeps the next one to itself
                refused = await refusal(calls.once(HELLO))
                assert (refused.refusal, refused.retry_after) == (Refusal.BUSY, 1.001)
            else:
                async with calling(listener, phone) as others:
                    refused = await refusal(others.once(HELLO))
                    assert refused.refusal is Refusal.BUSY
                    assert refused.retry_after is not None
            echo.may.set()
            assert len(await asyncio.gather(*inside)) == 5
            assert echo.door.inside == 0
            await answered(calls.once(HELLO))

    play(scene())


def test_who_opens_calls_and_brings_nothing_is_sent_away(folder: Path, phone: grpc.ChannelCredentials) -> None:
    """Meanwhile they count, so that nobody keeps a server busy with calls that never come."""

    async def scene() -> None:
        limits = Limits(patience=0.3, in_flight_of_one=10)
        async with served(folder, limits=limits) as (echo, listener), calling(listener, phone) as calls:
            idle = [calls.open() for _ in range(10)]
            await until(lambda: echo.door.inside == 10)
            assert (await refusal(calls.once(HELLO))).refusal is Refusal.BUSY
            for each in idle:
                refused = await refusal(each)
                assert (refused.refusal, refused.detail) == (Refusal.BUSY, "the message took too long to come")
            assert echo.door.inside == 0
            await answered(calls.once(HELLO))
            stream = calls.sum()
            await stream.write(HELLO.SerializeToString())
            assert (await refusal(stream)).refusal is Refusal.BUSY

    play(scene())


def test_a_refusal_fits_its_header_whatever_it_says(folder: Path, phone: grpc.ChannelCredentials) -> None:
    async def scene() -> None:
        async with served(folder) as (_, listener), calling(listener, phone) as calls:
            refused = await refusal(calls.once(wire.KeyRequest(key_id=b"refuse")))
            assert (refused.refusal, refused.detail) == (Refusal.BAD_QUERY, "ä\n" * 200)

    play(scene())


def test_a_fault_of_the_server_is_logged_and_not_told(
    folder: Path, phone: grpc.ChannelCredentials, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            with pytest.raises(Unreachable) as caught:
                await answered(calls.once(wire.KeyRequest(key_id=b"fail")))
            assert "a fault of its own" in str(caught.value)
            assert "secret" not in str(caught.value)
            assert echo.door.inside == 0
            await answered(calls.once(HELLO))

    play(scene())
    [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)


def test_a_caller_that_goes_away_leaves_nothing_behind(
    folder: Path, phone: grpc.ChannelCredentials, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a place taken nor an error logged, wherever it was when it went."""

    async def scene() -> None:
        async with served(folder) as (echo, listener), calling(listener, phone) as calls:
            echo.may.clear()
            hello = HELLO.SerializeToString()
            for call in (partial(calls.once, HELLO), calls.open, calls.sum, partial(calls.many, hello)):
                leaving = call()
                await until(lambda: echo.door.inside == 1)
                leaving.cancel()
                await until(lambda: echo.door.inside == 0)
            assert echo.streams_ended == 1
            async with calling(listener, phone) as others:
                calling_still = [others.once(HELLO), others.many(HELLO.SerializeToString())]
                await until(lambda: echo.door.inside == len(calling_still))
            await until(lambda: echo.door.inside == 0)
            echo.may.set()
            flood = calls.many(HELLO.SerializeToString())
            await flood.read()
            flood.cancel()
            await until(lambda: echo.door.inside == 0)
            await answered(calls.once(HELLO))

    play(scene())
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("leaves", ["calls", "channel"])
@pytest.mark.parametrize(("size", "pause"), [(100_000, 0.0), (10_000, 0.001)])
def test_a_caller_that_goes_away_while_it_is_told_something(
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
                assert echo.door.inside == len(unread)
                if leaves == "calls":
                    for each in unread:
                        each.cancel()
                    await until(lambda: echo.door.inside == 0)
            await until(lambda: echo.door.inside == 0)
            assert echo.streams_ended == len(unread)

    play(scene())
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_door_knows_callers_by_their_certificates(folder: Path, phone: grpc.ChannelCredentials) -> None:
    """A listener that asks for none lets nobody through a door that wants one."""

    async def scene() -> None:
        ada = Certificate.load(folder, "ada").channel_credentials()
        keys = Certificate.load(folder, "keys").channel_credentials()
        async with served(folder, names=(ANALYST,), mutual=True) as (echo, listener):
            async with calling(listener, ada) as calls:
                await answered(calls.once(HELLO))
                assert echo.callers[0].name == "analyst ada"
            async with calling(listener, keys) as calls:
                assert (await refusal(calls.once(HELLO))).refusal is Refusal.NOT_PERMITTED
                assert len(echo.callers) == 1
        async with served(folder, names=(KEY_SERVER, ANALYST)) as (echo, listener):
            for credentials in (ada, keys, phone):
                async with calling(listener, credentials) as calls:
                    assert (await refusal(calls.once(HELLO))).refusal is Refusal.NOT_PERMITTED
            assert not echo.callers

    play(scene())


def test_mutual_tls_keeps_strangers_out(folder: Path, tmp_path: Path, phone: grpc.ChannelCredentials) -> None:
    """One without a certificate, one with another authority's of the same name, one that expects another server."""
    strangers = certified(tmp_path / "strangers", "ada")
    authority = (folder / "ca.crt").read_bytes()
    forged = grpc.ssl_channel_credentials(
        authority, (strangers / "ada.key").read_bytes(), (strangers / "ada.crt").read_bytes()
    )
    misled = Certificate.load(strangers, "ada").channel_credentials()

    async def scene() -> None:
        async with served(folder, names=(ANALYST,), mutual=True) as (echo, listener):
            for credentials in (phone, forged, misled):
                async with calling(listener, credentials) as calls:
                    with pytest.raises(Unreachable):
                        await answered(calls.once(HELLO))
            async with calling(listener, None) as calls:
                with pytest.raises(Unreachable):
                    await answered(calls.once(HELLO))
            assert not echo.callers
            async with calling(listener, Certificate.load(folder, "ada").channel_credentials()) as calls:
                await answered(calls.once(HELLO))

    play(scene())


def test_an_analyst_cannot_pass_for_a_server(folder: Path) -> None:
    """Its certificate names no host, and is not for serving."""

    async def scene() -> None:
        ada = Certificate.load(folder, "ada")
        echo = Echo(Door())
        async with Listener("localhost:0", echo.services(), credentials=ada.server_credentials(False)) as listener:
            async with calling(listener, channel_credentials(ada.authority)) as calls:
                with pytest.raises(Unreachable):
                    await answered(calls.once(HELLO))
            assert not echo.callers

    play(scene())


@pytest.mark.parametrize(
    ("name", "may"),
    [("analyst ada", True), ("analyst", True), ("analysta", False), ("key server", False), ("", False), (None, False)],
)
def test_a_name_is_a_role_and_what_follows_a_blank(name: str | None, may: bool) -> None:
    async def scene() -> None:
        entering = Door((ANALYST,)).entered(_Stands(name))  # type: ignore[arg-type]
        with nullcontext() if may else pytest.raises(Refused, match="NOT_PERMITTED"), entering as caller:
            assert caller.name == name

    play(scene())


class _Stands:
    """What a door asks of gRPC."""

    def __init__(self, name: str | None, peer: str = "ipv4:127.0.0.1:1") -> None:
        self._names = None if name is None else [name.encode()]
        self._peer = peer

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        return {} if self._names is None else {"x509_common_name": self._names}


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.1.2.3:5000", "10.1.2.3"),
        ("ipv6:%5B2001:db8::1%5D:5000", "2001:db8::1"),
        ("unix:", "unix"),
    ],
)
def test_a_caller_is_known_by_its_machine(peer: str, address: str) -> None:
    async def scene() -> None:
        with Door().entered(_Stands(None, peer)) as caller:  # type: ignore[arg-type]
            assert caller == Caller(address)

    play(scene())


@pytest.mark.parametrize(
    "wrong", [{"in_flight": 0}, {"in_flight_of_one": -1}, {"message_bytes": 0}, {"patience": 0.0}, {"connections": 0}]
)
def test_limits_are_positive(wrong: dict[str, Any]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(ValueError, match=f"{name} must be positive: got {value}"):
        Limits(**wrong)
