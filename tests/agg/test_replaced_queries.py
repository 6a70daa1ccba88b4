"""A rejected query is replaced on PostgreSQL while another process countersigns or aborts it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_agg import SqlStore
from reticent_agg.store import PutResult, StoredQuery
from tests.agg.store_conformance.values import batch, deal_of, known, new_query

pytestmark = pytest.mark.slow

DEADLINE = 20.0
FEW = Refused(Refusal.TOO_FEW_ENROLLED, "few")


@pytest.fixture
def stores(postgres: str) -> Iterator[tuple[SqlStore, SqlStore]]:
    """The stores of two processes, and a rejected query "q"."""
    with closing(SqlStore(postgres)) as one, closing(SqlStore(postgres)) as two:
        one.reject(one.announce(new_query()).digest, FEW)
        yield one, two


def held(function: Callable[..., Any], reached: threading.Event, go: threading.Event) -> Callable[..., Any]:
    """A function that waits before it runs."""

    def wait(*arguments: Any, **named: Any) -> Any:
        reached.set()
        assert go.wait(DEADLINE)
        return function(*arguments, **named)

    return wait


def test_a_query_that_is_countersigned_after_its_refusal_is_not_replaced(
    stores: tuple[SqlStore, SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The countersignature of one process is late: another one has kept a refusal, and its analyst announces again."""
    one, two = stores
    reached, go = threading.Event(), threading.Event()
    monkeypatch.setattr(one.database, "run_many", held(one.database.run_many, reached, go))
    digest = new_query().digest
    with ThreadPoolExecutor(2) as threads:
        countersigned = threads.submit(one.countersign, digest, deal_of())
        assert reached.wait(DEADLINE)
        announced = threads.submit(two.announce, new_query())
        threading.Timer(0.3, go.set).start()  # once the other waits
        assert countersigned.result(DEADLINE)
        assert announced.result(DEADLINE).phase == wire.COLLECTING
    assert known(two.query(digest)).phase == wire.COLLECTING
    assert len(two.dealt(digest, [each.phone for each in deal_of().phones])) == len(deal_of().phones)


def test_a_query_that_is_countersigned_after_its_refusal_is_not_pruned(
    stores: tuple[SqlStore, SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = stores
    reached, go = threading.Event(), threading.Event()
    monkeypatch.setattr(one.database, "run_many", held(one.database.run_many, reached, go))
    digest = new_query().digest
    with ThreadPoolExecutor(2) as threads:
        countersigned = threads.submit(one.countersign, digest, deal_of())
        assert reached.wait(DEADLINE)
        pruned = threads.submit(two.prune, 1000, 100)
        threading.Timer(0.3, go.set).start()
        assert countersigned.result(DEADLINE)
        assert pruned.result(DEADLINE) == []
    assert known(two.query(digest)).phase == wire.COLLECTING


def test_an_abort_that_waited_locks_the_query_that_has_the_name_now(
    stores: tuple[SqlStore, SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query is replaced before the abort has its lock, and a contribution to the new one is under way."""
    one, two = stores
    old, new = new_query(), new_query(content=b"another")
    honest = one.database.lock
    inside, go = threading.Event(), threading.Event()
    late = batch(new.digest, 0, 1)
    late = replace(late, add=held(late.add, inside, go))
    with ThreadPoolExecutor(2) as threads:

        def lock(name: bytes) -> None:
            if name == old.digest:
                two.announce(new)
                assert two.countersign(new.digest, deal_of())
                results.append(threads.submit(two.put_contributions, [late], 0))
                assert inside.wait(DEADLINE)
                threading.Timer(0.3, go.set).start()
            honest(name)

        results: list[Any] = []
        monkeypatch.setattr(one.database, "lock", lock)
        query: StoredQuery | None = one.abort("q")
        assert known(query).digest == new.digest
        assert results[0].result(DEADLINE) == [[PutResult.COUNTED] * 2]
    (item,) = two.to_decide()
    assert item.burn
    with two.database.reading() as run:
        ((head,),) = run("SELECT head FROM requests").fetchall()
    assert wire.DecideHead.FromString(head).contributors == 2  # of both that were acknowledged
