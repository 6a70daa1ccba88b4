"""Stores that break a promise: the tests of the promises must find them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from reticent.v1 import counting_pb2 as wire
from reticent_agg import SqlStore
from reticent_agg.sql_contributions import put
from reticent_agg.sql_schema import PARTIAL_SUMS
from reticent_agg.store import CohortBatch, EncryptedSum, Lease, PutResult, StoredRequest, WorkItem
from tests.parties.aggregation import sqlite_of


class AcknowledgesBeforeCommit(SqlStore):
    """Leaves it to the disk whether the commit follows."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        results: list[list[PutResult]] = []
        try:
            with self.database.transaction() as run:
                results.extend(put(self.database, run, batch, 0, now) for batch in batches)
        except OSError:
            if len(results) < len(batches):
                raise
        return results


class ForgetsReceipts(SqlStore):
    """Counts a contribution that it has counted before."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        with self.database.transaction() as run:
            run("DELETE FROM receipts")
        return super().put_contributions(batches, now)


class CommitsLate(SqlStore):
    """Leaves the commit to the next transaction: its disk has a cache that lies."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        database = sqlite_of(self)
        honest = database._execute

        def execute(sql: str, values: Any = ()) -> sqlite3.Cursor:
            if sql == "COMMIT" or (sql.startswith("BEGIN") and database._connection.in_transaction):
                return honest("SELECT 1")
            return honest(sql, values)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database, "_execute", execute)
            return super().put_contributions(batches, now)

    def due(self, now: int) -> list[bytes]:
        if sqlite_of(self)._connection.in_transaction:
            sqlite_of(self)._execute("COMMIT")
        return super().due(now)


class CommitsEachBatch(SqlStore):
    """A failure in the middle leaves what came before it."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        return [result for batch in batches for result in super(CommitsEachBatch, self).put_contributions([batch], now)]


class ReadsBeforeItCloses(SqlStore):
    """Makes the requests before the transaction in which it closes: what comes in between is lost."""

    def close_query(
        self, digest: bytes, make_request: Callable[[EncryptedSum], wire.DecideHead], now: int, *, patience: float = 1.0
    ) -> bool:
        with self.database.reading() as run:
            (number,) = run("SELECT number FROM queries WHERE digest = ?", (digest,)).fetchone()
            rows = run(PARTIAL_SUMS, (number,)).fetchall()
        heads = {cohort: make_request(EncryptedSum(cohort, count or 0, (sums or b"",))) for cohort, count, sums in rows}
        time.sleep(0.05)
        return super().close_query(digest, lambda cohort: heads[cohort.cohort], now, patience=patience)


class DecidesAgain(SqlStore):
    """The last decision stands, not the first."""

    def decide(self, decision: wire.Decision, check: Callable[[StoredRequest], None], now: int) -> wire.Decision | None:
        with self.database.transaction() as run:
            self.database.lock(decision.query)
            run("DELETE FROM decisions WHERE cohort = ?", (decision.cohort,))
            return super().decide(decision, check, now)


class LeasesForEver(SqlStore):
    """Does not look at the expiry of leases."""

    def claim(self, item: WorkItem, lease: Lease) -> wire.CountersignRequest | wire.DecideHead | None:
        return super().claim(item, lease._replace(now=0))


class LeasesToAnybody(SqlStore):
    """Does not look whose a lease is."""

    def claim(self, item: WorkItem, lease: Lease) -> wire.CountersignRequest | wire.DecideHead | None:
        return super().claim(item, lease._replace(owner="anybody"))

    def renew(self, item: WorkItem, lease: Lease) -> bool:
        return super().renew(item, lease._replace(owner="anybody"))
