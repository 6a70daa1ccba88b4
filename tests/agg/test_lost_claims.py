"""Processes over one PostgreSQL database whose claims of a sum of their own are lost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from reticent_agg import SqlStore
from reticent_agg.store import PutResult
from tests.agg.store_conformance.values import batch, closed, collecting, head_of, phones_in, put
from tests.core.storage.notes import hung, kill_connections
from tests.postgres import new_server

pytestmark = pytest.mark.slow


def shards(store: SqlStore) -> list[tuple[int, int]]:
    with store.database.reading() as run:
        return run("SELECT shard, contributors FROM sums ORDER BY shard").fetchall()


def test_a_process_that_loses_its_claim_adds_to_another_sum_from_then_on(postgres: str) -> None:
    with contextlib.closing(SqlStore(postgres)) as one, contextlib.closing(SqlStore(postgres)) as other:
        digest = collecting(one)
        with one.serving():
            put(one, digest, 0)
            kill_connections(postgres)
            with other.serving():
                put(other, digest, 1)
                assert put(one, digest, 2, 3) == [PutResult.COUNTED] * 2
                assert put(one, digest, 3, 4) == [PutResult.REPEATED, PutResult.COUNTED]
        assert shards(one) == [(0, 2), (1, 3)]
        closed(other, digest)
        assert phones_in(head_of(other, digest)) == {0, 1, 2, 3, 4}


def test_a_process_that_is_idle_keeps_its_claim(postgres: str) -> None:
    with contextlib.closing(SqlStore(postgres)) as one, contextlib.closing(SqlStore(postgres)) as other:
        digest = collecting(one)
        with one.serving():
            kill_connections(postgres)
            one.check_claim()  # as it does now and then
            with other.serving():
                other.put_contributions([batch(digest, 1)], 0)
        assert shards(one) == [(1, 1)]


def test_a_process_claims_again_after_postgresql_has_crashed() -> None:
    own = new_server()
    with (
        own.database() as url,
        contextlib.closing(SqlStore(url)) as one,
        contextlib.closing(SqlStore(url)) as other,
        one.serving(),
    ):
        digest = collecting(one)
        put(one, digest, 0)
        own.kill()
        for call in (lambda: put(one, digest, 1), one.check_claim):
            with pytest.raises(OSError, match="refused"):
                call()
        own.start()
        assert put(one, digest, 1) == [PutResult.COUNTED]
        with other.serving():
            put(other, digest, 2)
        assert shards(one) == [(0, 2), (1, 1)]
    own.stop()


def test_a_process_that_finds_no_slot_again_adds_nothing_until_one_is_free(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent_agg.sql_store.MAX_PROCESSES", 1)
    with contextlib.closing(SqlStore(postgres)) as one, contextlib.closing(SqlStore(postgres)) as other:
        digest = collecting(one)
        with one.serving():
            kill_connections(postgres)
            with other.serving(), pytest.raises(OSError, match="another process serves"):
                put(one, digest, 0)
            assert put(one, digest, 0) == [PutResult.COUNTED]


def test_a_postgresql_process_that_hangs_holds_up_contributions_for_a_limited_time(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent.storage._postgres_connection.ANSWER_TIMEOUT", 0.5)
    with contextlib.closing(SqlStore(postgres)) as store, store.serving():
        digest = collecting(store)
        with hung(store.database):
            started = time.monotonic()
            with pytest.raises(OSError, match="no answer"):
                put(store, digest, 0)
            assert time.monotonic() - started < 5
            assert put(store, digest, 0) == [PutResult.COUNTED]


@pytest.mark.parametrize("known", [[], [5]], ids=["the first", "a later"])
def test_two_processes_that_add_to_one_sum_at_the_same_time_lose_nothing(postgres: str, known: list[int]) -> None:
    """As if both had claimed the same slot. One is in the middle when the other one begins."""
    with contextlib.closing(SqlStore(postgres)) as one, contextlib.closing(SqlStore(postgres)) as other:
        digest = collecting(one)
        put(one, digest, *known)
        is_adding = threading.Event()
        first = batch(digest, 0, 1)

        def slowly(ciphertexts: bytes, places: Sequence[int]) -> bytes:
            is_adding.set()
            time.sleep(0.5)
            return first.add(ciphertexts, places)

        with ThreadPoolExecutor(1) as thread:
            slow = thread.submit(one.put_contributions, [replace(first, add=slowly)], 0)
            assert is_adding.wait(20)
            assert put(other, digest, 2, 3) == [PutResult.COUNTED] * 2
            assert slow.result() == [[PutResult.COUNTED] * 2]
        assert shards(one) == [(0, 4 + len(known))]
        closed(other, digest)
        assert phones_in(head_of(other, digest)) == {0, 1, 2, 3, *known}
