"""The journal of a key server in one SQLite file."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path

from reticent.privacy import Query
from reticent.protocol import Refusal, Refused
from reticent.storage.database import Database, Execute, FileFormat
from reticent.storage.files import drafted
from reticent.times import instant
from reticent_keys.errors import JournalError
from reticent_keys.journal import (
    IN_USE,
    CountersignedQuery,
    Deal,
    EnrolledPhone,
    Journal,
    Key,
    KeyServerSummary,
    KeyState,
    KeySummary,
    PhoneSummary,
    RecordedDecision,
)

__all__ = ["SqliteJournal"]

SCHEMA = """
CREATE TABLE server (
    identity BLOB NOT NULL,
    copied INTEGER
);
CREATE TABLE keys (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    bits INTEGER NOT NULL,
    public BLOB NOT NULL,
    made INTEGER NOT NULL
);
CREATE UNIQUE INDEX one_is_active ON keys (state) WHERE state = 'ACTIVE';
CREATE TABLE phones (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    verify_key BLOB NOT NULL,
    enrolled INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    renewed_from INTEGER,
    ended TEXT
);
CREATE INDEX members ON phones (expires) WHERE ended IS NULL;
CREATE TABLE invitations (
    number INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    expires INTEGER NOT NULL,
    phone INTEGER UNIQUE REFERENCES phones
);
CREATE TABLE queries (
    number INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    id TEXT NOT NULL UNIQUE,
    content BLOB NOT NULL,
    agreement_key BLOB NOT NULL,
    key INTEGER NOT NULL REFERENCES keys,
    cohorts INTEGER NOT NULL,
    countersigned INTEGER NOT NULL,
    deadline INTEGER NOT NULL
);
CREATE INDEX queries_of_keys ON queries (key);
CREATE TABLE dealt (
    query INTEGER NOT NULL,
    phone INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    PRIMARY KEY (query, phone)
) WITHOUT ROWID;
CREATE TABLE decryptions (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    request BLOB NOT NULL,
    PRIMARY KEY (query, cohort)
) WITHOUT ROWID;
CREATE TABLE decisions (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    request BLOB NOT NULL,
    decision BLOB NOT NULL,
    made INTEGER NOT NULL,
    PRIMARY KEY (query, cohort)
);
CREATE VIEW progress AS
SELECT number AS query, digest, key, deadline,
    cohorts - (SELECT count(*) FROM decisions WHERE query = queries.number) AS undecided
