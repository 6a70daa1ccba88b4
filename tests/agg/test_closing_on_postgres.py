"""Queries that close on PostgreSQL while other processes take contributions."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_agg import SqlStore
from reticent_agg.store import EncryptedSum, PutResult
from tests.agg.network import Deciding, network, phase, run
from tests.agg.store_conformance.values import CLOSES, batch, collecting, head_of, phones_in, put, request_of
from tests.parties import aggregation
from tests.parties.aggregation import START, Phone
from tests.parties.waiting import until

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def closing_slowly(url: str, digest: bytes) -> Iterator[None]:
    """Another process is in the middle of closing a query, until this ends."""
    inside, go = threading.Event(), threading.Event()

    def make_request(cohort: EncryptedSum) -> wire.DecideHead:
        inside.set()
        assert go.wait(60)
        return request_of(digest, cohort)

    with contextlib.closing(SqlStore(url)) as other, ThreadPoolExecutor(1) as thread:
        closed = thread.submit(other.close_query, digest, make_request, CLOSES)
        try:
            assert inside.wait(20)
            yield
        finally:
            go.set()
        assert closed.result()


def test_contributions_to_another_query_do_not_wait_for_the_one_that_closes(postgres: str) -> None:
    with contextlib.closing(SqlStore(postgres)) as store:
        one, other = collecting(store, "one"), collecting(store, "other")
        put(store, one, 0)
        with closing_slowly(postgres, one):
            started = time.monotonic()
            results = store.put_contributions([batch(one, 1, 2), batch(other, 1, 2)], 0)
            assert time.monotonic() - started < 5  # a lock is waited for 10 s
            assert results == [[PutResult.BUSY] * 2, [PutResult.COUNTED] * 2]
        assert put(store, one, 1) == [PutResult.LATE]
        assert phones_in(head_of(store, one)) == {0}


@contextlib.contextmanager
def contributing_slowly(url: str, *digests: bytes) -> Iterator[None]:
    """Another process is in the middle of contributions to these queries, until this ends."""
    with contextlib.closing(SqlStore(url)) as other, other.database.transaction():
        assert all(other.database.try_lock_shared(digest) for digest in digests)
        yield


HoldUp = Callable[..., contextlib.AbstractContextManager[None]]


async def check_others_are_served(certs: Path, postgres: str, hold_up: HoldUp) -> None:
    """While another process holds up two queries that are due, a third one collects, and closes."""
    keys = Deciding(certs)

    def store(_: Path) -> SqlStore:
        return SqlStore(postgres)

    async with keys.listener() as listener, network(certs, certs, listener.address, store) as net:
        analyst, phones = await net.analyst(), await net.phones()
        held, query = [aggregation.make_query(closes_after=60) for _ in range(2)], aggregation.make_query(enough=6)
        for each in (*held, query):
            await analyst.Announce(wire.AnnounceRequest(query=each.to_bytes()))
        with hold_up(postgres, *(each.digest for each in held)):
            await net.clock.move_to(START + dt.timedelta(seconds=61))
            for number in range(6):
                started = time.monotonic()
                await phones.Contribute(Phone(number).contribution(query), timeout=20)
                assert time.monotonic() - started < 2
                await asyncio.sleep(0.1)
            await until(lambda: [head.query for head in keys.heads] == [query.digest])
        await until(lambda: all(phase(net, each) != wire.COLLECTING for each in held))


@contextlib.contextmanager
def both_closing_slowly(url: str, *digests: bytes) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for digest in digests:
            stack.enter_context(closing_slowly(url, digest))
        yield


@pytest.mark.parametrize("hold_up", [both_closing_slowly, contributing_slowly])
def test_a_process_that_holds_up_queries_delays_no_acknowledgement_of_another(
    certs: Path, postgres: str, hold_up: HoldUp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("reticent_agg.service.LOCKED_PAUSE", 0.05)
    run(check_others_are_served(certs, postgres, hold_up))
    assert caplog.text.count("queries cannot be closed now") == 1


def test_a_query_closes_though_contributions_to_it_never_pause(postgres: str) -> None:
    """Three processes lock it all the time, each for some milliseconds."""
    with contextlib.closing(SqlStore(postgres)) as store:
        digest = collecting(store)
        end = threading.Event()

        def contribute(number: int) -> None:
            with contextlib.closing(SqlStore(postgres)) as other:
                while not end.is_set():
                    with other.database.transaction():
                        if other.database.try_lock_shared(digest):
                            time.sleep(0.01 + 0.003 * number)

        with ThreadPoolExecutor(3) as threads:
            contributing = [threads.submit(contribute, number) for number in range(3)]
            try:
                time.sleep(0.5)
                assert store.close_query(digest, partial(request_of, digest), CLOSES)
            finally:
                end.set()
            for each in contributing:
                each.result()


def test_a_phone_is_told_to_retry_while_its_query_closes(postgres: str) -> None:
    server = aggregation.opened(postgres, aggregation.Time())
    with contextlib.closing(server):
        query = aggregation.collecting(server, aggregation.make_query())
        with closing_slowly(postgres, query.digest):
            (result,) = server.collection.contribute([Phone(0).contribution(query)])
        assert isinstance(result, Refused)
        assert (result.refusal, result.retry_after) == (Refusal.BUSY, 1.0)
        (result,) = server.collection.contribute([Phone(0).contribution(query)])
        assert isinstance(result, Refused)
        assert result.refusal is Refusal.LATE
