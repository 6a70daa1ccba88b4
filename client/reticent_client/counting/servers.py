"""The calls of a phone to the two servers. It shows no certificate; its invitation has the one that they show."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from google.protobuf.message import Message

from reticent.paillier import PublicKey
from reticent.protocol.calls import reply_of
from reticent.protocol.channels import AGGREGATION_SERVER, KEY_SERVER, channel, channel_credentials
from reticent.protocol.invitation import Invitation
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CollectingStub, EnrolmentStub
from reticent_client.shared import SharedObjects

if TYPE_CHECKING:
    from reticent.v1.counting_pb2_grpc import CollectingAsyncStub, EnrolmentAsyncStub

__all__ = ["Servers"]

Reply = TypeVar("Reply")

DEADLINE = 30.0
"""Seconds for a reply."""
CONCURRENT_CALLS = 8
"""Calls at a time over the channels that phones share: half of what servers allow a connection."""
KEYS_KEPT = 8
"""Public keys that are kept for all phones of a channel."""


class _ServerChannels:
    """The channels to both servers, for all phones of an event loop that use these servers."""

    def __init__(self, invitation: Invitation) -> None:
        credentials = channel_credentials(invitation.authority.encode())
        self.to_keys = channel(invitation.key_server, credentials, KEY_SERVER)
        self.to_aggregation = channel(invitation.aggregation_server, credentials, AGGREGATION_SERVER)
        self.public_keys: OrderedDict[bytes, bytes] = OrderedDict()
        self.fetches: dict[bytes, asyncio.Task[bytes]] = {}
        self.calls = asyncio.Semaphore(CONCURRENT_CALLS)

    async def close(self) -> None:
        await self.to_keys.close()
        await self.to_aggregation.close()


_shared: SharedObjects[_ServerChannels] = SharedObjects()


class Servers:
    """Both servers, while it is entered. Every call ends by a deadline.

    Phones of one event loop that use the same servers share one channel to each of them.

    Each method raises `Refused` where a server refuses and `Unreachable` where no reply comes.

    Args:
        invitation: Says where they are.
        deadline: Seconds for a reply.
    """

    def __init__(self, invitation: Invitation, *, deadline: float = DEADLINE) -> None:
        self.invitation = invitation
        self._deadline = deadline
        self._open = contextlib.AsyncExitStack()

    @property
    def keys(self) -> str:
        """The name of the key server in messages."""
        return f"the key server at {self.invitation.key_server}"

    @property
    def aggregation(self) -> str:
        """The name of the aggregation server in messages."""
        return f"the aggregation server at {self.invitation.aggregation_server}"

    async def __aenter__(self) -> Self:
        """Connections are made when they are needed."""
        self._connection = await self._open.enter_async_context(
            _shared.use(self._name, partial(_ServerChannels, self.invitation))
        )
        self._enrolment: EnrolmentAsyncStub = EnrolmentStub(self._connection.to_keys)
        self._collecting: CollectingAsyncStub = CollectingStub(self._connection.to_aggregation)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up, where no other phone needs the channels."""
        await self._open.__aexit__(kind, error, trace)

    async def wait_for_key_server(self) -> None:
        """Return when the key server can be reached."""
        await self._connection.to_keys.channel_ready()

    async def wait_for_aggregation_server(self) -> None:
        """Return when the aggregation server can be reached."""
        await self._connection.to_aggregation.channel_ready()

    @property
    def _name(self) -> tuple[str, str, str]:
        return self.invitation.authority, self.invitation.key_server, self.invitation.aggregation_server

    async def join(self, request: wire.JoinRequest) -> wire.Membership:
        """Of the key server."""
        return await self._reply(self._enrolment.Join, request)

    async def renew(self, request: wire.RenewRequest) -> wire.Membership:
        """Of the key server."""
        return await self._reply(self._enrolment.Renew, request)

    async def leave(self, request: wire.LeaveRequest) -> None:
        """Of the key server."""
        await self._reply(self._enrolment.Leave, request)

    async def announcements(self, phone: bytes, after: int = 0) -> wire.AnnouncementsReply:
        """A page of announcements, from the aggregation server; the first one, or that after another one's `next`."""
        return await self._reply(self._collecting.Announcements, wire.AnnouncementsRequest(phone=phone, after=after))

    async def query(self, request: wire.QueryRequest) -> bytes:
        """One of the announced queries, from the aggregation server."""
        return (await self._reply(self._collecting.Query, request)).query

    async def key(self, key_id: bytes) -> bytes:
        """A public key, from the aggregation server; phones that share the channel fetch it once."""
        known, fetches = self._connection.public_keys, self._connection.fetches
        if key_id in known:
            return known[key_id]
        if key_id not in fetches:
            fetches[key_id] = asyncio.create_task(self._fetched_key(key_id))
            fetches[key_id].add_done_callback(lambda _: fetches.pop(key_id))
        return await asyncio.shield(fetches[key_id])

    async def contribute(self, contribution: wire.Contribution) -> wire.Acknowledgement:
        """To the aggregation server."""
        return await self._reply(self._collecting.Contribute, contribution)

    async def decisions(self, awaited: Sequence[wire.DecisionWanted]) -> Sequence[wire.Decision]:
        """Of the aggregation server, which has them from the key server."""
        return (await self._reply(self._collecting.Decisions, wire.DecisionsRequest(wanted=awaited))).decisions

    async def _fetched_key(self, key_id: bytes) -> bytes:
        reply = await self._reply(self._collecting.Key, wire.KeyRequest(key_id=key_id))
        known = self._connection.public_keys
        if PublicKey.id_of(reply.public_key) == key_id:
            known[key_id] = reply.public_key
            while len(known) > KEYS_KEPT:
                known.popitem(last=False)
        return reply.public_key

    async def _reply(self, method: Callable[..., Awaitable[Reply]], request: Message) -> Reply:
        async with self._connection.calls:
            return await reply_of(method(request, timeout=self._deadline))
