"""Stores that break a promise: the tests of the promises must find them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from reticent.v1 import counting_pb2 as wire
from reticent_agg import SqliteStore
from reticent_agg.sqlite_contributions import put
from reticent_agg.store import CohortBatch, EncryptedSum, Lease, PutResult, StoredRequest, WorkItem


class AcknowledgesBeforeCommit(SqliteStore):
    """Leaves it to the disk whether the commit follows."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        results: list[list[PutResult]] = []
        try:
            with self.database.transaction() as run:
                results.extend(put(run, batch, now) for batch in batches)
        except OSError:
            if len(results) < len(batches):
                raise
        return results


class ForgetsReceipts(SqliteStore):
    """Counts a contribution that it has counted before."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        with self.database.transaction() as run:
            run("DELETE FROM receipts")
        return super().put_contributions(batches, now)


class CommitsLate(SqliteStore):
    """Leaves the commit to the next transaction: its disk has a cache that lies."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        database = self.database
        honest = database._execute

        def execute(sql: str, values: Any = ()) -> sqlite3.Cursor:
            if sql == "COMMIT" or (sql.startswith("BEGIN") and database._connection.in_transaction):
                return honest("SELECT 1")
            return honest(sql, values)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database, "_execute", execute)
            return super().put_contributions(batches, now)

    def due(self, now: int) -> list[bytes]:
        if self.database._connection.in_transaction:
            self.database._execute("COMMIT")
        return super().due(now)


class CommitsEachBatch(SqliteStore):
    """A failure in the middle leaves what came before it."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        return [result for batch in batches for result in super(CommitsEachBatch, self).put_contributions([batch], now)]


class ReadsBeforeItCloses(SqliteStore):
    """Makes the requests before the transaction in which it closes: what comes in between is lost."""

    def close_query(self, digest: bytes, make_request: Callable[[EncryptedSum], wire.DecideHead]) -> bool:
        with self.database.reading() as run:
            rows = run(
                "SELECT cohort, contributors, ciphertexts FROM sums JOIN queries ON number = query WHERE digest = ?",
                (digest,),
            ).fetchall()
        heads = {row[0]: make_request(EncryptedSum(*row)) for row in rows}
        time.sleep(0.05)
        return super().close_query(digest, lambda cohort: heads[cohort.cohort])


class DecidesAgain(SqliteStore):
    """The last decision stands, not the first."""

    def decide(self, decision: wire.Decision, check: Callable[[StoredRequest], None], now: int) -> wire.Decision | None:
        with self.database.transaction() as run:
            run("DELETE FROM decisions WHERE cohort = ?", (decision.cohort,))
        return super().decide(decision, check, now)


class LeasesForEver(SqliteStore):
    """Does not look at the expiry of leases."""

    def claim(self, item: WorkItem, lease: Lease) -> wire.CountersignRequest | wire.DecideHead | None:
        return super().claim(item, lease._replace(now=0))


class LeasesToAnybody(SqliteStore):
    """Does not look whose a lease is."""

    def claim(self, item: WorkItem, lease: Lease) -> wire.CountersignRequest | wire.DecideHead | None:
        return super().claim(item, lease._replace(owner="anybody"))