FROM queries;
"""

JOURNAL = FileFormat("a key server's journal", 0x524B4A31, 2, SCHEMA, JournalError)
PAGE = 1000


class SqliteJournal(Journal):
    """A journal in a file, which is created if it does not exist.

    Args:
        path: Where the file is; None for a journal in memory.

    Raises:
        JournalError: The file is damaged, foreign or of another version.
    """

    def __init__(self, path: Path | None) -> None:
        self.database = Database(path, JOURNAL)

    def take_ownership(self, identity: bytes) -> None:
        with self.database.transaction() as run:
            found = run("SELECT identity FROM server").fetchone()
            if found is None:
                run("INSERT INTO server (identity) VALUES (?)", (identity,))
            elif found != (identity,):
                raise JournalError(
                    f"{self.database.path} is the journal of another key server than the identity beside it"
                )

    def owner(self) -> bytes | None:
        with self.database.reading() as run:
            found = run("SELECT identity FROM server").fetchone()
        return None if found is None else bytes(found[0])

    def claim(self) -> AbstractContextManager[None]:
        return self.database.claim()

    def backup(self, path: Path, now: int) -> None:
        with drafted(path) as draft:
            self.database.backup(draft)
            with closing(SqliteJournal(draft)) as copy:
                copy.retire_keys()
                with copy.database.transaction() as run:
                    run("UPDATE server SET copied = ?", (now,))

    def close(self) -> None:
        self.database.close()

    def summary(self, now: int) -> KeyServerSummary:
        with self.database.reading() as run:
            row = run(
                "SELECT identity, copied, (SELECT count(*) FROM phones WHERE ended IS NULL AND expires > :now),"
                " (SELECT count(*) FROM phones),"
                " (SELECT count(*) FROM invitations WHERE phone IS NULL AND expires > :now),"
                " (SELECT count(*) FROM queries), (SELECT count(*) FROM decisions) FROM server",
                {"now": now},
            ).fetchone()
            keys = run(
                "SELECT id, state, bits, made, count(query), coalesce(sum(undecided), 0)"
                " FROM keys LEFT JOIN progress ON key = keys.number GROUP BY keys.number ORDER BY keys.number DESC"
            ).fetchall()
        summaries = tuple(
            KeySummary(key_id, state, bits, instant(made), queries, undecided)
            for key_id, state, bits, made, queries, undecided in keys
        )
        identity, copied, members, phones, invitations, queries, decided = row
        since = None if copied is None else instant(copied)
        return KeyServerSummary(identity.hex(), members, phones, invitations, queries, decided, summaries, since)

    def add_invitations(self, hashes: Iterable[bytes], expires: int) -> None:
        with self.database.transaction() as run:
            for each in hashes:
                run("INSERT INTO invitations (hash, expires) VALUES (?, ?)", (each, expires))

    def enrol(self, invitation: bytes, phone: EnrolledPhone) -> EnrolledPhone:
        with self.database.transaction() as run:
            found = run("SELECT expires, phone FROM invitations WHERE hash = ?", (invitation,)).fetchone()
            if found is None:
                raise Refused(Refusal.INVITATION, "there is no such invitation")
            expires, number = found
            if number is not None:
                enrolled = _phone(run("SELECT * FROM phones WHERE number = ?", (number,)).fetchone())
                if enrolled.verify_key != phone.verify_key:
                    raise Refused(Refusal.INVITATION, "another phone has used the invitation")
                return enrolled
            if expires <= phone.enrolled:
                raise Refused(Refusal.INVITATION, "the invitation has expired")
            number = run(
                "INSERT INTO phones (id, verify_key, enrolled, expires) VALUES (?, ?, ?, ?)", phone[:4]
            ).lastrowid
            run("UPDATE invitations SET phone = ? WHERE hash = ?", (number, invitation))
        return phone

    def phone(self, phone_id: bytes) -> EnrolledPhone:
        with self.database.reading() as run:
            row = run("SELECT * FROM phones WHERE id = ?", (phone_id,)).fetchone()
        if row is None:
            raise Refused(Refusal.UNKNOWN_PHONE, f"no phone has the id {phone_id.hex()}")
        return _phone(row)

    def change_phone(self, phone_id: bytes, change: Callable[[EnrolledPhone], EnrolledPhone]) -> EnrolledPhone:
        with self.database.transaction() as run:
            phone = change(self.phone(phone_id))
            run(
                "UPDATE phones SET expires = ?, renewed_from = ?, ended = ? WHERE id = ?",
                (phone.expires, phone.renewed_from, phone.ended, phone_id),
            )
        return phone

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
            for phone in map(_phone, rows):
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
        return [key for key in map(_key, rows) if key.state in states]

    def key(self, key_id: str) -> Key | None:
        with self.database.reading() as run:
            row = run("SELECT id, bits, public, state FROM keys WHERE id = ?", (key_id,)).fetchone()
        return None if row is None else _key(row)

    def activate(self, key: Key, now: int) -> None:
        with self.database.transaction() as run:
            former = run("SELECT number FROM keys WHERE state = 'ACTIVE'").fetchone()
            if former is not None:
                run("UPDATE keys SET state = 'DRAINING' WHERE number = ?", former)
                _destroy_drained(run, *former)
            run(
                "INSERT INTO keys (id, state, bits, public, made) VALUES (?, 'ACTIVE', ?, ?, ?)",
                (key.id, key.bits, key.public, now),
            )

    def retire_keys(self) -> None:
        with self.database.transaction() as run:
            run("UPDATE keys SET state = 'RETIRED' WHERE state IN (?, ?)", [state.name for state in IN_USE])

    def query(self, digest: bytes) -> CountersignedQuery | None:
        with self.database.reading() as run:
            row = run(
                "SELECT queries.number, digest, content, agreement_key, deadline, keys.id, bits, public, state"
                " FROM queries JOIN keys ON keys.number = queries.key WHERE digest = ?",
                (digest,),
            ).fetchone()
        return None if row is None else CountersignedQuery(row[0], row[1], row[2], row[3], row[4], _key(row[5:]))

    def countersigned(self, query: Query) -> CountersignedQuery | None:
        with self.database.reading() as run:
            row = run("SELECT digest FROM queries WHERE id = ?", (query.id,)).fetchone()
            found = None if row is None else self.query(*row)
        if found is not None and found.digest != query.digest:
            raise Refused(Refusal.CONFLICT, f"another query has the id {query.id!r}")
        if found is not None:
            found.key.refuse_retired()
        return found

    def countersign(
        self, query: Query, deal: Callable[[Sequence[int]], Deal], now: int, deadline: int
    ) -> CountersignedQuery:
        with self.database.transaction() as run:
            found = self.countersigned(query)
            if found is not None:
                return found
            active = run("SELECT number FROM keys WHERE state = 'ACTIVE' AND id = ?", (query.key_id,)).fetchone()
            if active is None:
                raise Refused(Refusal.KEY_RETIRED, "the query names a key that is not the active one")
            members = run(  # in the order of the invitations, which does not depend on who joined first
                "SELECT phones.number FROM phones LEFT JOIN invitations ON phone = phones.number"
                " WHERE ended IS NULL AND phones.expires > ? ORDER BY invitations.number, phones.number",
                (now,),
            ).fetchall()
            dealt = deal([phone for (phone,) in members])
            number = run(
                "INSERT INTO queries (digest, id, content, agreement_key, key, cohorts, countersigned, deadline)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (query.digest, query.id, query.to_bytes(), dealt.agreement_key, *active, query.cohorts, now, deadline),
            ).lastrowid
            for phone, cohort in dealt.cohorts:
                run("INSERT INTO dealt (query, phone, cohort) VALUES (?, ?, ?)", (number, phone, cohort))
            made = self.query(query.digest)
            assert made is not None  # noqa: S101  # it was inserted
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
            if not rows:
                return
            yield [row[1:] for row in rows]
            last = rows[-1][0]

    def verify_keys(self, query: int, cohort: int, phones: Iterable[bytes]) -> list[bytes | None]:
        with self.database.reading() as run:
            rows = [
                run(
                    "SELECT verify_key FROM phones JOIN dealt ON phone = number"
                    " WHERE id = ? AND query = ? AND cohort = ?",
                    (phone, query, cohort),
                ).fetchone()
                for phone in phones
            ]
        return [None if row is None else row[0] for row in rows]

    def undecided_queries(self, now: int) -> list[bytes]:
        with self.database.reading() as run:
            rows = run(
                "SELECT digest FROM progress JOIN keys ON keys.number = key"
                " WHERE undecided > 0 AND deadline > ? AND state IN (?, ?)",
                (now, *(state.name for state in IN_USE)),
            ).fetchall()
        return [digest for (digest,) in rows]

    def overdue_queries(self, now: int) -> list[bytes]:
        with self.database.reading() as run:
            rows = run("SELECT digest FROM progress WHERE undecided > 0 AND deadline <= ?", (now,)).fetchall()
        return [digest for (digest,) in rows]

    def decision(self, query: int, cohort: int) -> RecordedDecision | None:
        with self.database.reading() as run:
            row = run(
                "SELECT request, decision FROM decisions WHERE query = ? AND cohort = ?", (query, cohort)
            ).fetchone()
        return None if row is None else RecordedDecision(*row)

    def note_decryption(self, query: int, cohort: int, request: bytes) -> None:
        with self.database.transaction() as run:
            _refuse_undecidable(run, query, cohort, request)
            run("INSERT OR IGNORE INTO decryptions VALUES (?, ?, ?)", (query, cohort, request))

    def decide(self, query: int, cohort: int, decision: RecordedDecision, now: int) -> RecordedDecision:
        with self.database.transaction() as run:
            found = self.decision(query, cohort)
            if found is not None:
                return found
            key = _refuse_undecidable(run, query, cohort, decision.request)
            run("INSERT INTO decisions VALUES (?, ?, ?, ?, ?)", (query, cohort, *decision, now))
            _destroy_drained(run, key)
        return decision

    def is_decided(self, query: int) -> bool:
        with self.database.reading() as run:
            (undecided,) = run("SELECT undecided FROM progress WHERE query = ?", (query,)).fetchone()
        return bool(undecided == 0)

    def __repr__(self) -> str:
        return f"SqliteJournal({self.database.path})"


def _phone(row: tuple[object, ...]) -> EnrolledPhone:
    return EnrolledPhone(*row[1:])  # type: ignore[arg-type]  # the schema says so


def _key(row: tuple[str, int, bytes, str]) -> Key:
    key_id, bits, public, state = row
    return Key(key_id, bits, public, KeyState[state])


def _refuse_undecidable(run: Execute, query: int, cohort: int, request: bytes) -> int:
    """Refuse a request that may not be decided any more, within a transaction; otherwise the query's key."""
    key, state, noted = run(
        "SELECT key, state, (SELECT request FROM decryptions WHERE query = queries.number AND cohort = ?)"
        " FROM queries JOIN keys ON keys.number = key WHERE queries.number = ?",
        (cohort, query),
    ).fetchone()
    if noted is not None and not hmac.compare_digest(noted, request):
        raise Refused(Refusal.ALREADY_DECIDED)
    if state == KeyState.RETIRED.name:
        raise Refused(Refusal.KEY_RETIRED, KeyState.RETIRED.value)
    return int(key)


def _destroy_drained(run: Execute, key: int) -> None:
    """Mark a draining key as destroyed, within a transaction, if all queries under it are decided."""
    run(
        "UPDATE keys SET state = 'DESTROYED' WHERE number = ? AND state = 'DRAINING'"
        " AND NOT EXISTS (SELECT 1 FROM progress WHERE key = keys.number AND undecided > 0)",
        (key,),
    )
