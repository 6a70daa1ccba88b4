"""Raw callers of the two servers: they count their calls in flight, and say the same bytes until they are answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import reply_of
from reticent.v1 import counting_pb2_grpc
from reticent_sim.engine import ServerPair, ServerProcess
from tests.parties.phone import Phone
from tests.parties.waiting import until

TIMEOUT = 30.0
"""Seconds that a call may take, and that anything else may take to come about."""
LATER = (Refusal.BUSY, Refusal.UNAVAILABLE)

Answer = TypeVar("Answer", bound=Message)


class Flights:
    """Calls that are under way: sent, and not answered.

    Args:
        chance: By what callers wait for different times.
    """

    def __init__(self, chance: random.Random) -> None:
        self.inside = 0
        self.answers = 0
        """How many were answered, with whatever."""
        self._chance = chance

    async def once(self, method: Any, message: Message | AsyncIterable[Message]) -> Any:
        """Call; raises Refused or Unreachable."""
        self.inside += 1
        try:
            answer = await reply_of(method(message, timeout=TIMEOUT))
        except Refused:
            self.answers += 1
            raise
        finally:
            self.inside -= 1
        self.answers += 1
        return answer

    async def patiently(self, method: Any, message: Message | Callable[[], AsyncIterable[Message]]) -> Any:
        """Say the same again, with longer and longer pauses, until it is answered; raises what is final."""
        longest = 0.02
        while True:
            try:
                return await self.once(method, message() if callable(message) else message)
            except Unreachable:
                await asyncio.sleep(self._chance.uniform(0, longest))
            except Refused as refused:
                if refused.refusal not in LATER:
                    raise
                await asyncio.sleep(max(refused.retry_after or 0.0, self._chance.uniform(0, longest)))
            longest = min(0.4, 2 * longest)


def joins(servers: ServerPair) -> tuple[grpc.aio.Channel, counting_pb2_grpc.EnrolmentAsyncStub]:
    """A phone's way to the key server."""
    channel = servers.enrolment.channel()
    return channel, counting_pb2_grpc.EnrolmentStub(channel)


def collecting(servers: ServerPair) -> tuple[grpc.aio.Channel, counting_pb2_grpc.CollectingAsyncStub]:
    """A phone's way to the aggregation server."""
    channel = servers.collecting.channel()
    return channel, counting_pb2_grpc.CollectingStub(channel)


def deciding(servers: ServerPair) -> tuple[grpc.aio.Channel, counting_pb2_grpc.DecidingAsyncStub]:
    """The aggregation server's way to the key server."""
    channel = servers.deciding.channel()
    return channel, counting_pb2_grpc.DecidingStub(channel)


def counting(servers: ServerPair) -> tuple[grpc.aio.Channel, counting_pb2_grpc.CountingAsyncStub]:
    """An analyst's way to the aggregation server."""
    channel = servers.counting.channel()
    return channel, counting_pb2_grpc.CountingStub(channel)


async def enrolled(servers: ServerPair, count: int, chance: random.Random) -> list[Phone]:
    """New phones, which join by the real key server."""
    phones = [Phone(each.token) for each in await asyncio.to_thread(servers.invitations, count)]
    flights, (channel, stub) = Flights(chance), joins(servers)
    async with channel:
        answers = await asyncio.gather(*(flights.patiently(stub.Join, phone.joining()) for phone in phones))
    for phone, answer in zip(phones, answers, strict=True):
        phone.membership = answer
    return phones


async def members(servers: ServerPair, phones: Sequence[Phone], chance: random.Random) -> int:
    """How many phones can renew their membership."""
    flights, (channel, stub) = Flights(chance), joins(servers)
    found = 0
    async with channel:
        for phone in phones:
            try:
                renewed = await flights.patiently(stub.Renew, phone.renewing())
            except Refused as refused:
                if refused.refusal is not Refusal.UNKNOWN_PHONE:
                    raise
            else:
                assert renewed.phone == phone.id
                found += 1
    return found


class Killer:
    """Kills a server, always while requests are in flight, and starts it again.

    Args:
        process: The server.
        flights: The calls to it.
        least: How many must be in flight.
    """

    def __init__(self, process: ServerProcess, flights: Flights, least: int) -> None:
        self._process = process
        self._flights = flights
        self._least = least
        self._one_at_a_time = asyncio.Lock()
        self._before = 0  # answers in former lives
        self.in_flight: list[int] = []
        """How many requests were in flight at each kill."""

    async def kill(self, when: Callable[[], bool], delay: float = 0.0) -> None:
        """Kill it when it is time, and it has answered something in this life; return when it serves again."""
        await until(when, f"time to kill {self._process.name}", within=2 * TIMEOUT)
        async with self._one_at_a_time:
            await until(
                lambda: self._flights.answers > self._before, f"a reply of {self._process.name}", within=TIMEOUT
            )
            await asyncio.sleep(delay)
            await until(lambda: self._flights.inside >= self._least, "enough requests in flight", within=TIMEOUT)
            # From here on nothing else runs in this process until the server is dead.
            self.in_flight.append(self._flights.inside)
            assert self._process.is_running
            self._process.kill()
            assert self.in_flight[-1] >= self._least
            self._before = self._flights.answers
            await asyncio.to_thread(self._process.start)


def at_shares(of: int, kills: int, chance: random.Random) -> Sequence[int]:
    """How much of a work is done at each of so many kills, which are spread over it."""
    return [int((each + chance.random()) / kills * of) for each in range(kills)]


async def in_turn(work: Iterable[Callable[[], Any]], at_a_time: int) -> None:
    """Do some of this work at a time, until all of it is done."""
    waiting = iter(work)

    async def worker() -> None:
        for each in waiting:
            await each()

    async with asyncio.TaskGroup() as group:
        for _ in range(at_a_time):
            group.create_task(worker())
