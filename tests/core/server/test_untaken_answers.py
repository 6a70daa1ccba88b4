"""Callers that ask and do not take the answers, as HTTP/2 lets them, beside those that do."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any

import pytest

from reticent.protocol.calls import answered
from reticent.server import Door, Limits, Listener, crowd
from reticent.v1 import counting_pb2 as wire
from tests.core.server.scenes import HELLO, play
from tests.core.server.services import SERVICE, Echo, calling, until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
ENDS_STREAM, ENDS_HEADERS, IS_ANSWER = 1, 4, 1
WINDOW = 4  # the setting that says how much of answers may be sent


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def question(stream: int) -> bytes:
    """A whole call."""
    headers = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", f"/{SERVICE}/Once".encode()),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    ]
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in headers)
    said = HELLO.SerializeToString()
    content = b"\0" + struct.pack(">I", len(said)) + said
    return frame(HEADERS, ENDS_HEADERS, stream, block) + frame(DATA, ENDS_STREAM, stream, content)


async def _keep_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Do what HTTP/2 asks for, so that the connection stays, and nothing else."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readexactly(9)
            content = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] in {SETTINGS, PING} and not head[4] & IS_ANSWER:
                writer.write(frame(head[3], IS_ANSWER, 0, content if head[3] == PING else b""))


@contextlib.asynccontextmanager
async def deaf(
    listener: Listener, address: str, echo: Echo, calls: int
) -> AsyncIterator[Callable[[], Coroutine[Any, Any, None]]]:
    """One connection from this address, whose questions are answered and whose answers are never taken.

    Yields:
        What asks once more, whether or not that is answered.
    """
    port = int(listener.address.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    writer.write(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", WINDOW, 0)))
    staying = asyncio.create_task(_keep_open(reader, writer))
    streams = count(1, 2)

    async def ask() -> None:
        writer.write(question(next(streams)))
        await writer.drain()

    try:
        for came in range(echo.came, echo.came + calls):
            await ask()
            await until(partial(_exceeds, echo, came))
        yield ask
    finally:
        staying.cancel()
        writer.close()


def _exceeds(echo: Echo, came: int) -> bool:
    return echo.came > came


@contextlib.asynccontextmanager
async def served(limits: Limits) -> AsyncIterator[tuple[Echo, Listener]]:
    """An echo without TLS, which only this machine can call."""
    echo = Echo(Door(limits=limits))
    async with Listener("127.0.0.1:0", echo.services(), credentials=None, limits=limits) as listener:
        yield echo, listener


def test_two_addresses_that_take_no_answers_keep_nobody_out() -> None:
    async def scene() -> None:
        limits = Limits(in_flight=8, in_flight_of_one=4)
        async with (
            served(limits) as (echo, listener),
            deaf(listener, "127.0.0.2", echo, 2 * limits.in_flight_of_one),
            deaf(listener, "127.0.0.3", echo, 2 * limits.in_flight_of_one),
            calling(listener, None) as calls,
        ):
            for _ in range(20):
                assert (await answered(calls.once(HELLO))).public_key == b"hello"
            assert echo.inside <= limits.in_flight

    play(scene())


def test_answers_that_are_not_taken_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one address, and of all; the rest of them waits until the connection ends."""

    async def scene() -> None:
        async with served(Limits(patience=0.2)) as (echo, listener), calling(listener, None) as calls:
            async with deaf(listener, "127.0.0.2", echo, 3):
                await until(lambda: echo.inside == 0)
                async with deaf(listener, "127.0.0.2", echo, 0) as ask:
                    await ask()
                    await answered(calls.once(HELLO))
                    assert echo.came == 4
                async with deaf(listener, "127.0.0.3", echo, 2) as ask:
                    await until(lambda: echo.inside == 0)
                    await ask()  # there are five in all
                    await answered(calls.once(HELLO))
                    assert echo.came == 7
            await until(lambda: not echo.door._crowd._left)
            async with deaf(listener, "127.0.0.2", echo, 3):
                pass

    monkeypatch.setattr(crowd, "LEFT_OF_ONE", 3)
    monkeypatch.setattr(crowd, "LEFT_OF_ALL", 5)
    play(scene())


def test_who_does_not_take_an_answer_for_long_is_given_up() -> None:
    async def scene() -> None:
        async with served(Limits(patience=0.2)) as (echo, listener), deaf(listener, "127.0.0.2", echo, 12):
            await until(lambda: echo.inside == 0)

    play(scene())


def test_answers_are_taken_as_slowly_as_they_may() -> None:
    """Also a stream of them: what counts is the time of each."""

    async def scene() -> None:
        async with served(Limits()) as (echo, listener), calling(listener, None) as calls:
            many = calls.many(wire.KeyRequest(key_id=bytes(100_000)).SerializeToString())
            for _ in range(30):
                content = await many.read()
                assert isinstance(content, bytes)
                assert len(content) > 100_000
                await asyncio.sleep(0.01)
            assert echo.inside == 1
            many.cancel()
            await until(lambda: echo.inside == 0)

    play(scene())
