"""A faulty network between a phone and the two servers: real calls, of which some fail as a schedule says.

What the phone sees depends on the schedule only, never on how fast a server replies.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from reticent.protocol import Refused, Unreachable
from reticent.protocol.invitation import Invitation
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.servers import Servers
from reticent_sim.engine.faults.fault import Call, Kind, Moment, Server
from reticent_sim.engine.faults.schedule import PhoneFaults
from reticent_sim.engine.measured_servers import MeasuredServers, Traffic

__all__ = ["FaultyServers", "PhoneNetwork"]

Reply = TypeVar("Reply")

_CALLS: dict[type[Message], Call] = {
    wire.JoinRequest: "join",
    wire.RenewRequest: "renew",
    wire.LeaveRequest: "leave",
    wire.AnnouncementsRequest: "announcements",
    wire.QueryRequest: "query",
    wire.Contribution: "contribute",
    wire.DecisionsRequest: "decisions",
}
_TO_KEYS: tuple[Call, ...] = ("join", "renew", "leave")
_CUT_AFTER = 0.002
"""Seconds after which a call is cancelled: the request is written by then, and seldom replied to."""
_SENTENCES: dict[Kind, str] = {
    "request lost": "DEADLINE_EXCEEDED: the request was lost",
    "reply lost": "DEADLINE_EXCEEDED: the reply was lost",
    "delay": "DEADLINE_EXCEEDED: the reply came after the deadline",
    "cut": "UNAVAILABLE: the connection was cut",
    "partition": "UNAVAILABLE: the network does not reach the server",
}


class PhoneNetwork:
    """The network of one phone, which counts its calls in each step.

    Args:
        faults: Of the phone.
        present: Returns the present moment.
        traffic: Where its calls are added up.
    """

    def __init__(self, faults: PhoneFaults, present: Callable[[], Moment], traffic: Traffic | None = None) -> None:
        self.traffic = Traffic() if traffic is None else traffic
        """The sum of its calls."""
        self._faults = faults
        self._present = present
        self._step: tuple[int, int] | None = None
        self._made: Counter[Call] = Counter()

    def servers(self, invitation: Invitation) -> Servers:
        """Both servers as this phone reaches them: for the argument `servers` of a phone."""
        return FaultyServers(invitation, self) if self._faults else MeasuredServers(invitation, traffic=self.traffic)

    def fault_of(self, call: Call) -> Kind | None:
        """The fault of the next call of this name, if any."""
        moment = self._present()
        if moment[:2] != self._step:
            self._step = moment[:2]
            self._made.clear()
        server: Server = "keys" if call in _TO_KEYS else "aggregation"
        if not self._faults.reaches(server, moment):
            return "partition"
        number = self._made[call]
        self._made[call] += 1
        return self._faults.of_call(call, number, moment)


class FaultyServers(MeasuredServers):
    """Both servers over a faulty network.

    A request that is lost is not sent. A lost or late reply is dropped when it has come. A duplicate is sent twice at a
    time. A call that is cut is cancelled after it was written; then the request is sent again and the reply dropped,
    so that it has arrived in each run alike.

    Args:
        invitation: Says where the servers are.
        network: Of the phone.
    """

    def __init__(self, invitation: Invitation, network: PhoneNetwork) -> None:
        super().__init__(invitation, traffic=network.traffic)
        self._network = network

    async def key(self, key_id: bytes) -> bytes:
        """A public key; whether another phone has fetched it before changes no fault."""
        fetch = super().key
        return await self._with_fault(self._network.fault_of("key"), lambda: fetch(key_id))

    async def _reply(self, method: Callable[..., Awaitable[Reply]], request: Message) -> Reply:
        call = _CALLS.get(type(request))
        kind = None if call is None else self._network.fault_of(call)
        if kind == "cut":
            await self._cut(method, request)
        send = super()._reply
        return await self._with_fault(kind, lambda: send(method, request))

    async def _with_fault(self, kind: Kind | None, send: Callable[[], Awaitable[Reply]]) -> Reply:
        if kind is None:
            return await send()
        if kind == "duplicate":
            return _first(await asyncio.gather(send(), send(), return_exceptions=True))
        if kind not in {"request lost", "partition"}:
            with contextlib.suppress(Refused, Unreachable):
                await send()
        raise Unreachable(_SENTENCES[kind])

    async def _cut(self, method: Callable[..., Awaitable[object]], request: Message) -> None:
        """Hang up while the server works on a request."""

        async def reply() -> object:
            return await method(request, timeout=self._deadline)

        call = asyncio.create_task(reply())
        await asyncio.sleep(_CUT_AFTER)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


def _first(results: Sequence[Reply | BaseException]) -> Reply:
    """The first reply, or else the first error."""
    for each in results:
        if not isinstance(each, BaseException):
            return each
    raise next(each for each in results if isinstance(each, BaseException))
