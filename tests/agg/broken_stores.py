"""Stores that break a promise: the tests of the promises must find them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from reticent_agg import SqliteStore
from reticent_agg.sqlite_contributions import put
from reticent_agg.store import CohortBatch, Put


class AcknowledgesBeforeCommit(SqliteStore):
    """Leaves it to the disk whether the commit follows."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[Put]]:
        results: list[list[Put]] = []
        try:
            with self.database.transaction() as run:
                results.extend(put(run, batch, now) for batch in batches)
        except OSError:
            if len(results) < len(batches):
                raise
        return results


class ForgetsReceipts(SqliteStore):
    """Counts a contribution that it has counted before."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[Put]]:
        with self.database.transaction() as run:
            run("DELETE FROM receipts")
        return super().put_contributions(batches, now)


class CommitsLate(SqliteStore):
    """Leaves the commit to the next transaction: its disk has a cache that lies."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[Put]]:
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
