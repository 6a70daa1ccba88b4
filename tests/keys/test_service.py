"""The key server's threads: work that takes long holds up no other work."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from reticent.protocol.calls import reply_of
from reticent.tls.certificates import Certificate, create
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc as services
from reticent_keys import SqlJournal
from reticent_keys.service import FOR_DECISIONS, Service
from tests.keys.processes import decided
from tests.parties.key_server import LocalKeyServer

SECONDS = 10.0


async def phones_of(stub: Any, content: bytes) -> int:
    """How many phones are dealt to a query."""
    call = stub.Countersign(wire.CountersignRequest(query=content), timeout=SECONDS)
    return sum([len(deal.phones) async for deal in call])


def test_queries_that_wait_for_their_deal_hold_up_no_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the terms. One query is dealt at a time, and other queries wait for it."""
    create(tmp_path / "certs", hosts=["localhost"], analysts=[])
    countersign, may_deal, waiting = SqlJournal.countersign, threading.Event(), []

    def slow(*arguments: Any) -> Any:
        waiting.append(arguments)
        assert may_deal.wait(SECONDS)
        return countersign(*arguments)

    async def run(local: LocalKeyServer) -> None:
        queries = [local.query(id=f"query {number}") for number in range(FOR_DECISIONS + 2)]
        dealt = queries.pop()
        local.deal(dealt)
        monkeypatch.setattr(SqlJournal, "countersign", slow)
        certificates = [Certificate.load(tmp_path / "certs", name) for name in ("keys", "aggregation")]
        free = "localhost:0"
        service = Service(local.server, phones=free, decisions=free, certificate=certificates[0])
        credentials = certificates[1].channel_credentials()
        async with service, grpc.aio.secure_channel(service.decisions.address, credentials) as to:
            stub: Any = services.DecidingStub(to)
            deals = [asyncio.create_task(phones_of(stub, query.to_bytes())) for query in queries]
            async with asyncio.timeout(SECONDS):
                while not waiting:  # noqa: ASYNC110  # in the server's threads
                    await asyncio.sleep(0.01)
            try:
                terms: wire.Terms = await reply_of(stub.GetTerms(wire.TermsRequest(), timeout=SECONDS / 2))
                burn = await asyncio.wait_for(decided(to, wire.DecideHead(query=dealt.digest), []), SECONDS / 2)
            finally:
                may_deal.set()
            assert (terms.population, burn.outcome) == (20, wire.BURNT)
            assert await asyncio.gather(*deals) == [20] * len(queries)

    with LocalKeyServer(tmp_path / "journal.db") as local:
        local.enrolled(20)
        asyncio.run(run(local))
