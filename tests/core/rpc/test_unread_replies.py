"""Callers that do not read their replies, as HTTP/2 permits, beside callers that do."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from reticent.protocol import Refusal, Refused
from reticent.protocol.calls import reply_of
from reticent.rpc import Admission, Limits
from reticent.rpc.listener import Listener
from reticent.v1 import counting_pb2 as wire
from tests.core.rpc import large_answers
from tests.core.rpc.addresses import calling_from
from tests.core.rpc.nonreader import NonReader, unverified_tls
from tests.core.rpc.scenes import HELLO, play, refusal
from tests.core.rpc.services import LARGE, Calls, Echo, calling, calling_at, until
from tests.core.rpc.services import served as served_with_tls

ROOT = Path(__file__).parents[3]
MEGABYTE = 1 << 20
ANSWERED_IN = 2.0
"""Seconds in which an honest caller is answered, on a machine that does something else as well."""


@contextlib.asynccontextmanager
async def served(limits: Limits, address: str = "127.0.0.1") -> AsyncIterator[tuple[Echo, Listener]]:
    """An echo without TLS, which only this machine can call."""
    echo = Echo(Admission(limits=limits))
    async with Listener(f"{address}:0", echo.services(), credentials=None, limits=limits) as listener:
        yield echo, listener


def port_of(listener: Listener) -> int:
    return int(listener.address.rpartition(":")[2])


def large(size: int) -> bytes:
    """What is asked for an answer of this size."""
    return LARGE + str(size).encode()


async def unread(echo: Echo, caller: NonReader, times: int, size: int = 5) -> None:
    """Have so many calls of a connection come, whose answers are of this size."""
    came = echo.came + times
    await caller.call(large(size), times)
    await until(lambda: echo.came >= came)


def test_two_addresses_that_read_no_replies_lock_nobody_out() -> None:
    async def scene() -> None:
        limits = Limits(in_flight=8, in_flight_per_network=4)
        async with (
            served(limits) as (echo, listener),
            NonReader.connected("127.0.0.2", port_of(listener)) as one,
            NonReader.connected("127.0.0.3", port_of(listener)) as other,
            calling(listener, None) as calls,
        ):
            for caller in (one, other):
                await unread(echo, caller, limits.in_flight_per_network)
            assert one.is_open
            for _ in range(20):
                assert (await reply_of(calls.once(HELLO))).public_key == b"hello"
            assert echo.inside <= limits.in_flight

    play(scene())


@pytest.mark.slow
def test_a_caller_that_reads_no_replies_does_not_lock_out_its_own_address(
    folder: Path, phone: grpc.ChannelCredentials
) -> None:
    """One connection with 600 calls at a time, reopened again and again, beside honest callers behind the same NAT."""

    async def attack(listener: Listener, over: asyncio.Event) -> None:
        for _ in range(5):
            async with NonReader.connected("127.0.0.2", port_of(listener), unverified_tls()) as caller:
                await caller.call(times=600)
                await asyncio.sleep(0.5)
        over.set()

    async def scene() -> None:
        async with served_with_tls(folder) as (_, listener):
            over = asyncio.Event()
            attacking = asyncio.create_task(attack(listener, over))
            while not over.is_set():
                async with calling_from("127.0.0.2", listener, phone) as calls, asyncio.timeout(ANSWERED_IN):
                    assert (await reply_of(calls.once(HELLO))).public_key == b"hello"
                await asyncio.sleep(0.1)
            await attacking

    play(scene())


def test_calls_of_a_connection_beyond_its_limit_do_not_wait_for_admission() -> None:
    """They would take the places of other callers' calls in the queue."""

    async def scene() -> None:
        limits = Limits(in_flight_per_connection=4)
        async with (
            served(limits) as (echo, listener),
            NonReader.connected("127.0.0.1", port_of(listener)) as caller,
            calling(listener, None) as calls,
        ):
            await caller.call(times=50)
            assert (await reply_of(calls.once(HELLO))).public_key == b"hello"
            await until(lambda: echo.inside == 4)
            assert echo.came == 5
            assert caller.is_open

    play(scene())


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_a_connection_that_does_not_read_a_reply_in_time_is_cut(address: str) -> None:
    async def scene() -> None:
        limits = Limits(timeout=0.5)
        async with (
            served(limits, address) as (echo, listener),
            NonReader.connected(address.strip("[]"), port_of(listener)) as caller,
            calling(listener, None) as calls,
        ):
            await unread(echo, caller, 12)
            assert caller.is_open
            assert echo.inside == 12
            await asyncio.wait_for(caller.ended(), 5.0)
            await until(lambda: echo.inside == 0 and echo.admission.replies.size == 0)
            await reply_of(calls.once(HELLO))

    play(scene())


