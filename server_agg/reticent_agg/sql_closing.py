"""The end of a query in the aggregation server's database, and the requests to the key server.

All of these run within a transaction.
"""

from __future__ import annotations

import errno
from itertools import groupby
from operator import itemgetter

from reticent.storage.sql import Execute, SqlDatabase
from reticent.v1 import counting_pb2 as wire
from reticent_agg import sql_schema as sql
from reticent_agg.store import EncryptedSum, MakeRequest, QueryLocked, WorkItem

__all__ = ["burn", "close", "lock_to_close", "request_of"]


def close(
    run: Execute, digest: bytes, make_request: MakeRequest, now: int | None = None, *, burnt: bool = False
) -> bool:
    """Close a query that collects, and keep the request to decide of each cohort; False if it does not collect.

    Collecting has ended now, if the time is given and is before its end.
    """
    number, phase, closes = run("SELECT number, phase, closes FROM queries WHERE digest = ?", (digest,)).fetchone()
    if phase != wire.COLLECTING:
        return False
    closed = closes if now is None else min(now, closes)
    run("UPDATE queries SET phase = ?, closes = ? WHERE number = ?", (wire.CLOSING, closed, number))
    sums = run(sql.PARTIAL_SUMS, (number,)).fetchall()
    for cohort, rows in groupby(sums, itemgetter(0)):
        partial_sums = [row[1:] for row in rows if row[1]]
        contributors = sum(count for count, _ in partial_sums)
        each = EncryptedSum(cohort, contributors, tuple(ciphertexts for _, ciphertexts in partial_sums))
        run(
            "INSERT INTO requests (query, cohort, head, burn) VALUES (?, ?, ?, ?)",
            (number, cohort, make_request(each).SerializeToString(), burnt),
        )
    run("UPDATE sums SET ciphertexts = ? WHERE query = ?", (b"", number))
    run("UPDATE queries SET zero = NULL WHERE number = ?", (number,))
    return True


def lock_to_close(database: SqlDatabase, digest: bytes, patience: float) -> None:
    """Lock a query, unless another process has it.

    One lock is only for those that close: they do not wait for each other.

    Raises:
        QueryLocked: Another process has it for longer than this.
    """
    if not (database.try_lock(b"closing" + digest) and database.try_lock(digest, patience=patience)):
        raise QueryLocked(errno.EBUSY, "another process has locked the query", database.place)


def burn(run: Execute, digest: bytes) -> None:
    """Close a query that collects, and have all its cohorts burnt."""

    def without_ciphertexts(each: EncryptedSum) -> wire.DecideHead:
        return wire.DecideHead(query=digest, cohort=each.cohort, contributors=each.contributors)

    close(run, digest, without_ciphertexts, burnt=True)
    run(sql.BURN, (digest,))


def request_of(run: Execute, item: WorkItem) -> wire.CountersignRequest | wire.DecideHead | None:
    """The request to the key server about an item, as of now; None where none is due."""
    if item.cohort is None:
        row = run(sql.UNCOUNTERSIGNED, (item.query, wire.ANNOUNCED)).fetchone()
        return None if row is None else wire.CountersignRequest(query=row[0])
    row = run(sql.UNDECIDED, (item.query, item.cohort)).fetchone()
    if row is None:
        return None
    head = wire.DecideHead.FromString(row[0])
    if row[1]:
        head.ClearField("ciphertexts")
    return head
