"""What the aggregation server keeps, in one SQLite file.

Of a contribution there is a receipt, and its part in the sum of its cohort: the ciphertexts themselves are not kept.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from reticent.database import Database, Kind
from reticent_agg.errors import BadStore

__all__ = ["KIND", "Readable", "Reader", "Run", "opened"]

Run = Callable[..., Any]
"""Runs a statement of SQL."""


# Times are milliseconds of Unix time; phases are those of the wire. A query's number stands for its digest in the
# tables with a row for each phone.
_SCHEMA = """
CREATE TABLE keys (
    id BLOB PRIMARY KEY,
    content BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE queries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB NOT NULL UNIQUE,
    id TEXT NOT NULL UNIQUE,
    content BLOB NOT NULL,
    plaintexts INTEGER NOT NULL,
    phase INTEGER NOT NULL,
    announced INTEGER NOT NULL,
    countersignature BLOB,
    closes INTEGER,
    decided INTEGER,
    aborted INTEGER NOT NULL DEFAULT 0,
    refusal TEXT,
    detail TEXT,
    pruned INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX queries_by_phase ON queries (phase, closes);
CREATE TABLE dealt (
    query INTEGER NOT NULL,
    phone BLOB NOT NULL,
    verify_key BLOB NOT NULL,
    cohort INTEGER NOT NULL,
    PRIMARY KEY (query, phone)
) WITHOUT ROWID;
CREATE TABLE receipts (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    phone BLOB NOT NULL,
    ciphertexts_hash BLOB NOT NULL,
    seeded INTEGER NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (query, cohort, phone)
) WITHOUT ROWID;
CREATE TABLE sums (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    enough INTEGER NOT NULL,
    contributors INTEGER NOT NULL,
    ciphertexts BLOB NOT NULL,
    PRIMARY KEY (query, cohort)
);
CREATE TABLE requests (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    head BLOB NOT NULL,
    burn INTEGER NOT NULL,
    PRIMARY KEY (query, cohort)
);
CREATE TABLE decisions (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    answer BLOB NOT NULL,
    PRIMARY KEY (query, cohort)
);
"""

KIND = Kind("an aggregation server's file", 0x52414747, 1, _SCHEMA, BadStore, command="reticent agg migrate")


class Readable(Protocol):
    """Where statements can be run that change nothing."""

    def reading(self) -> contextlib.AbstractContextManager[Run]:
        """Run statements; nobody else does here meanwhile."""


class Reader:
    """A second way to a file that is open already, which does not wait for what is being written.

    The file itself is not opened and closed beside SQLite, which would lose the locks that this process has on it.

    Args:
        path: Of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA query_only = ON")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Run]:
        """Run statements, on what was written when each begins."""
        with self._lock:
            try:
                yield self._connection.execute
            except sqlite3.OperationalError as error:
                raise OSError(None, str(error), str(self._path)) from error

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()


def opened(path: Path | None) -> Database:
    """The file, made where there is none; None for one in memory."""
    return Database(path, KIND)
