"""What a process checks while it serves: its claim and its clock; and faults of its store that end nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reticent.clock import ManualClock, SystemClock
from reticent.storage.sql import InUse
from reticent.v1 import counting_pb2 as wire
from reticent_agg import BadStore, SqlStore, WrongClock, health, metrics
from reticent_agg.health import check_clock
from reticent_agg.store import EncryptedSum
from tests.agg.network import Deciding, network, run
from tests.agg.store_conformance.values import collecting
from tests.core.storage.notes import kill_connections
from tests.parties import aggregation
from tests.parties.aggregation import START, Phone
from tests.parties.waiting import until


class ClosesNothing(SqlStore):
    """One query cannot be closed, because of a fault of ours."""

    broken = b""

    def close_query(
        self, digest: bytes, make_request: Callable[[EncryptedSum], wire.DecideHead], now: int, *, patience: float = 1.0
    ) -> bool:
        if digest == self.broken:
            raise ZeroDivisionError
        return super().close_query(digest, make_request, now, patience=patience)


class Found(SqlStore):
    """Finds that it was restored when contributions come."""

    def put_contributions(self, *_: Any) -> Any:
        raise BadStore("restored")

    def check_claim(self) -> None:
        if self.is_found:
            raise BadStore("restored")

    is_found = False


@pytest.mark.slow
def test_contributions_are_acknowledged_whatever_keeps_another_query_open(
    tmp_path: Path, certs: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address, ClosesNothing) as net:
            broken, query = (aggregation.make_query(population=2, enough=2, min_contributions=2) for _ in range(2))
            monkeypatch.setattr(ClosesNothing, "broken", broken.digest)
            analyst, phones = await net.analyst(), await net.phones()
            for each in (broken, query):
                await analyst.Announce(wire.AnnounceRequest(query=each.to_bytes()))
            for each in (broken, query):
                for number in range(2):
                    await phones.Contribute(Phone(number).contribution(each), timeout=10)
            await until(lambda: query.digest in {head.query for head in keys.heads})

    run(live())
    assert "queries cannot be closed" in caplog.text


@pytest.mark.slow
def test_a_store_that_was_restored_ends_the_service_at_once(
    tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address, Found) as net:
            query = aggregation.make_query()
            await (await net.analyst()).Announce(wire.AnnounceRequest(query=query.to_bytes()))
            monkeypatch.setattr(Found, "is_found", True)
            phones = await net.phones()
            sent = asyncio.ensure_future(phones.Contribute(Phone(0).contribution(query), timeout=10))
            with pytest.raises(BadStore, match="restored"):
                await asyncio.wait_for(net.service.wait(), 10)  # long before the next check
            await asyncio.gather(sent, return_exceptions=True)

    run(live())


@pytest.mark.slow
def test_a_service_checks_its_store_from_time_to_time(
    postgres: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without any contribution it claims its slot again, and goes on after the database was away."""
    monkeypatch.setattr(health, "INTERVAL", 0.01)
    monkeypatch.setattr("reticent_agg.sql_store.MAX_PROCESSES", 1)

    async def live(store: SqlStore, other: SqlStore) -> None:
        async def write(function: Callable[..., Any], *arguments: Any) -> Any:
            return await asyncio.to_thread(function, *arguments)

        task = asyncio.create_task(health.check_while_serving(store, write, SystemClock(), asyncio.Event()))
        await asyncio.sleep(0.2)
        monkeypatch.setattr(store, "clock", lambda: 1 / 0)
        await until(lambda: "ZeroDivisionError" in caplog.text)
        await asyncio.to_thread(kill_connections, postgres)
        await until(lambda: is_claimed(store))
        with pytest.raises(InUse), other.serving():
            pass
        assert not task.done()
        task.cancel()

    with contextlib.closing(SqlStore(postgres)) as store, contextlib.closing(SqlStore(postgres)) as other:
        collecting(store)
        with store.serving():
            asyncio.run(live(store, other))


def is_claimed(store: SqlStore) -> bool:
    assert store._claim is not None
    try:
        store._claim.check()
    except InUse:
        return False
    return True


@pytest.mark.slow
def test_a_clock_is_compared_with_that_of_the_database(
    postgres: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = 0.0
    honest = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda clock: honest(clock) + dt.timedelta(seconds=ahead))
    with contextlib.closing(SqlStore(postgres)) as store, caplog.at_level(logging.WARNING):
        assert check_clock(store, SystemClock())
        assert metrics.CLOCK_SKEW._value.get() == pytest.approx(0, abs=0.5)
        assert not caplog.records
        for ahead in (5.0, -5.0):
            assert not check_clock(store, SystemClock())
            assert metrics.CLOCK_SKEW._value.get() == pytest.approx(ahead, abs=0.5)
        assert "ahead of the database's by -5.0 s" in caplog.text
        for ahead in (100.0, -100.0):
            with pytest.raises(WrongClock, match=re.escape(f"differ by {ahead:+.1f} s")):
                check_clock(store, SystemClock())
        assert check_clock(store, ManualClock(START))  # a test's


def test_a_file_has_no_other_clock(path: Path) -> None:
    with contextlib.closing(SqlStore(path)) as store:
        assert check_clock(store, SystemClock())
