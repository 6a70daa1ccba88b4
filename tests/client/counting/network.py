"""The signer of the tests behind a real port, with TLS: what it is told to refuse it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from reticent.privacy import Query
from reticent.protocol import Refused, signed_by, statements
from reticent.protocol.calls import REFUSAL, RETRY_AFTER
from reticent.protocol.invitation import Invitation
from reticent.tls.certificates import Certificate, create
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import (
    CollectingServicer,
    EnrolmentServicer,
    add_CollectingServicer_to_server,
    add_EnrolmentServicer_to_server,
)
from tests.client.counting.world import MEMBERSHIP, Servers

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Network(EnrolmentServicer, CollectingServicer):
    """Both servers, each at a port of its own.

    Args:
        servers: Who signs.
    """

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.address = ""
        """Of the key server."""
        self.collecting = ""
        """Of the aggregation server."""
        self.authority = ""
        self.queries: list[Query] = []
        self.taken: dict[bytes, list[bytes]] = {}
        self.outcome: wire.Outcome.ValueType | None = None
        self.calls: Counter[str] = Counter()
        self.refusals: dict[str, Refused] = {}
        self.silent: set[str] = set()
        self.again_in_ms = 60_000
        self.membership = MEMBERSHIP
        self.reached = asyncio.Event()
        """Whether anything was contributed."""

    @property
    def invitation(self) -> Invitation:
        return Invitation(bytes(16), self.servers.identity.public, self.authority, self.address, self.collecting)

    @contextlib.asynccontextmanager
    async def listening(self, folder: Path) -> AsyncIterator[Network]:
        """Serve, with certificates in a folder."""
        if not (folder / "keys.crt").exists():
            create(folder, hosts=["localhost"], analysts=[])
        keys, aggregation = Certificate.load(folder, "keys"), Certificate.load(folder, "aggregation")
        server = grpc.aio.server()
        add_EnrolmentServicer_to_server(self, server)
        add_CollectingServicer_to_server(self, server)
        self.address = self._at(server, self.address, keys)
        self.collecting = self._at(server, self.collecting, aggregation)
        self.authority = keys.authority.decode()
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)

    @staticmethod
    def _at(server: grpc.aio.Server, address: str, certificate: Certificate) -> str:
        credentials = certificate.server_credentials(mutual=False)
        return f"localhost:{server.add_secure_port(address or '127.0.0.1:0', credentials)}"

    async def Join(self, request: wire.JoinRequest, context: Context) -> wire.Membership:  # noqa: N802
        await self._called("Join", context)
        return self.servers.enrol(request, dt.datetime.now(dt.UTC) + self.membership)

    async def Renew(self, request: wire.RenewRequest, context: Context) -> wire.Membership:  # noqa: N802
        await self._called("Renew", context)
        return self.servers.membership(request.phone, dt.datetime.now(dt.UTC) + self.membership)

    async def Leave(self, request: wire.LeaveRequest, context: Context) -> wire.LeaveReply:  # noqa: N802
        await self._called("Leave", context)
        return wire.LeaveReply()

    async def Announcements(self, request: Any, context: Context) -> wire.AnnouncementsReply:  # noqa: N802
        await self._called("Announcements", context)
        announcements = [self.servers.announce(query) for query in self.queries]
        return wire.AnnouncementsReply(announcements=announcements, again_in_ms=self.again_in_ms)

    async def Query(self, request: wire.QueryRequest, context: Context) -> wire.QueryReply:  # noqa: N802
        await self._called("Query", context)
        statement = statements.fetching(request.query, request.phone)
        assert signed_by(self.servers.phones[request.phone], statement, request.signature)
        found = next(query for query in self.queries if query.digest == request.query)
        return wire.QueryReply(query=found.to_bytes())

    async def Key(self, request: wire.KeyRequest, context: Context) -> wire.KeyReply:  # noqa: N802
        await self._called("Key", context)
        assert request.key_id == self.servers.public.key_id
        return wire.KeyReply(public_key=self.servers.public.to_bytes())

    async def Contribute(self, request: wire.Contribution, context: Context) -> wire.Acknowledgement:  # noqa: N802
        self.taken.setdefault(request.query, []).append(request.SerializeToString())
        self.reached.set()
        await self._called("Contribute", context)
        query = next(query for query in self.queries if query.digest == request.query)
        return self.servers.acknowledge(query, request)

    async def Decisions(self, request: wire.DecisionsRequest, context: Context) -> wire.DecisionsReply:  # noqa: N802
        await self._called("Decisions", context)
        if self.outcome is None:
            return wire.DecisionsReply()
        wanted = {each.query for each in request.wanted}
        queries = (query for query in self.queries if query.digest in wanted)
        return wire.DecisionsReply(decisions=[self.servers.decide(query, self.outcome) for query in queries])

    async def _called(self, method: str, context: Context) -> None:
        self.calls[method] += 1
        if method in self.silent:
            await asyncio.sleep(3600)
        refused = self.refusals.get(method)
        if refused is not None:
            trailing = [(REFUSAL, refused.refusal.name)]
            if refused.retry_after is not None:
                trailing.append((RETRY_AFTER, str(int(refused.retry_after * 1000))))
            context.set_trailing_metadata(tuple(trailing))
            await context.abort(grpc.StatusCode[refused.refusal.status], refused.detail)
