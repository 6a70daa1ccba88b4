"""The aggregation server's store in an SQL database: a SQLite file, or PostgreSQL.

Of a contribution the database has a receipt, and its part in a sum of its cohort. No row holds its ciphertexts, but
the quotients of successive sums in the write-ahead log do. They become worthless when the key server erases the
query's key.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from reticent.protocol import Refusal, Refused
from reticent.storage.database import Database, Reader
from reticent.storage.databases import open_database
from reticent.storage.files import drafted
from reticent.storage.sql import Claim, Execute, InUse, SqlDatabase, TransactionConflict, retried
from reticent.v1 import counting_pb2 as wire
from reticent_agg import sql_schema as sql
from reticent_agg.sql_closing import burn, close, lock_to_close, request_of
from reticent_agg.sql_contributions import in_parts, put
from reticent_agg.sql_pruning import delete_rejected, prune
from reticent_agg.sql_queries import known_query, query_of, stored, text_of
from reticent_agg.store import (
    PATIENCE,
    AggregationStore,
    CohortBatch,
    CohortState,
    Contents,
    CountersignedDeal,
    DealtPhone,
    DealtQuery,
    Lease,
    MakeRequest,
    NewQuery,
    PutResult,
    StoredQuery,
    StoredRequest,
    WorkItem,
)

__all__ = ["SqlStore"]

MAX_PROCESSES = 256
"""Processes that serve from one PostgreSQL database."""
RESTORED = "the aggregation server was restored from a copy: announce the query again under another id"


class SqlStore(AggregationStore):
    """A store in a database, that threads and processes share; readers do not wait for a writer.

    Args:
        place: The path of a SQLite file, which is made if there is none; the address of a PostgreSQL database; or None
            for a store in memory.

    Raises:
        BadStore: The database is damaged, foreign or of another version.
    """

    def __init__(self, place: str | Path | None) -> None:
        self.database: SqlDatabase = open_database(place, sql.FORMAT)
        self._reader = Reader(place, sql.FORMAT) if isinstance(place, Path) else self.database
        self._claim: Claim | None = None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve from the database: of a file, only one process does; each one adds to sums of its own.

        Other processes may read, prune and abort queries. Sums of its own keep a process from waiting for others: two
        processes that add to the same sum lock its row, and lose nothing.

        Raises:
            InUse: Another process serves from the file.
        """
        with self.database.claim(slots=MAX_PROCESSES) as claim:
            self._claim = claim
            try:
                yield
            finally:
                self._claim = None

    def check_claim(self) -> None:
        self._renew_claim()
        if self._claim is not None:
            with self.database.transaction():
                pass

    def clock(self) -> int | None:
        return self.database.clock()

    def _renew_claim(self) -> None:
        """Claim a shard again, perhaps another one, if the connection that held the claim is lost."""
        if self._claim is not None:
            try:
                self._claim.renew()
            except InUse as error:
                raise OSError(errno.EBUSY, str(error), self.database.place) from error

    def close(self) -> None:
        if isinstance(self._reader, Reader):
            self._reader.close()
        self.database.close()

    def backup(self, path: Path) -> None:
        """Copy the present content to a new file, whole or not at all; other processes continue meanwhile.

        All open queries are aborted in the copy, as by `abort_restored`: a server on it never sends a sum that the
        original may send too.

        Raises:
            FileExistsError: The name is taken.
            ValueError: The store is in PostgreSQL, which has backups of its own.
        """
        if not isinstance(self.database, Database):
            raise ValueError(
                f"{self.database.place} is a PostgreSQL database: copy it with pg_dump, and run `reticent agg "
                "restored` on a copy that you restore"
            )
        with drafted(path) as draft:
            self.database.backup(draft)
            with closing(SqlStore(draft)) as copy:
                copy.abort_restored()

    # Public keys.

    @retried
    def put_key(self, key_id: bytes, content: bytes) -> None:
        with self.database.transaction() as run:
            run("INSERT INTO keys VALUES (?, ?) ON CONFLICT DO NOTHING", (key_id, content))

    def key(self, key_id: bytes) -> bytes | None:
        content: bytes | None = self._value("SELECT content FROM keys WHERE id = ?", key_id)
        return content

    # Queries.

    @retried
    def announce(self, query: NewQuery) -> StoredQuery:
        with self.database.transaction() as run:
            self.database.lock(query.id.encode())
            known = self._named(run, query.id)
            if known is not None and not (known.may_be_replaced and known.owner == query.owner):
                return known
            if known is not None and not delete_rejected(run, known.digest):
                raise TransactionConflict(errno.EAGAIN, f"{query.id!r} has changed", self.database.place)
            run(
                "INSERT INTO queries (digest, id, content, owner, announced, phase) VALUES (?, ?, ?, ?, ?, ?)",
                (*query, wire.ANNOUNCED),
            )
            return known_query(run, query.digest)

    def query(self, digest: bytes) -> StoredQuery | None:
        with self._reader.reading() as run:
            return query_of(run, "digest", digest)

    def query_named(self, query_id: str) -> StoredQuery | None:
        with self._reader.reading() as run:
            return query_of(run, "id", query_id)

    def content(self, digest: bytes) -> bytes | None:
        content: bytes | None = self._value("SELECT content FROM queries WHERE digest = ?", digest)
        return content

    def query_ids(self) -> list[str]:
        return [query_id for (query_id,) in self._rows("SELECT id FROM queries ORDER BY number DESC")]

    def queries_of(self, owner: str | None, below: int, limit: int) -> list[tuple[int, str]]:
        owned = "IS NULL" if owner is None else "= ?"  # PostgreSQL uses no index for IS NOT DISTINCT FROM
        return self._rows(sql.QUERIES_OF.format(owned), *([] if owner is None else [owner]), below, limit)

    def open_queries(self, limit: int) -> list[StoredQuery]:
        phases = wire.ANNOUNCED, wire.COLLECTING, wire.CLOSING
        return [stored(row) for row in self._rows(sql.LATEST_OPEN, *phases, wire.ANNOUNCED, limit)]

    @retried
    def countersign(self, digest: bytes, deal: CountersignedDeal) -> bool:
        with self._locked(digest) as run:
            row = run("SELECT number, phase, aborted FROM queries WHERE digest = ?", (digest,)).fetchone()
            if row is None or row[1] != wire.ANNOUNCED:
                return False
            number, _, aborted = row
            row = deal.agreement_key, deal.countersignature, deal.zero, wire.COLLECTING, deal.closes, number
            if run(sql.COUNTERSIGN, row).rowcount != 1:  # it was pruned meanwhile
                return False
            phones = sorted(deal.phones, key=lambda each: each.phone)
            self.database.run_many(
                "INSERT INTO dealt VALUES (?, ?, ?, ?)",
                ((number, phone.phone, phone.verify_key, phone.cohort) for phone in phones),
            )
            self.database.run_many(
                "INSERT INTO cohorts VALUES (?, ?, ?)",
                ((number, cohort, enough) for cohort, enough in enumerate(deal.enough)),
            )
            run("DELETE FROM leases WHERE query = ?", (number,))
            if aborted:
                burn(run, digest)
            return True

    @retried
    def reject(self, digest: bytes, refused: Refused) -> None:
        with self._locked(digest) as run:
            run(sql.REFUSE, (refused.refusal.name, text_of(refused.detail), digest, wire.ANNOUNCED))
            run(sql.END_LEASE, (digest, sql.NO_COHORT))

    @retried
    def prune(self, before: int, rows: int) -> list[str] | None:
        with self.database.transaction() as run:
            self.database.lock(b"pruning")
            return prune(run, before, rows)

    # Phones and their contributions.

    def dealt_to(self, phone: bytes, now: int, after: int, limit: int) -> tuple[list[DealtQuery], int | None]:
        rows = self._rows(sql.ANNOUNCED_TO, wire.COLLECTING, after, limit, phone)
        found = [DealtQuery(*row[1:]) for row in rows if row[4] is not None and row[5] > now]
        return found, rows[-1][0] if len(rows) == limit else None

    def dealt(self, digest: bytes, phones: Sequence[bytes]) -> dict[bytes, DealtPhone]:
        found = {}
        for marks, some in in_parts(phones):
            for phone, verify_key, cohort, key, ciphertexts_hash, seeded in self._rows(
                sql.DEALT.format(marks), *some, digest
            ):
                if phone is None:
                    continue
                contents = None if key is None else Contents(key, ciphertexts_hash, bool(seeded))
                found[phone] = DealtPhone(verify_key, cohort, contents)
        return found

    @retried
    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        self._renew_claim()
        shard = 0 if self._claim is None else self._claim.slot
        results: dict[int, list[PutResult]] = {}
        order = sorted(range(len(batches)), key=lambda place: (batches[place].query, batches[place].cohort))
        with self.database.transaction() as run:
            locked = {query for query in {batch.query for batch in batches} if self.database.try_lock_shared(query)}
            for place in order:  # all transactions in the same order, so that none deadlock
                batch = batches[place]
                if batch.query in locked:
                    results[place] = put(self.database, run, batch, shard, now)
                else:
                    results[place] = [PutResult.BUSY] * len(batch.receipts)
        return [results[place] for place in range(len(batches))]

    # Closing, and decisions.

    def due(self, now: int) -> list[bytes]:
        return [digest for (digest,) in self._rows(sql.DUE, wire.COLLECTING, now)]

    def next_due(self) -> int | None:
        due: int | None = self._value("SELECT min(closes) FROM queries WHERE phase = ?", wire.COLLECTING)
        return due

    @retried
    def close_query(self, digest: bytes, make_request: MakeRequest, now: int, *, patience: float = PATIENCE) -> bool:
        with self.database.transaction() as run:
            lock_to_close(self.database, digest, patience)
            return close(run, digest, make_request, now)

    @retried
    def abort(self, query_id: str) -> StoredQuery | None:
        with self.database.transaction() as run:
            query = self._named(run, query_id)
            if query is None or query.is_rejected:
                return query
            run("UPDATE queries SET aborted = TRUE WHERE id = ? AND phase = ?", (query_id, wire.ANNOUNCED))
            burn(run, query.digest)
            return known_query(run, query.digest)

    @retried
    def abort_restored(self) -> list[str]:
        with self.database.transaction() as run:
            self.database.accept_restored()
            rows = run(sql.OPEN_QUERIES, (wire.DECIDED, wire.ANNOUNCED)).fetchall()
            for digest in sorted(digest for _, digest in rows):
                self.database.lock(digest)
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

    @retried
    def decide(self, decision: wire.Decision, check: Callable[[StoredRequest], None], now: int) -> wire.Decision | None:
        with self._locked(decision.query) as run:
            row = run(sql.REQUEST, (decision.query, decision.cohort)).fetchone()
            if row is None:
                return None
            number, head, burn, sent = row
            check(StoredRequest(wire.DecideHead.FromString(head), bool(burn)))
            withheld = decision.outcome == wire.BURNT and bool(sent)
            content = decision.SerializeToString(deterministic=True)
            run(sql.DECIDE, (number, decision.cohort, content, withheld))
            run(sql.DECIDED, (wire.DECIDED, now, number, wire.CLOSING))
            place = number, decision.cohort
            run("DELETE FROM leases WHERE query = ? AND cohort = ?", place)
            (content,) = run("SELECT decision FROM decisions WHERE query = ? AND cohort = ?", place).fetchone()
            return wire.Decision.FromString(content)

    def decision_for_phones(self, digest: bytes, cohort: int) -> wire.Decision | None:
        content = self._value(sql.DECISION_FOR_PHONES, digest, cohort)
        return None if content is None else wire.Decision.FromString(content)

    @retried
    def withdraw_burn(self, digest: bytes, cohort: int) -> None:
        with self._locked(digest) as run:
            run(sql.WITHDRAW_BURN, (digest, cohort))

    @retried
    def lose(self, digest: bytes, refused: Refused) -> None:
        with self._locked(digest) as run:
            run(sql.REFUSE, (refused.refusal.name, text_of(refused.detail), digest, wire.CLOSING))

    # Work for the link to the key server.

    def to_countersign(self) -> list[WorkItem]:
        return [WorkItem(digest) for (digest,) in self._rows(sql.TO_COUNTERSIGN, wire.ANNOUNCED)]

    def to_decide(self) -> list[WorkItem]:
        return [WorkItem(digest, cohort, bool(burn)) for digest, cohort, burn in self._rows(sql.TO_DECIDE)]

    @retried
    def claim(self, item: WorkItem, lease: Lease) -> wire.CountersignRequest | wire.DecideHead | None:
        cohort = sql.NO_COHORT if item.cohort is None else item.cohort
        with self._locked(item.query) as run:
            message = request_of(run, item)
            if message is None:
                return None
            row = item.query, cohort, lease.owner, lease.expires, lease.now
            if run(sql.LEASE, row).rowcount != 1:
                return None
            if isinstance(message, wire.DecideHead) and message.ciphertexts:
                run(sql.SENT, (item.query, cohort))
            return message

    def renew(self, item: WorkItem, lease: Lease) -> bool:
        return self._set_expiry(item, lease.owner, lease.expires)

    def release(self, item: WorkItem, owner: str) -> None:
        self._set_expiry(item, owner, 0)

    @retried
    def _set_expiry(self, item: WorkItem, owner: str, expires: int) -> bool:
        cohort = sql.NO_COHORT if item.cohort is None else item.cohort
        with self.database.transaction() as run:
            return run(sql.RENEW, (expires, item.query, cohort, owner)).rowcount == 1

    def attempts(self, digest: bytes) -> int:
        return self._value(sql.ATTEMPTS, digest) or 0

    def _named(self, run: Execute, query_id: str) -> StoredQuery | None:
        """The query of this id, which nobody else changes before the end of this transaction."""
        locked = None
        query = query_of(run, "id", query_id)
        while query is not None and query.digest != locked:  # it may be another one once the lock is ours
            locked = query.digest
            self.database.lock(locked)
            query = query_of(run, "id", query_id)
        return query

    @contextmanager
    def _locked(self, digest: bytes) -> Iterator[Execute]:
        """A transaction that is the only one to change a query."""
        with self.database.transaction() as run:
            self.database.lock(digest)
            yield run

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._reader.reading() as run:
            return run(statement, values).fetchall()

    def _value(self, statement: str, *values: Any) -> Any:
        rows = self._rows(statement, *values)
        return rows[0][0] if rows else None