async def cut(caller: NonReader) -> None:
    async with asyncio.timeout(5.0):
        while not await caller.was_cut():
            pass


def test_a_connection_with_an_unread_reply_is_cut_even_if_its_call_is_cancelled() -> None:
    """What gRPC has begun to write it keeps."""

    async def scene() -> None:
        limits = Limits(timeout=0.7)
        async with (
            served(limits) as (echo, listener),
            NonReader.stuck("127.0.0.1", port_of(listener), large(16 * MEGABYTE)) as caller,
        ):
            await until(lambda: echo.came == 1)
            await asyncio.sleep(0.2)  # until no more can be written
            await caller.cancel()
            await until(lambda: echo.inside == 0)
            assert echo.admission.replies.size > 16 * MEGABYTE
            await cut(caller)
            await until(lambda: echo.admission.replies.size == 0)

    play(scene())


def test_unread_refusals_count() -> None:
    """Windows say nothing about refusals; but whoever reads nothing at all does not take them either."""

    async def scene() -> None:
        limits = Limits(reply_bytes=17 * MEGABYTE, in_flight_per_connection=200)
        async with (
            served(limits) as (echo, listener),
            NonReader.stuck("127.0.0.1", port_of(listener), large(16 * MEGABYTE)) as caller,
            calling(listener, None) as calls,
        ):
            await until(lambda: echo.came == 1)
            await asyncio.sleep(0.5)
            await caller.call(b"refuse", 50)
            await until(lambda: echo.admission.replies.size > 16 * MEGABYTE + 50 * (16 << 10))
            await caller.call(b"refuse", 50)
            await cut(caller)
            await until(lambda: echo.admission.replies.size == 0)
            await reply_of(calls.once(HELLO))

    play(scene())


def test_only_the_connection_above_its_limit_is_refused() -> None:
    async def scene() -> None:
        limits = Limits(reply_bytes_per_connection=MEGABYTE)
        async with (
            served(limits) as (echo, listener),
            NonReader.connected("127.0.0.1", port_of(listener)) as caller,
            calling(listener, None) as calls,
        ):
            await unread(echo, caller, 4, 300_000)
            await until(lambda: echo.inside == 3)  # the fourth answer is dropped
            await unread(echo, caller, 1, 100_000)
            await until(lambda: echo.inside == 4)  # there is room for a smaller one
            assert 1_000_000 < echo.admission.replies.size < MEGABYTE
            assert caller.is_open
            for _ in range(20):
                assert (await reply_of(calls.once(HELLO))).public_key == b"hello"

    play(scene())


def test_a_single_reply_may_exceed_the_limit_of_a_connection() -> None:
    async def scene() -> None:
        limits = Limits(reply_bytes_per_connection=1000)
        async with (
            served(limits) as (echo, listener),
            NonReader.connected("127.0.0.1", port_of(listener)) as caller,
            calling(listener, None) as calls,
        ):
            assert len((await reply_of(calls.once(wire.KeyRequest(key_id=large(100_000))))).public_key) == 100_000
            await unread(echo, caller, 1, 100_000)
            came = echo.came
            await caller.call(times=5)  # are refused before anybody sees them
            await reply_of(calls.once(HELLO))
            await until(lambda: caller.refused == 5)
            assert echo.came == came + 1

    play(scene())


def test_at_the_total_limit_the_longest_waiting_connection_is_cut() -> None:
    """Of the network with the most. Whoever has little is answered."""

    async def scene() -> None:
        limits = Limits(reply_bytes=MEGABYTE, reply_bytes_per_connection=MEGABYTE)
        async with (
            served(limits) as (echo, listener),
            NonReader.connected("127.0.0.3", port_of(listener)) as few,
            NonReader.connected("127.0.0.2", port_of(listener)) as first,
            NonReader.connected("127.0.0.2", port_of(listener)) as second,
            calling(listener, None) as calls,
        ):
            for caller in (few, first, second):
                await unread(echo, caller, 1, 300_000)
            assert len((await reply_of(calls.once(wire.KeyRequest(key_id=large(200_000))))).public_key) == 200_000
            await asyncio.wait_for(first.ended(), 5.0)
            assert few.is_open
            assert second.is_open

    play(scene())


