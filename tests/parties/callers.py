"""Callers of the two servers, who count their calls in flight and retry until there is a reply."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any

from google.protobuf.message import Message

from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import reply_of
from reticent.v1.counting_pb2_grpc import EnrolmentStub
from reticent_sim.engine import ServerPair
from tests.parties.phone import Phone

TIMEOUT = 30.0
"""Seconds that a call may take, and that anything else may take to come about."""
LATER = (Refusal.BUSY, Refusal.UNAVAILABLE)


class CallsInFlight:
    """Calls to a server, with the number of those in flight.

    Args:
        chance: Of the delays between retries.
    """

    def __init__(self, chance: random.Random) -> None:
        self.in_flight = 0
        self.replies = 0
        """Refusals included."""
        self._chance = chance

    async def call(self, method: Any, message: Message | AsyncIterable[Message]) -> Any:
        """Call; raises Refused or Unreachable."""
        self.in_flight += 1
        try:
            answer = await reply_of(method(message, timeout=TIMEOUT))
        except Refused:
            self.replies += 1
            raise
        finally:
            self.in_flight -= 1
        self.replies += 1
        return answer

    async def retried(self, method: Any, message: Message | Callable[[], AsyncIterable[Message]]) -> Any:
        """Call again with exponential backoff, until there is a reply; raises what is final."""
        longest = 0.02
        while True:
            try:
                return await self.call(method, message() if callable(message) else message)
            except Unreachable:
                await asyncio.sleep(self._chance.uniform(0, longest))
            except Refused as refused:
                if refused.refusal not in LATER:
                    raise
                await asyncio.sleep(max(refused.retry_after or 0.0, self._chance.uniform(0, longest)))
            longest = min(0.4, 2 * longest)


async def enrolled(servers: ServerPair, count: int, chance: random.Random) -> list[Phone]:
    """New phones, which join by the real key server."""
    phones = [Phone(each.token) for each in await asyncio.to_thread(servers.invitations, count)]
    calls = CallsInFlight(chance)
    async with servers.enrolment.channel() as channel:
        stub = EnrolmentStub(channel)
        answers = await asyncio.gather(*(calls.retried(stub.Join, phone.joining()) for phone in phones))
    for phone, answer in zip(phones, answers, strict=True):
        phone.membership = answer
    return phones


async def members(servers: ServerPair, phones: Sequence[Phone], chance: random.Random) -> int:
    """How many phones can renew their membership."""
    calls = CallsInFlight(chance)
    found = 0
    async with servers.enrolment.channel() as channel:
        stub = EnrolmentStub(channel)
        for phone in phones:
            try:
                renewed = await calls.retried(stub.Renew, phone.renewing())
            except Refused as refused:
                if refused.refusal is not Refusal.UNKNOWN_PHONE:
                    raise
            else:
                assert renewed.phone == phone.id
                found += 1
    return found
