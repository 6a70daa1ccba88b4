"""The aggregation server on the network, a key server that may be away, and ways to both."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from reticent.clock import ManualClock
from reticent.privacy import Query
from reticent.protocol import Refusal, Refused
from reticent.protocol.calls import reply_of
from reticent.protocol.channels import AGGREGATION_SERVER, channel, channel_credentials
from reticent.randomness import secure
from reticent.rpc import Admission, Caller
from reticent.rpc.admission import stream_in, stream_out, unary
from reticent.rpc.listener import Listener
from reticent.tls.certificates import Certificate, create
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_agg import AggregationServer, SqlStore
from reticent_agg.service import AggregationService
from tests.parties.aggregation import START, KeyServer

LOCAL = "127.0.0.1:0"
DEADLINE = 30.0
ANN = "analyst ann"
"""By this name the server knows her from her certificate."""
DECIDING = "reticent.v1.Deciding"


def certified(folder: Path) -> Path:
    """A folder of certificates for this machine."""
    create(folder, hosts=["127.0.0.1"], analysts=["ann", "bob"], days=2)
    return folder


@dataclass
class Deciding:
    """A key server on the network, with what it was asked."""

    certs: Path
    refuses: Refusal | None = None
    faults: dict[bytes, Exception] = field(default_factory=dict)
    """What goes wrong with queries, by their digests."""
    forges: set[bytes] = field(default_factory=set)
    """For these it signs something else."""
    gate: asyncio.Event | None = None
    """Nothing is countersigned until it is set."""
    decides: asyncio.Event | None = None
    """Nothing is decided until it is set."""
    hangs: set[bytes] = field(default_factory=set)
    """For these, by the digests of queries, no answer ever comes."""
    heads: list[wire.DecideHead] = field(default_factory=list)
    countersigned: list[bytes] = field(default_factory=list)
    """The digests of the queries that it was asked to countersign."""
    deciding: int = 0
    """The calls that are being decided."""
    most_at_a_time: int = 0
    """The most such calls."""
    keys: KeyServer = field(default_factory=KeyServer)

    def listener(self, address: str = LOCAL) -> Listener:
        admission = Admission((AGGREGATION_SERVER,))
        methods = {
            "GetTerms": unary(admission, wire.TermsRequest, self.get_terms),
            "Countersign": stream_out(admission, wire.CountersignRequest, self.countersign),
            "Decide": stream_in(admission, wire.DecideRequest, self.decide),
        }
        credentials = Certificate.load(self.certs, "keys").server_credentials(mutual=True)
        return Listener(address, {DECIDING: methods}, credentials=credentials)

    async def get_terms(self, _: wire.TermsRequest, _caller: Caller) -> wire.Terms:
        return self.keys.terms()

    async def countersign(self, request: wire.CountersignRequest, _: Caller) -> AsyncIterator[wire.Deal]:
        query = Query.from_bytes(request.query)
        self.countersigned.append(query.digest)
        self._fail(query.digest)
        await self._hang(query.digest)
        if self.gate is not None:
            await self.gate.wait()
        others = {"countersignature": bytes(64)} if query.digest in self.forges else {}
        for deal in self.keys.deals(query, **others):
            yield deal

    async def decide(self, messages: AsyncIterator[wire.DecideRequest], _: Caller) -> wire.Decision:
        found = [message async for message in messages]
        head, receipts = found[0].head, [each for more in found[1:] for each in more.receipts.receipts]
        self.heads.append(head)
        self._fail(head.query)
        self.deciding += 1
        self.most_at_a_time = max(self.most_at_a_time, self.deciding)
        try:
            await self._hang(head.query)
            if self.decides is not None:
                await self.decides.wait()
        finally:
            self.deciding -= 1
        decision = self.keys.decision(head, receipts)
        if head.query in self.forges:
            decision.signature = bytes(64)
        return decision

    def _fail(self, digest: bytes) -> None:
        if self.refuses is not None:
            raise Refused(self.refuses, "as the test says")
        if digest in self.faults:
            raise self.faults[digest]

    async def _hang(self, digest: bytes) -> None:
        if digest in self.hangs:
            await asyncio.Event().wait()


@dataclass
class Network:
    """A server that serves, with ways to it."""

    server: AggregationServer
    service: AggregationService
    clock: ManualClock
    certs: Path
    stack: contextlib.AsyncExitStack

    async def way(self, address: str, name: str | None) -> grpc.aio.Channel:
        if name is None:
            credentials = channel_credentials(Certificate.load(self.certs, "ann").authority)
        else:
            credentials = Certificate.load(self.certs, name).channel_credentials()
        return await self.stack.enter_async_context(channel(address, credentials))

    async def phones(self) -> counting_pb2_grpc.CollectingAsyncStub:
        return counting_pb2_grpc.CollectingStub(await self.way(self.service.phones_address, None))

    async def analyst(self, name: str | None = "ann") -> counting_pb2_grpc.CountingAsyncStub:
        return counting_pb2_grpc.CountingStub(await self.way(self.service.analysts_address, name))


@contextlib.asynccontextmanager
async def network(
    folder: Path,
    certs: Path,
    key_server: str,
    store: Callable[[Path], SqlStore] = SqlStore,
    keep: dt.timedelta | None = None,
) -> AsyncIterator[Network]:
    clock = ManualClock(START)
    server = AggregationServer(
        store(folder / "aggregation.db"),
        identity=KeyServer.identity.public,
        now=clock.now,
        rng=secure(),
        simulation=True,
    )
    mine = Certificate.load(certs, "aggregation")
    with contextlib.closing(server):
        async with (
            channel(key_server, mine.channel_credentials()) as way,
            AggregationService(
                server,
                clock=clock,
                key_server=way,
                phones=LOCAL,
                analysts=LOCAL,
                phones_credentials=mine.server_credentials(mutual=False),
                analysts_credentials=mine.server_credentials(mutual=True),
                keep=keep,
            ) as service,
            contextlib.AsyncExitStack() as stack,
        ):
            yield Network(server, service, clock, certs, stack)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, DEADLINE))


async def refusal_of(call: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await reply_of(call)
    return caught.value


def phase(net: Network, query: Query) -> wire.Phase.ValueType:
    return net.server.replies.status(wire.StatusRequest(id=query.id), ANN).phase