def test_many_large_replies_together_take_a_bounded_memory() -> None:
    """Those that do not fit are dropped, and their callers are to come back."""

    async def scene() -> None:
        limits = Limits(reply_bytes=8 * MEGABYTE)
        async with served(limits) as (echo, listener), contextlib.AsyncExitStack() as stack:
            echo.may.clear()
            callers = [await stack.enter_async_context(calling(listener, None)) for _ in range(20)]
            question = wire.KeyRequest(key_id=large(MEGABYTE))
            calls_made = [
                asyncio.ensure_future(refusal_or_none(calls, question)) for calls in callers for _ in range(3)
            ]
            await until(lambda: echo.came == len(calls_made))
            echo.may.set()
            await until(lambda: echo.inside < len(calls_made))
            assert echo.admission.replies.size <= limits.reply_bytes
            refusals = [each for each in await asyncio.gather(*calls_made) if each is not None]
            assert all(each.refusal is Refusal.BUSY and each.retry_after for each in refusals)
            assert len(refusals) < len(calls_made)
            await until(lambda: echo.admission.replies.size == 0)

    play(scene())


async def refusal_or_none(calls: Calls, request: wire.KeyRequest) -> Refused | None:
    try:
        await reply_of(calls.once(request))
    except Refused as refused:
        return refused
    return None


def test_a_slow_reader_gets_all_replies() -> None:
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


@contextlib.contextmanager
def large_answering(folder: Path) -> Iterator[tuple[int, str]]:
    """A server in a process of its own: its number, and the address."""
    command = [sys.executable, "-m", large_answers.__name__, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.kill()


def peak(process: int) -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for memory")
@pytest.mark.parametrize("connections", [1, 40])
def test_unread_replies_take_a_bounded_memory(folder: Path, phone: grpc.ChannelCredentials, connections: int) -> None:
    """600 calls, of one connection or of many, with answers of 2 MB; others are served meanwhile.

    All connections may leave `reply_bytes` unread, those that are being cut as much again, and that is in memory about
    twice: four times in all.
    """

    async def scene(process: int, address: str) -> None:
        host, _, port = address.rpartition(":")
        before = peak(process)
        async with contextlib.AsyncExitStack() as stack:
            tls = unverified_tls()
            for _ in range(connections):
                caller = await stack.enter_async_context(NonReader.connected("127.0.0.2", int(port), tls))
                await caller.call(b"2000000", 600 // connections)
            async with calling_at(address, phone) as calls:
                for _ in range(30):
                    async with asyncio.timeout(ANSWERED_IN):
                        reply = await reply_of(calls.once(wire.KeyRequest(key_id=b"1000")))
                    assert len(reply.public_key) == 1000
                    await asyncio.sleep(0.1)
        assert host
        grown = peak(process) - before
        assert grown < 4 * Limits().reply_bytes < 600 * 2_000_000, f"{grown >> 20} MiB"

    with large_answering(folder) as (process, address):
        play(scene(process, address))


def test_refusals_for_unread_replies_have_a_retry_delay(folder: Path, phone: grpc.ChannelCredentials) -> None:
    """Also where the caller is gRPC itself, and reads a stream slowly."""

    async def scene() -> None:
        limits = Limits(reply_bytes_per_connection=1000)
        async with served_with_tls(folder, limits=limits) as (echo, listener), calling(listener, phone) as calls:
            many = calls.many(wire.KeyRequest(key_id=bytes(1_000_000)).SerializeToString())
            await until(lambda: echo.admission.replies.size > 0)
            await asyncio.sleep(0.2)  # until no more can be written
            refused = await refusal(calls.once(HELLO))
            assert (refused.refusal, refused.detail) == (Refusal.BUSY, "the caller has not read earlier replies")
            assert refused.retry_after is not None
            many.cancel()
            await until(lambda: echo.admission.replies.size == 0)
            await reply_of(calls.once(HELLO))

    play(scene())
