"""A clock that a test moves over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Mapping

import grpc
import pytest

from reticent.clock import ManualClock
from reticent.protocol import Refusal, Refused
from reticent.protocol.calls import reply_of
from reticent.protocol.channels import channel
from reticent.rpc.admission import Handler
from reticent.rpc.listener import Listener
from reticent.rpc.simulated_clock import SERVICE, check_local, simulated_clock
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc

START = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


def milliseconds(instant: dt.datetime) -> int:
    return int(instant.timestamp() * 1000)


async def moved(open_channel: grpc.aio.Channel, to: int) -> int:
    stub = counting_pb2_grpc.SimulatedClockStub(open_channel)
    return (await reply_of(stub.Move(wire.Instant(milliseconds=to)))).milliseconds


@contextlib.asynccontextmanager
async def served(methods: Mapping[str, Handler]) -> AsyncIterator[grpc.aio.Channel]:
    async with (
        Listener("127.0.0.1:0", {SERVICE: methods}, credentials=None) as listener,
        channel(listener.address, None) as open_channel,
    ):
        yield open_channel


async def play(*steps: int) -> tuple[ManualClock, list[int | Refused]]:
    """Where the clock stands after some moves, and what each of them was answered."""
    clock, methods = simulated_clock(START)
    replies: list[int | Refused] = []
    async with served(methods) as open_channel:
        for step in steps:
            try:
                replies.append(await moved(open_channel, step))
            except Refused as refused:
                replies.append(refused)
    return clock, replies


def test_it_moves_to_the_requested_instant() -> None:
    wanted = [milliseconds(START), milliseconds(START + HOUR), milliseconds(START + HOUR) + 1]
    clock, replies = asyncio.run(play(*wanted))
    assert replies == wanted
    assert clock.now() == START + HOUR + dt.timedelta(milliseconds=1)


@pytest.mark.parametrize("wrong", [milliseconds(START) - 1, 0, -1, 2**63 - 1, -(2**63)])
def test_it_goes_neither_back_nor_out_of_time(wrong: int) -> None:
    clock, [first, second] = asyncio.run(play(wrong, milliseconds(START + HOUR)))
    assert isinstance(first, Refused)
    assert first.refusal is Refusal.MALFORMED
    assert second == milliseconds(START + HOUR)
    assert clock.now() == START + HOUR


def test_it_stops_at_each_instant_that_is_waited_for() -> None:
    async def scene() -> None:
        clock, methods = simulated_clock(START)
        wanted = [START + minute * HOUR / 60 for minute in range(300)]
        seen: list[dt.datetime] = []

        async def work() -> None:
            for instant in wanted:
                await clock.wait_until(instant)
                seen.append(clock.now())

        working = asyncio.create_task(work())
        waiting = asyncio.create_task(clock.wait_until(START + 5.5 * HOUR))
        async with served(methods) as open_channel:
            later = [milliseconds(START + 6 * HOUR) + minute for minute in range(8)]
            replies = await asyncio.gather(*(moved(open_channel, to) for to in later), return_exceptions=True)
        assert later[-1] in replies  # those that came after it are refused
        assert all(isinstance(each, int | Refused) for each in replies)
        assert clock.now() == START + 6 * HOUR + dt.timedelta(milliseconds=7)
        assert seen == wanted
        await working
        await waiting

    asyncio.run(scene())


def test_it_needs_local_addresses() -> None:
    check_local(["127.0.0.1:50", "unix:/tmp/socket", "[::1]:0"])
    with pytest.raises(ValueError, match=r"other machines can reach 0\.0\.0\.0:50, example\.org:1$"):
        check_local(["127.0.0.1:50", "0.0.0.0:50", "example.org:1"])
