"""Queries that close on PostgreSQL while other processes take contributions."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_agg import SqlStore
from reticent_agg.store import EncryptedSum, PutResult
from tests.agg.store_conformance.values import batch, collecting, head_of, phones_in, put, request_of
from tests.parties import aggregation
from tests.parties.aggregation import Phone

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
        closed = thread.submit(other.close_query, digest, make_request)
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
