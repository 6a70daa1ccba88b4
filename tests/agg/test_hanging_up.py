"""Analysts who hang up, and servers that stop, while something is being done."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from pathlib import Path
from typing import Any

import pytest

from reticent.protocol import Refusal
from reticent.v1 import counting_pb2 as wire
from reticent_agg import SqlStore
from reticent_agg.store import CountersignedDeal, NewQuery, StoredQuery
from tests.agg.network import ANN, DEADLINE, Deciding, Network, network, phase, run
from tests.parties import aggregation
from tests.parties.aggregation import START
from tests.parties.waiting import until

pytestmark = pytest.mark.slow  # real connections


class Held(SqlStore):
    """A store that waits in the method that a test holds, until it may go on."""

    holds = ""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path)
        self.is_inside, self.let_go, self.was_let_go = threading.Event(), threading.Event(), True

    def _pass(self, method: str) -> None:
        if method == self.holds:
            self.is_inside.set()
            self.was_let_go = self.let_go.wait(DEADLINE / 3)

    def announce(self, query: NewQuery) -> StoredQuery:
        self._pass("announce")
        return super().announce(query)

    def abort(self, query_id: str) -> StoredQuery | None:
        self._pass("abort")
        return super().abort(query_id)

    def countersign(self, digest: bytes, deal: CountersignedDeal) -> bool:
        self._pass("countersign")
        return super().countersign(digest, deal)

    def queries_of(self, owner: str | None, below: int, limit: int) -> list[tuple[int, str]]:
        self._pass("queries_of")
        return super().queries_of(owner, below, limit)


def held(net: Network, method: str) -> Held:
    assert isinstance(net.server.store, Held)
    net.server.store.holds = method
    return net.server.store


async def hang_up(store: Held, analyst: Any, call: Any) -> None:
    """When the server has begun; and have it go on only when it must have noticed."""
    await until(store.is_inside.is_set)
    call.cancel()
    for _ in range(3):
        await analyst.List(wire.ListRequest())
    store.let_go.set()


def test_what_is_aborted_is_burnt_though_the_analyst_hangs_up(tmp_path: Path, certs: Path) -> None:
    async def abort() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address, Held) as net:
            analyst, query = await net.analyst(), aggregation.make_query()
            await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            await hang_up(held(net, "abort"), analyst, analyst.Abort(wire.AbortRequest(id=query.id)))
            await until(lambda: phase(net, query) == wire.DECIDED)

    run(abort())


def test_what_is_announced_is_countersigned_though_the_analyst_hangs_up(tmp_path: Path, certs: Path) -> None:
    async def announce() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address, Held) as net:
            analyst, query = await net.analyst(), aggregation.make_query()
            call = analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            await hang_up(held(net, "announce"), analyst, call)
            await until(lambda: len(net.server.replies.list_queries(ANN).queries) == 1)
            await until(lambda: phase(net, query) == wire.COLLECTING)

    run(announce())


def test_what_is_countersigned_is_closed_in_time_though_the_analyst_hangs_up(
    tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent_agg.work_pool.MIN_PAUSE", 2 * DEADLINE)
    monkeypatch.setattr("reticent_agg.work_pool.MAX_PAUSE", 2 * DEADLINE)

    async def announce() -> None:
        keys = Deciding(certs, refuses=Refusal.UNAVAILABLE)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address, Held) as net:
            analyst, first, query = (
                await net.analyst(),
                aggregation.make_query(closes_after=7200),
                aggregation.make_query(),
            )
            await analyst.Announce(wire.AnnounceRequest(query=first.to_bytes()))
            keys.refuses = None
            store = held(net, "countersign")
            await hang_up(store, analyst, analyst.Announce(wire.AnnounceRequest(query=query.to_bytes())))
            await until(lambda: phase(net, query) == wire.COLLECTING)
            for _ in range(3):  # the server goes to wait for its clock
                await analyst.List(wire.ListRequest())
            await net.clock.move_to(START + dt.timedelta(seconds=query.closes_after))
            await until(lambda: phase(net, query) == wire.DECIDED)

    run(announce())


def test_a_server_stops_without_reading_what_nobody_waits_for_any_more(tmp_path: Path, certs: Path) -> None:
    async def stop() -> None:
        async with network(tmp_path, certs, "127.0.0.1:1", Held) as net:
            store, analyst = held(net, "queries_of"), await net.analyst()
            calls = [analyst.List(wire.ListRequest()) for _ in range(3)]
            await until(store.is_inside.is_set)
            for call in calls:
                call.cancel()
            asyncio.get_running_loop().call_later(1.0, store.let_go.set)  # while the server stops
        assert store.was_let_go  # which kept nothing else from being done

    run(stop())
