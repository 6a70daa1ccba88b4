"""Retention while serving: old participation records go, some rows at a time, and contributions continue meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import pytest

from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg import SqlStore
from reticent_agg.retention import INTERVAL, ROWS_AT_ONCE
from reticent_agg.store import CohortBatch, CountersignedDeal, EncryptedSum, NewQuery, PutResult
from tests.agg.network import Deciding, network, run
from tests.parties import aggregation
from tests.parties.aggregation import START, Phone
from tests.parties.waiting import until

pytestmark = pytest.mark.slow  # real connections, and many rows

PHONES = 20_000
KEEP = dt.timedelta(days=30)
OLD = b"old".ljust(32)


class Watched(SqlStore):
    """A store that notes which of two writes happen, in their order, and how many rows are left after each."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.writes: list[str] = []
        self.left: list[int] = [PHONES]

    def prune(self, before: int, rows: int) -> list[str] | None:
        finished = super().prune(before, rows)
        if finished is not None:
            self.writes.append("prune")
            self.left.append(left_in(self))
        return finished

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        results = super().put_contributions(batches, now)
        self.writes.append("contribute")
        return results


def left_in(store: SqlStore) -> int:
    with store.database.reading() as rows:
        number: int = rows("SELECT count(*) FROM dealt WHERE query = 1").fetchone()[0]
    return number


def prepared(path: Path) -> None:
    """A query of many phones, decided at the start of the test's time."""
    with contextlib.closing(SqlStore(path)) as store:
        store.announce(NewQuery(OLD, "old", b"content", None, 1))
        phones = [
            wire.Dealt(phone=number.to_bytes(16, "big"), verify_key=bytes(32), cohort=0)
            for number in range(1, PHONES + 1)
        ]
        store.countersign(OLD, CountersignedDeal(bytes(32), bytes(64), phones, 1, [1], b"zero"))
        store.close_query(OLD, request, 1)
        store.decide(wire.Decision(query=OLD, outcome=wire.BURNT), lambda _: None, milliseconds(START))


def request(cohort: EncryptedSum) -> wire.DecideHead:
    return wire.DecideHead(query=OLD, cohort=cohort.cohort)


def test_contributions_continue_while_a_large_query_is_pruned_and_another_server_goes_on(
    tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent_agg.retention.PAUSE", 0.2)
    prepared(tmp_path / "aggregation.db")

    async def serve() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener:
            async with network(tmp_path, certs, listener.address, Watched, keep=KEEP) as net:
                store = net.server.store
                assert isinstance(store, Watched)
                net.server.queries.learn(keys.keys.terms())
                query = aggregation.collecting(net.server, aggregation.make_query(12, closes_after=366 * 86400))
                phones = await net.phones()
                assert store.writes == []  # it is not old enough
                await net.clock.move_to(START + KEEP)
                while len(store.left) == 1:
                    await asyncio.sleep(0.05)
                    await net.clock.move_to(net.clock.now() + INTERVAL)
                for number in range(12):
                    await phones.Contribute(Phone(number).contribution(query))
                await until(lambda: len(store.left) >= 3)
                rounds = [place for place, write in enumerate(store.writes) if write == "prune"]
                assert "contribute" in store.writes[rounds[0] : rounds[-1]]
                assert store.left == [PHONES - each * ROWS_AT_ONCE for each in range(len(store.left))]
                assert 0 < store.left[-1] < PHONES
            monkeypatch.setattr("reticent_agg.retention.PAUSE", 0.0)
            async with network(tmp_path, certs, listener.address, Watched, keep=-INTERVAL) as net:
                other = net.server.store
                assert isinstance(other, Watched)
                await until(lambda: other.left[-1] == 0)
                assert len(other.left) <= 1 + PHONES // ROWS_AT_ONCE

    run(serve())
