"""The journal of a key server in one SQLite file, or in a PostgreSQL database."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from reticent.privacy import Query
from reticent.protocol import Refusal, Refused
from reticent.storage.database import Database
from reticent.storage.databases import open_database
from reticent.storage.files import drafted
from reticent.storage.sql import Claim, Execute, retried
from reticent.times import instant
from reticent_keys.errors import JournalError, KeysError
from reticent_keys.journal import (
    IN_USE,
    CountersignedQuery,
    Deal,
    EnrolledPhone,
    Journal,
    Key,
    KeyState,
    RecordedDecision,
)
from reticent_keys.record_counts import RecordCounts
from reticent_keys.sql_keys import destroy_drained, key_of, refuse_pruned, undecided_key
from reticent_keys.sql_phones import change_phone, enrol, find_phone, phone_of
from reticent_keys.sql_records import add_records, check_complete, refuse_restored
from reticent_keys.sql_schema import JOURNAL, PRUNE, PRUNE_DECRYPTIONS, PRUNE_INVITATIONS, PRUNED, VERIFY_KEYS
from reticent_keys.sql_summary import summary_of
from reticent_keys.summaries import KeyServerSummary, PhoneSummary

__all__ = ["SqlJournal"]

PAGE = 1000
PHONES_AT_ONCE = 500  # old versions of SQLite allow 999 values


class SqlJournal(Journal):
    """A journal in a database, which is created if it does not exist.

    Args:
        place: The path of a SQLite file, None for a journal in memory, or an address of PostgreSQL.
        counts: Finds that the journal was restored from a backup; None if no query is countersigned or decided.

    Raises:
        JournalError: The database is damaged, foreign or of another version.
    """

    def __init__(self, place: str | Path | None, counts: RecordCounts | None = None) -> None:
        self.database = open_database(place, JOURNAL)
        self._counts = counts

    # In PostgreSQL, a change of the state of keys excludes dealing and deciding. Dealing, which takes long for many
    # phones, excludes other dealing, and deciding other deciding: neither waits for the other.

    @contextmanager
    def _changing_keys(self) -> Iterator[Execute]:
        """A transaction about the server or the states of keys."""
        with self.database.transaction() as run:
            self.database.lock(b"keys")
            yield run

    @contextmanager
    def _dealing(self) -> Iterator[Execute]:
        """A transaction about queries: one at a time, in all processes."""
        with self.database.transaction() as run:
            self.database.lock(b"keys", shared=True)
            self.database.lock(b"queries")
            yield run

    @contextmanager
    def _deciding(self) -> Iterator[Execute]:
        """A transaction about decisions, or keys that no query can be dealt under: one at a time, in all processes."""
        with self.database.transaction() as run:
            self.database.lock(b"keys", shared=True)
            self.database.lock(b"decisions")
            yield run

    @retried
    def take_ownership(self, identity: bytes) -> None:
        with self._changing_keys() as run:
            found = run("SELECT identity FROM server").fetchone()
            if found is None:
                run("INSERT INTO server (identity) VALUES (?)", (identity,))
            elif found != (identity,):
                raise JournalError(
                    f"{self.database.place} is the journal of another key server than the identity beside it"
                )

    @retried
    def check_complete(self) -> None:
        if self._counts is None:
            return
        with self._changing_keys() as run:
            keys = check_complete(run, self._counts)
        for key_id, records in keys.items():
            self._counts.raise_to(key_id, records)

    def _refuse_restored(self, run: Execute) -> None:
        if self._counts is not None:
            refuse_restored(run, self._counts)

    def _keep_count(self, key_id: str, records: int) -> None:
        """Keep how many records there are, before anybody learns of them."""
        if self._counts is not None:
            self._counts.raise_to(key_id, records)

    def owner(self) -> bytes | None:
        with self.database.reading() as run:
            found = run("SELECT identity FROM server").fetchone()
        return None if found is None else bytes(found[0])

    def claim(self) -> AbstractContextManager[Claim]:
        return self.database.claim()

    def backup(self, path: Path, now: int) -> None:
        if not isinstance(self.database, Database):
            raise KeysError(
                f"copy {self.database.place} by pg_dump; after a restore, run `reticent keys rotate --retire` before "
                "the server starts: later decisions are missing"
            )
        with drafted(path) as draft:
            self.database.backup(draft)
            with closing(SqlJournal(draft)) as copy:
                copy.retire_keys()
                with copy.database.transaction() as run:
                    run("UPDATE server SET copied = ?", (now,))

    def close(self) -> None:
        self.database.close()

    def summary(self, now: int) -> KeyServerSummary:
        with self.database.reading() as run:
            return summary_of(run, now)

    @retried
    def add_invitations(self, hashes: Sequence[bytes], expires: int) -> None:
        with self.database.transaction():
            rows = ((each, expires) for each in hashes)
            self.database.run_many("INSERT INTO invitations (hash, expires) VALUES (?, ?)", rows)

    @retried
    def enrol(self, invitation: bytes, phone: EnrolledPhone) -> EnrolledPhone:
        with self.database.transaction() as run:
            return enrol(run, invitation, phone)

    def phone(self, phone_id: bytes) -> EnrolledPhone:
        with self.database.reading() as run:
            return find_phone(run, phone_id)

    @retried
    def change_phone(self, phone_id: bytes, change: Callable[[EnrolledPhone], EnrolledPhone]) -> EnrolledPhone:
        with self.database.transaction() as run:
            return change_phone(run, phone_id, change)

    def phone_ids(self, first: bytes, last: bytes) -> list[bytes]:
        with self.database.reading() as run:
            rows = run("SELECT id FROM phones WHERE id BETWEEN ? AND ? LIMIT 2", (first, last)).fetchall()
        return [phone_id for (phone_id,) in rows]

    def phones(self, now: int) -> Iterator[PhoneSummary]:
        last = 0
        while True:
            with self.database.reading() as run:
                rows = run("SELECT * FROM phones WHERE number > ? ORDER BY number LIMIT ?", (last, PAGE)).fetchall()
            if not rows:
                return
            for phone in map(phone_of, rows):
                state = phone.ended or ("member" if phone.expires > now else "expired")
                yield PhoneSummary(phone.id.hex(), state, instant(phone.enrolled), instant(phone.expires))
            last = rows[-1][0]

    def member_count(self, now: int) -> int:
        with self.database.reading() as run:
            (count,) = run("SELECT count(*) FROM phones WHERE ended IS NULL AND expires > ?", (now,)).fetchone()
        return int(count)

    def keys(self, *states: KeyState) -> list[Key]:
        with self.database.reading() as run:
            rows = run("SELECT id, bits, public, state FROM keys ORDER BY number").fetchall()
        return [key for key in map(key_of, rows) if key.state in states]

    def key(self, key_id: str) -> Key | None:
        with self.database.reading() as run:
            row = run("SELECT id, bits, public, state FROM keys WHERE id = ?", (key_id,)).fetchone()
        return None if row is None else key_of(row)

    def active_since(self) -> int | None:
        with self.database.reading() as run:
            row = run("SELECT activated FROM keys WHERE state = 'ACTIVE'").fetchone()
        return None if row is None else int(row[0])

    @retried
    def add_pending(self, key: Key, now: int) -> None:
        with self._changing_keys() as run:
            if self.key(key.id) is None:
                run(
                    "INSERT INTO keys (id, state, bits, public, made) VALUES (?, 'PENDING', ?, ?, ?)",
                    (key.id, key.bits, key.public, now),
                )

    @retried
    def activate(self, key: Key, now: int, replaces: str | None = None) -> None:
        with self._changing_keys() as run:
            found = self.key(key.id)
            if found is not None and found.state is not KeyState.PENDING:  # the file of a destroyed key is erased
                return
            if replaces is not None and replaces not in {active.id for active in self.keys(KeyState.ACTIVE)}:
                return
            self.add_pending(key, now)
            run("UPDATE keys SET state = 'DRAINING' WHERE state = 'ACTIVE'")
            run("UPDATE keys SET state = 'ACTIVE', activated = ? WHERE id = ? AND state = 'PENDING'", (now, key.id))
            run("UPDATE keys SET state = 'DESTROYED' WHERE state = 'PENDING'")
            destroy_drained(run, now)

    @retried
    def destroy_unused(self, now: int) -> None:
        with self._deciding() as run:
            destroy_drained(run, now)

    @retried
    def retire_keys(self) -> None:
        with self._changing_keys() as run:
            run("UPDATE keys SET state = 'RETIRED' WHERE state IN ('PENDING', 'ACTIVE', 'DRAINING')")
            records: dict[str, int] = dict(run("SELECT id, records FROM keys").fetchall())
        if self._counts is not None:
            self._counts.lower_to(records)

    def query(self, digest: bytes) -> CountersignedQuery | None:
        with self.database.reading() as run:
            row = run(
                "SELECT queries.number, digest, content, agreement_key, deadline, keys.id, bits, public, state"
                " FROM queries JOIN keys ON keys.number = queries.key WHERE digest = ?",
                (digest,),
            ).fetchone()
        return None if row is None else CountersignedQuery(row[0], row[1], row[2], row[3], row[4], key_of(row[5:]))

    def countersigned(self, query: Query) -> CountersignedQuery | None:
        with self.database.reading() as run:
            row = run("SELECT digest FROM queries WHERE id = ?", (query.id,)).fetchone()
            found = None if row is None else self.query(*row)
        if found is not None and found.digest != query.digest:
            raise Refused(Refusal.CONFLICT, f"another query has the id {query.id!r}")
        if found is not None:
            found.key.refuse_retired()
        return found

    @retried
    def countersign(
        self, query: Query, deal: Callable[[Sequence[int]], Deal], now: int, deadline: int
    ) -> CountersignedQuery:
        with self._dealing() as run:
            found = self.countersigned(query)
            if found is not None:
                return found
            active = run("SELECT number FROM keys WHERE state = 'ACTIVE' AND id = ?", (query.key_id,)).fetchone()
            if active is None:
                raise Refused(Refusal.KEY_RETIRED, "the query names a key that is not the active one")
            self._refuse_restored(run)
            members = run(  # in the order of the invitations, which does not depend on who joined first
                "SELECT phones.number FROM phones LEFT JOIN invitations ON phone = phones.number"
                " WHERE ended IS NULL AND phones.expires > ? ORDER BY invitations.number, phones.number",
                (now,),
            ).fetchall()
            dealt = deal([phone for (phone,) in members])
            (number,) = run(
                "INSERT INTO queries (digest, id, content, agreement_key, key, cohorts, countersigned, deadline)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING number",
                (query.digest, query.id, query.to_bytes(), dealt.agreement_key, *active, query.cohorts, now, deadline),
            ).fetchone()
            rows = ((number, phone, cohort) for phone, cohort in dealt.cohorts)
            self.database.run_many("INSERT INTO dealt (query, phone, cohort) VALUES (?, ?, ?)", rows)
            records = add_records(run, query.key_id)
            made = self.query(query.digest)
            assert made is not None  # noqa: S101  # it was inserted
        self._keep_count(query.key_id, records)
        return made

    def dealt_phones(self, query: int, page: int) -> Iterator[list[tuple[bytes, bytes, int]]]:
        last = 0
        while True:
            with self.database.reading() as run:
                rows = run(
                    "SELECT number, id, verify_key, cohort FROM dealt JOIN phones ON number = phone"
                    " WHERE query = ? AND phone > ? ORDER BY phone LIMIT ?",
                    (query, last, page),
                ).fetchall()
                # Afterwards: between two statements another process may begin to delete.
                if run("SELECT 1 FROM queries WHERE number = ? AND pruned", (query,)).fetchone() is not None:
                    raise Refused(Refusal.ALREADY_DECIDED, "the query is over, and its phones are deleted")
            if not rows:
                return
            yield [row[1:] for row in rows]
            last = rows[-1][0]

    def verify_keys(self, query: int, cohort: int, phones: Sequence[bytes]) -> list[bytes | None]:
        found: dict[bytes, bytes] = {}
        with self.database.reading() as run:
            for first in range(0, len(phones), PHONES_AT_ONCE):
                some = phones[first : first + PHONES_AT_ONCE]
                found.update(run(VERIFY_KEYS.format(", ".join("?" * len(some))), (*some, query, cohort)).fetchall())
            refuse_pruned(run, query)  # afterwards: between two statements another process may begin to delete
        return [found.get(phone) for phone in phones]

    def undecided_queries(self, now: int) -> list[bytes]:
        with self.database.reading() as run:
            rows = run(
                "SELECT digest FROM progress JOIN keys ON keys.number = key"
                " WHERE undecided > 0 AND deadline > ? AND state IN (?, ?)",
                (now, *(state.name for state in IN_USE)),
            ).fetchall()
        return [digest for (digest,) in rows]

    @retried
    def erase_all_but_undecided(self, erase: Callable[[list[bytes]], None], now: int) -> None:
        with self._dealing() as run:
            if self._counts is not None:
                check_complete(run, self._counts)
            erase(self.undecided_queries(now))

    def decision(self, query: int, cohort: int) -> RecordedDecision | None:
        with self.database.reading() as run:
            row = run(
                "SELECT request, decision, keys.id, records FROM decisions"
                " JOIN queries ON queries.number = query JOIN keys ON keys.number = key WHERE query = ? AND cohort = ?",
                (query, cohort),
            ).fetchone()
        if row is None:
            return None
        self._keep_count(*row[2:])  # whoever recorded it may have been killed before
        return RecordedDecision(*row[:2])

    @retried
    def note_decryption(self, query: int, cohort: int, request: bytes) -> None:
        with self._deciding() as run:
            decided = self.decision(query, cohort)
            if decided is not None and not hmac.compare_digest(decided.request, request):
                raise Refused(Refusal.ALREADY_DECIDED)
            key_id = undecided_key(run, query, cohort, request)
            self._refuse_restored(run)
            noted = run("INSERT INTO decryptions VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (query, cohort, request))
            records = add_records(run, key_id, noted.rowcount)
        self._keep_count(key_id, records)

    @retried
    def decide(self, query: int, cohort: int, decision: RecordedDecision, now: int) -> RecordedDecision:
        with self._deciding() as run:
            found = self.decision(query, cohort)
            if found is not None:
                return found
            key_id = undecided_key(run, query, cohort, decision.request)
            self._refuse_restored(run)
            run("INSERT INTO decisions VALUES (?, ?, ?, ?, ?)", (query, cohort, *decision, now))
            records = add_records(run, key_id)
            destroy_drained(run, now)
        self._keep_count(key_id, records)
        return decision

    @retried
    def prune(self, before: int, rows: int) -> int:
        with self._deciding() as run:
            found = run(PRUNED, (before, before, before)).fetchone()
            if found is None:
                return run(PRUNE_INVITATIONS, (before, rows)).rowcount
            run("UPDATE queries SET pruned = TRUE WHERE number = ?", found)
            deleted = run(PRUNE, (*found, *found, rows)).rowcount
            return deleted + run(PRUNE_DECRYPTIONS, (*found, *found, rows - deleted)).rowcount

    def is_decided(self, query: int) -> bool:
        with self.database.reading() as run:
            (undecided,) = run("SELECT undecided FROM progress WHERE query = ?", (query,)).fetchone()
        return bool(undecided == 0)

    def __repr__(self) -> str:
        return f"SqlJournal({self.database.place})"
