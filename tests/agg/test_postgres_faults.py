"""Each transaction of the store on PostgreSQL, with a fault before each of its statements, and at its COMMIT."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reticent.protocol import Refusal, Refused
from reticent_agg import SqlStore
from reticent_agg.store import PutResult, WorkItem
from tests.agg.store_conformance.values import (
    CLOSES,
    accept,
    batch,
    closed,
    collecting,
    deal_of,
    decision_of,
    head_of,
    lease,
    new_query,
    phones_in,
    request_of,
)
from tests.postgres_faults import (
    Faults,
    deadlock,
    full_disk,
    lost,
    make_room,
    serialisation_failure,
    small_disk,
)

pytestmark = pytest.mark.slow

DIGEST = new_query().digest
TABLES = ("keys", "queries", "dealt", "receipts", "cohorts", "sums", "requests", "decisions", "leases")


def announced(store: SqlStore) -> None:
    store.announce(new_query())


def contributed(store: SqlStore) -> None:
    collecting(store, cohorts=2)
    store.put_contributions([batch(DIGEST, 0, 2), batch(DIGEST, 1, cohort=1)], 0)


def requested(store: SqlStore) -> None:
    contributed(store)
    closed(store, DIGEST)


def leased(store: SqlStore) -> None:
    requested(store)
    store.claim(WorkItem(DIGEST, 0), lease())


def burnt(store: SqlStore) -> None:
    requested(store)
    store.abort("q")


def decided(store: SqlStore) -> None:
    requested(store)
    for cohort in (0, 1):
        store.decide(decision_of(DIGEST, cohort), accept, 5)


def pruned(store: SqlStore) -> None:
    while store.prune(10, 1000) is not None:
        pass


@dataclass(frozen=True)
class Transaction:
    """A method that writes, and what comes before."""

    prepare: Callable[[SqlStore], None]
    call: Callable[[SqlStore], object]


TRANSACTIONS = {
    "put_key": Transaction(lambda _: None, lambda store: store.put_key(b"id", b"key")),
    "announce": Transaction(lambda _: None, lambda store: store.announce(new_query())),
    "countersign": Transaction(announced, lambda store: store.countersign(DIGEST, deal_of(2))),
    "reject": Transaction(announced, lambda store: store.reject(DIGEST, Refused(Refusal.BAD_QUERY, "dear"))),
    "put_contributions": Transaction(
        contributed,
        lambda store: store.put_contributions([batch(DIGEST, 3, 1, cohort=1), batch(DIGEST, 4, 6, 4)], 0),
    ),
    "close_query": Transaction(
        contributed, lambda store: store.close_query(DIGEST, lambda each: request_of(DIGEST, each), CLOSES)
    ),
    "abort": Transaction(contributed, lambda store: store.abort("q")),
    "abort_restored": Transaction(contributed, lambda store: store.abort_restored()),
    "claim": Transaction(requested, lambda store: store.claim(WorkItem(DIGEST, 0), lease())),
    "renew": Transaction(leased, lambda store: store.renew(WorkItem(DIGEST, 0), lease(now=50))),
    "release": Transaction(leased, lambda store: store.release(WorkItem(DIGEST, 0), "one")),
    "decide": Transaction(leased, lambda store: store.decide(decision_of(DIGEST), accept, 5)),
    "withdraw_burn": Transaction(burnt, lambda store: store.withdraw_burn(DIGEST, 0)),
    "lose": Transaction(requested, lambda store: store.lose(DIGEST, Refused(Refusal.KEY_RETIRED))),
    "prune": Transaction(decided, pruned),
}


def test_each_method_that_writes_is_among_these() -> None:
    writing = {name for name, method in vars(SqlStore).items() if hasattr(method, "__wrapped__")}  # by `retried`
    others = {"serving", "_locked", "_set_expiry"}  # of these, `renew` and `release` call the last one
    assert writing - others == set(TRANSACTIONS) - {"renew", "release"}


def content(store: SqlStore) -> dict[str, list[Any]]:
    """All rows. Numbers of queries may have gaps; attempts count calls that failed as well."""
    found = {}
    with store.database.reading() as run:
        run("UPDATE leases SET attempts = 1")
        for table in TABLES:
            rows = run(f"SELECT * FROM {table}").fetchall()  # noqa: S608  # one of nine names
            found[table] = sorted(repr(row if table == "keys" else row[1:]) for row in rows)
    return found


def emptied(store: SqlStore) -> None:
    with store.database.transaction() as run:
        for table in TABLES:
            run(f"DELETE FROM {table}")  # noqa: S608  # one of nine names


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_a_fault_in_a_transaction_leaves_all_or_nothing_and_another_call_completes_it(
    name: str, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = TRANSACTIONS[name]
    with contextlib.closing(SqlStore(postgres)) as store, store.serving():
        faults = Faults(monkeypatch)
        transaction.prepare(store)
        before = content(store)
        with faults.planned(None, deadlock):
            transaction.call(store)
            statements = faults.count
        after = content(store)
        assert statements >= 4  # with BEGIN, COMMIT and the number of the transaction
        for number in range(statements):
            for fault in (lost, (deadlock, serialisation_failure, full_disk)[number % 3]):
                emptied(store)
                transaction.prepare(store)
                raised: OSError | None = None
                with faults.planned(number, fault):
                    try:
                        transaction.call(store)
                    except OSError as error:
                        raised = error
                if fault in {deadlock, serialisation_failure} and name != "prune":  # it begins with a read
                    assert raised is None, (number, fault)  # the store has repeated it
                elif raised is not None:
                    # Only prune is more than one transaction.
                    assert content(store) in ([before, after] if name == "prune" else [before]), (number, fault)
                    assert fault is not full_disk or raised.errno == errno.ENOSPC
                    transaction.call(store)
                assert content(store) == after, (number, fault)
        emptied(store)
        transaction.prepare(store)
        with faults.planned(None, lost, after_commit=True), pytest.raises(OSError, match="server closed"):
            transaction.call(store)
        transaction.call(store)  # nobody knows that it was committed
        assert content(store) == after


if os.geteuid() == 0:  # the faults above are of every user's

    @pytest.fixture
    def tiny_disk() -> Iterator[tuple[Path, str]]:
        with small_disk() as made:
            yield made

    def fill(store: SqlStore) -> None:
        for number in range(1000):
            store.put_key(number.to_bytes(4, "big"), os.urandom(50_000))

    def test_a_full_disk_is_an_error_of_the_system_and_nothing_that_was_kept_is_lost(
        tiny_disk: tuple[Path, str],
    ) -> None:
        folder, url = tiny_disk
        with contextlib.closing(SqlStore(url)) as store:
            digest = collecting(store)
            assert store.put_contributions([batch(digest, 0, 1, 2)], 0) == [[PutResult.COUNTED] * 3]
            with pytest.raises(OSError, match="No space left") as caught:
                fill(store)
            assert caught.value.errno == errno.ENOSPC
            make_room(folder)
            assert store.put_contributions([batch(digest, 2, 3)], 0) == [[PutResult.REPEATED, PutResult.COUNTED]]
            closed(store, digest)
            assert phones_in(head_of(store, digest)) == {0, 1, 2, 3}
