"""The aggregation server's store in one SQLite file.

Of a contribution the file has a receipt, and its part in the sum of its cohort. No row holds its ciphertexts, but the
quotients of successive sums in the write-ahead log do. They become worthless when the key server erases the query's
key.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from reticent.protocol import Refusal, Refused
from reticent.storage.database import Database, Execute, Reader
from reticent.storage.files import drafted
from reticent.v1 import counting_pb2 as wire
from reticent_agg import sqlite_schema as sql
from reticent_agg.sqlite_contributions import in_parts, put
from reticent_agg.store import (
    AggregationStore,
    CohortBatch,
    CohortState,
    Contents,
    CountersignedDeal,
    DealtPhone,
    DealtQuery,
    EncryptedSum,
    Lease,
    NewQuery,
    PutResult,
    StoredQuery,
    StoredRequest,
    WorkItem,
)

__all__ = ["SqliteStore"]

RESTORED = "the aggregation server was restored from a copy: announce the query again under another id"


class SqliteStore(AggregationStore):
    """A store in a file. Threads and processes may share the file; readers do not wait for a writer.

    Args:
        path: Where the file is, or will be; None for a store in memory.

    Raises:
        BadStore: The file is damaged, foreign or of another version.
    """

    def __init__(self, path: Path | None) -> None:
        self.database = Database(path, sql.FORMAT)
        self._reader = self.database if path is None else Reader(path, sql.FORMAT)

    def serve_alone(self) -> AbstractContextManager[None]:
        """Be the one process that serves from the file; other processes may read it, prune it, and abort queries.

        Raises:
            Occupied: Another process serves from it.
        """
        return self.database.claim()

    def close(self) -> None:
        if self._reader is not self.database:
            self._reader.close()
        self.database.close()

    def backup(self, path: Path) -> None:
        """Copy the present content to a new file, whole or not at all; other processes continue meanwhile.

        All open queries are aborted in the copy, as by `abort_restored`: a server on it never sends a sum that the
        original may send too.

        Raises:
            FileExistsError: The name is taken.
        """
        with drafted(path) as draft:
            self.database.backup(draft)
            with closing(SqliteStore(draft)) as copy:
                copy.abort_restored()

    # Public keys.

    def put_key(self, key_id: bytes, content: bytes) -> None:
        with self.database.transaction() as run:
            run("INSERT OR IGNORE INTO keys VALUES (?, ?)", (key_id, content))

    def key(self, key_id: bytes) -> bytes | None:
        content: bytes | None = self._value("SELECT content FROM keys WHERE id = ?", key_id)
        return content

    # Queries.

    def announce(self, query: NewQuery) -> StoredQuery:
        with self.database.transaction() as run:
            known = _query(run, "id", query.id)
            if known is not None and not (known.may_be_replaced and known.owner == query.owner):
                return known
            run("DELETE FROM queries WHERE id = ?", (query.id,))
            run(
                "INSERT INTO queries (digest, id, content, owner, announced, phase) VALUES (?, ?, ?, ?, ?, ?)",
                (*query, wire.ANNOUNCED),
            )
            return _known(run, query.digest)

    def query(self, digest: bytes) -> StoredQuery | None:
        with self._reader.reading() as run:
            return _query(run, "digest", digest)

    def query_named(self, query_id: str) -> StoredQuery | None:
        with self._reader.reading() as run:
            return _query(run, "id", query_id)

    def content(self, digest: bytes) -> bytes | None:
        content: bytes | None = self._value("SELECT content FROM queries WHERE digest = ?", digest)
        return content

    def query_ids(self) -> list[str]:
        return [query_id for (query_id,) in self._rows("SELECT id FROM queries ORDER BY number DESC")]

    def query_ids_of(self, owner: str | None) -> list[str]:
        rows = self._rows("SELECT id FROM queries WHERE owner IS ? ORDER BY number DESC", owner)
        return [query_id for (query_id,) in rows]

    def countersign(self, digest: bytes, deal: CountersignedDeal) -> bool:
        with self.database.transaction() as run:
            row = run("SELECT number, phase, aborted FROM queries WHERE digest = ?", (digest,)).fetchone()
            if row is None or row[1] != wire.ANNOUNCED:
                return False
            number, _, aborted = row
            run(sql.COUNTERSIGN, (deal.agreement_key, deal.countersignature, wire.COLLECTING, deal.closes, number))
            for phone in sorted(deal.phones, key=lambda each: each.phone):
                run("INSERT INTO dealt VALUES (?, ?, ?, ?)", (number, phone.phone, phone.verify_key, phone.cohort))
            for cohort, enough in enumerate(deal.enough):
                run("INSERT INTO sums VALUES (?, ?, ?, 0, ?)", (number, cohort, enough, deal.zero))
            run("DELETE FROM leases WHERE query = ?", (number,))
            if aborted:
                _burn(run, digest)
            return True

    def reject(self, digest: bytes, refused: Refused) -> None:
        with self.database.transaction() as run:
            run(sql.REFUSE, (refused.refusal.name, refused.detail, digest, wire.ANNOUNCED))
            run(sql.END_LEASE, (digest, sql.NO_COHORT))

    def prune(self, before: int) -> list[str]:
        decided = self._rows(sql.DECIDED_BEFORE, wire.DECIDED, before)
        for number, _ in decided:
            with self.database.transaction() as run:
                for table in ("dealt", "receipts", "requests"):
                    run(f"DELETE FROM {table} WHERE query = ?", (number,))  # noqa: S608  # one of three names
                run("UPDATE queries SET pruned = 1 WHERE number = ?", (number,))
        rejected = self._rows(sql.REJECTED_BEFORE, wire.ANNOUNCED, before)
        for number, _ in rejected:
            with self.database.transaction() as run:
                run("DELETE FROM queries WHERE number = ? AND refusal IS NOT NULL", (number,))
        return [query_id for _, query_id in sorted(decided + rejected)]

    # Phones and their contributions.

    def dealt_to(self, phone: bytes, now: int) -> list[DealtQuery]:
        return [DealtQuery(*row) for row in self._rows(sql.DEALT_TO, phone, wire.COLLECTING, now)]

    def dealt(self, digest: bytes, phones: Sequence[bytes]) -> dict[bytes, DealtPhone]:
        found = {}
        for marks, some in in_parts(phones):
            for phone, verify_key, cohort, key, ciphertexts_hash, seeded in self._rows(
                sql.DEALT.format(marks), digest, *some
            ):
                contents = None if key is None else Contents(key, ciphertexts_hash, bool(seeded))
                found[phone] = DealtPhone(verify_key, cohort, contents)
        return found

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        with self.database.transaction() as run:
            return [put(run, batch, now) for batch in batches]

    # Closing, and decisions.

    def due(self, now: int) -> list[bytes]:
        return [digest for (digest,) in self._rows(sql.DUE, wire.COLLECTING, now)]

    def next_due(self) -> int | None:
        due: int | None = self._value("SELECT min(closes) FROM queries WHERE phase = ?", wire.COLLECTING)
        return due

    def close_query(self, digest: bytes, make_request: Callable[[EncryptedSum], wire.DecideHead]) -> bool:
        with self.database.transaction() as run:
            return _close(run, digest, make_request)

    def abort(self, query_id: str) -> StoredQuery | None:
        with self.database.transaction() as run:
            query = _query(run, "id", query_id)
            if query is None or query.is_rejected:
                return query
            run("UPDATE queries SET aborted = 1 WHERE id = ? AND phase = ?", (query_id, wire.ANNOUNCED))
            _burn(run, query.digest)
            return _known(run, query.digest)

    def abort_restored(self) -> list[str]:
        with self.database.transaction() as run:
            rows = run(sql.OPEN_QUERIES, (wire.DECIDED, wire.ANNOUNCED)).fetchall()
            for query_id, digest in rows:
                run(sql.REFUSE, (Refusal.CONFLICT.name, RESTORED, digest, wire.ANNOUNCED))
                self.abort(query_id)
                run(sql.ALL_SENT, (digest,))
        return [query_id for query_id, _ in rows]

    def cohorts(self, digest: bytes) -> list[CohortState]:
        return [
            CohortState(contributors, None if content is None else wire.Decision.FromString(content))
            for contributors, content in self._rows(sql.COHORTS, digest)
        ]

    def receipts(self, digest: bytes, cohort: int, after: bytes, limit: int) -> list[wire.Receipt]:
        return [
            wire.Receipt(
                phone=phone,
                agreement_key=agreement_key,
                ciphertexts_hash=ciphertexts_hash,
                seeded=bool(seeded),
                signature=signature,
            )
            for phone, agreement_key, ciphertexts_hash, seeded, signature in self._rows(
                sql.RECEIPTS, digest, cohort, after, limit
            )
        ]

    def decide(self, decision: wire.Decision, check: Callable[[StoredRequest], None], now: int) -> wire.Decision | None:
        with self.database.transaction() as run:
            row = run(sql.REQUEST, (decision.query, decision.cohort)).fetchone()
            if row is None:
                return None
            number, head, burn, sent = row
            check(StoredRequest(wire.DecideHead.FromString(head), bool(burn)))
            withheld = decision.outcome == wire.BURNT and sent
            content = decision.SerializeToString(deterministic=True)
            run("INSERT OR IGNORE INTO decisions VALUES (?, ?, ?, ?)", (number, decision.cohort, content, withheld))
            run(sql.DECIDED, (wire.DECIDED, now, number, wire.CLOSING))
            place = number, decision.cohort
            run("DELETE FROM leases WHERE query = ? AND cohort = ?", place)
            (content,) = run("SELECT decision FROM decisions WHERE query = ? AND cohort = ?", place).fetchone()
            return wire.Decision.FromString(content)

    def decision_for_phones(self, digest: bytes, cohort: int) -> wire.Decision | None:
        content = self._value(sql.DECISION_FOR_PHONES, digest, cohort)
        return None if content is None else wire.Decision.FromString(content)

    def withdraw_burn(self, digest: bytes, cohort: int) -> None:
        with self.database.transaction() as run:
            run(sql.WITHDRAW_BURN, (digest, cohort))

    def lose(self, digest: bytes, refused: Refused) -> None:
        with self.database.transaction() as run:
            run(sql.REFUSE, (refused.refusal.name, refused.detail, digest, wire.CLOSING))

    # Work for the link to the key server.

    def to_countersign(self) -> list[WorkItem]:
        return [WorkItem(digest) for (digest,) in self._rows(sql.TO_COUNTERSIGN, wire.ANNOUNCED)]

    def to_decide(self) -> list[WorkItem]:
        return [WorkItem(digest, cohort, bool(burn)) for digest, cohort, burn in self._rows(sql.TO_DECIDE)]

    def claim(self, item: WorkItem, lease: Lease) -> wire.CountersignRequest | wire.DecideHead | None:
        cohort = sql.NO_COHORT if item.cohort is None else item.cohort
        with self.database.transaction() as run:
            message = _to_send(run, item)
            if message is None:
                return None
            row = item.query, cohort, lease.owner, lease.expires, lease.now
            if run(sql.LEASE, row).rowcount != 1:
                return None
            if isinstance(message, wire.DecideHead) and message.ciphertexts:
                run(sql.SENT, (item.query, cohort))
            return message

    def release(self, item: WorkItem, owner: str) -> None:
        cohort = sql.NO_COHORT if item.cohort is None else item.cohort
        with self.database.transaction() as run:
            run(sql.RELEASE, (item.query, cohort, owner))

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._reader.reading() as run:
            return run(statement, values).fetchall()

    def _value(self, statement: str, *values: Any) -> Any:
        rows = self._rows(statement, *values)
        return rows[0][0] if rows else None


def _query(run: Execute, column: str, value: bytes | str) -> StoredQuery | None:
    row = run(sql.QUERY.format(column), (value,)).fetchone()
    if row is None:
        return None
    digest, query_id, owner, phase, announced, closes, refusal, detail, pruned = row
    refused = None if refusal is None else Refused(Refusal[refusal], detail)
    return StoredQuery(
        digest, query_id, owner, wire.Phase.ValueType(phase), announced, closes, refused, pruned=bool(pruned)
    )


def _known(run: Execute, digest: bytes) -> StoredQuery:
    query = _query(run, "digest", digest)
    if query is None:
        raise AssertionError("the query was read or written in this transaction")
    return query


def _close(
    run: Execute, digest: bytes, make_request: Callable[[EncryptedSum], wire.DecideHead], *, burn: bool = False
) -> bool:
    (number, phase) = run("SELECT number, phase FROM queries WHERE digest = ?", (digest,)).fetchone()
    if phase != wire.COLLECTING:
        return False
    run("UPDATE queries SET phase = ? WHERE number = ?", (wire.CLOSING, number))
    sums = run("SELECT cohort, contributors, ciphertexts FROM sums WHERE query = ?", (number,)).fetchall()
    for each in itertools.starmap(EncryptedSum, sums):
        head = make_request(each).SerializeToString()
        run("INSERT INTO requests (query, cohort, head, burn) VALUES (?, ?, ?, ?)", (number, each.cohort, head, burn))
    run("UPDATE sums SET ciphertexts = x'' WHERE query = ?", (number,))
    return True


def _burn(run: Execute, digest: bytes) -> None:
    """Close a query that collects, and have all its cohorts burnt."""

    def without_ciphertexts(each: EncryptedSum) -> wire.DecideHead:
        return wire.DecideHead(query=digest, cohort=each.cohort, contributors=each.contributors)

    _close(run, digest, without_ciphertexts, burn=True)
    run(sql.BURN, (digest,))


def _to_send(run: Execute, item: WorkItem) -> wire.CountersignRequest | wire.DecideHead | None:
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
