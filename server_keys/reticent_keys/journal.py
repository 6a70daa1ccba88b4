"""What the key server must never forget: whom it enrolled, what it countersigned, what it dealt, what it decided.

Times are milliseconds of Unix time. Tokens of invitations are there as hashes only; of what is sensitive, the journal
says which phones could be asked what, which the aggregation server knows as well.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from reticent.storage.database import Database, FileFormat
from reticent_keys.errors import JournalError

__all__ = ["IS_DECIDED", "MEMBER", "UNDECIDED", "KeyState", "is_owned", "open_journal", "owned"]


class KeyState(Enum):
    """What a key pair is good for."""

    ACTIVE = "queries are countersigned and decided under it"
    DRAINING = "what was countersigned under it is decided"
    DESTROYED = "all that was countersigned under it is decided, and the secret key is gone"
    RETIRED = "it is in a copy of the journal, and what was decided under it since is not known: nothing is, any more"


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
    previous INTEGER,
    gone TEXT
);
CREATE INDEX members ON phones (expires) WHERE gone IS NULL;
CREATE TABLE invitations (
    hash BLOB PRIMARY KEY,
    expires INTEGER NOT NULL,
    phone INTEGER REFERENCES phones
) WITHOUT ROWID;
CREATE TABLE queries (
    number INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    id TEXT NOT NULL UNIQUE,
    content BLOB NOT NULL,
    agreement_key BLOB NOT NULL,
    key INTEGER NOT NULL REFERENCES keys,
    cohorts INTEGER NOT NULL,
    countersigned INTEGER NOT NULL
);
CREATE INDEX queries_of_keys ON queries (key);
CREATE TABLE dealt (
    query INTEGER NOT NULL,
    phone INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    PRIMARY KEY (query, phone)
) WITHOUT ROWID;
CREATE TABLE begun (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    request BLOB NOT NULL,
    PRIMARY KEY (query, cohort)
) WITHOUT ROWID;
CREATE TABLE decisions (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    request BLOB NOT NULL,
    answer BLOB NOT NULL,
    made INTEGER NOT NULL,
    PRIMARY KEY (query, cohort)
);
"""

MEMBER = "gone IS NULL AND expires > ?"
"""Of phones: who can be asked at some time."""

UNDECIDED = """((SELECT coalesce(sum(cohorts), 0) FROM queries WHERE key = keys.number)
 - (SELECT count(*) FROM decisions JOIN queries ON queries.number = decisions.query WHERE queries.key = keys.number))"""
"""Of keys: how many cohorts of what was countersigned under one are not decided."""

IS_DECIDED = "cohorts = (SELECT count(*) FROM decisions WHERE decisions.query = queries.number)"
"""Of queries: whether all cohorts are."""

JOURNAL = FileFormat("a key server's journal", 0x524B4A31, 1, SCHEMA, JournalError)


def open_journal(path: Path | None) -> Database:
    """The journal at this path, a new one where there is none; one in memory for None.

    Raises:
        JournalError: The file is damaged, foreign or of another version.
    """
    return Database(path, JOURNAL)


def owned(journal: Database, identity: bytes) -> None:
    """Make the journal that of the server with this public key, or check that it is.

    Raises:
        JournalError: It is another server's.
    """
    with journal.transaction() as run:
        found = run("SELECT identity FROM server").fetchone()
        if found is None:
            run("INSERT INTO server (identity) VALUES (?)", (identity,))
        elif found != (identity,):
            raise JournalError(f"{journal.path} is the journal of another key server than the identity beside it")


def is_owned(journal: Database) -> bool:
    """Whether a server has begun with this journal."""
    with journal.reading() as run:
        return run("SELECT 1 FROM server").fetchone() is not None
