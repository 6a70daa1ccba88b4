"""A phone's way to the two servers: it shows no certificate, and knows them by the one that its invitation brings."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

from reticent.paillier import PublicKey
from reticent.protocol.calls import answered
from reticent.protocol.channels import AGGREGATION_SERVER, KEY_SERVER, channel, channel_credentials
from reticent.protocol.invitation import Invitation
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CollectingStub, EnrolmentStub

if TYPE_CHECKING:
    from reticent.v1.counting_pb2_grpc import CollectingAsyncStub, EnrolmentAsyncStub

__all__ = ["Servers"]

DEADLINE = 30.0
"""Seconds for an answer."""
KEYS_KEPT = 8
"""Public keys that are kept for all phones of a channel."""


class _Connection:
    """The channels to both servers, for all phones of an event loop that use these servers."""

    def __init__(self, invitation: Invitation) -> None:
        credentials = channel_credentials(invitation.authority.encode())
        self.users = 0
        self.to_keys = channel(invitation.key_server, credentials, KEY_SERVER)
        self.to_aggregation = channel(invitation.aggregation_server, credentials, AGGREGATION_SERVER)
        self.public_keys: OrderedDict[bytes, bytes] = OrderedDict()
        self.fetching = asyncio.Lock()

    async def close(self) -> None:
        await self.to_keys.close()
        await self.to_aggregation.close()


_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str, str], _Connection]] = (
    WeakKeyDictionary()
)


class Servers:
    """Both servers, while it is entered. Every call ends by a deadline.

    Phones of one event loop that use the same servers share one channel to each of them.

    Each method raises `Refused` where a server refuses and `Unreachable` where no answer comes.

    Args:
        invitation: Says where they are.
        deadline: Seconds for an answer.
    """

    def __init__(self, invitation: Invitation, *, deadline: float = DEADLINE) -> None:
        self._invitation = invitation
        self._deadline = deadline

    @property
    def keys(self) -> str:
        """What to call the key server."""
        return f"the key server at {self._invitation.key_server}"

    @property
    def aggregation(self) -> str:
        """What to call the aggregation server."""
        return f"the aggregation server at {self._invitation.aggregation_server}"

    async def __aenter__(self) -> Self:
        """Connections are made when they are needed."""
        shared = _connections.setdefault(asyncio.get_running_loop(), {})
        if self._name not in shared:
            shared[self._name] = _Connection(self._invitation)
        self._connection = shared[self._name]
        self._connection.users += 1
        self._enrolment: EnrolmentAsyncStub = EnrolmentStub(self._connection.to_keys)
        self._collecting: CollectingAsyncStub = CollectingStub(self._connection.to_aggregation)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up, where no other phone needs the channels."""
        self._connection.users -= 1
        if not self._connection.users:
            del _connections[asyncio.get_running_loop()][self._name]
            await self._connection.close()

    @property
    def _name(self) -> tuple[str, str, str]:
        return self._invitation.authority, self._invitation.key_server, self._invitation.aggregation_server

    async def join(self, asked: wire.JoinRequest) -> wire.Membership:
        """Of the key server."""
        return await answered(self._enrolment.Join(asked, timeout=self._deadline))

    async def renew(self, asked: wire.RenewRequest) -> wire.Membership:
        """Of the key server."""
        return await answered(self._enrolment.Renew(asked, timeout=self._deadline))

    async def leave(self, asked: wire.LeaveRequest) -> None:
        """Of the key server."""
        await answered(self._enrolment.Leave(asked, timeout=self._deadline))

    async def announcements(self, phone: bytes) -> wire.AnnouncementsReply:
        """Of the aggregation server."""
        asked = wire.AnnouncementsRequest(phone=phone)
        return await answered(self._collecting.Announcements(asked, timeout=self._deadline))

    async def query(self, asked: wire.QueryRequest) -> bytes:
        """One of the announced queries, from the aggregation server."""
        reply = await answered(self._collecting.Query(asked, timeout=self._deadline))
        return reply.query

    async def key(self, key_id: bytes) -> bytes:
        """A public key, from the aggregation server; phones that share the channel fetch it once."""
        known = self._connection.public_keys
        async with self._connection.fetching:
            if key_id in known:
                return known[key_id]
            reply = await answered(self._collecting.Key(wire.KeyRequest(key_id=key_id), timeout=self._deadline))
            if PublicKey.id_of(reply.public_key) == key_id:
                known[key_id] = reply.public_key
                while len(known) > KEYS_KEPT:
                    known.popitem(last=False)
        return reply.public_key

    async def contribute(self, contribution: wire.Contribution) -> wire.Acknowledgement:
        """To the aggregation server."""
        return await answered(self._collecting.Contribute(contribution, timeout=self._deadline))

    async def decisions(self, wanted: Sequence[wire.DecisionWanted]) -> Sequence[wire.Decision]:
        """Of the aggregation server, which has them from the key server."""
        asked = wire.DecisionsRequest(wanted=wanted)
        reply = await answered(self._collecting.Decisions(asked, timeout=self._deadline))
        return reply.decisions
