"""A notebook in PostgreSQL, for the tests of its storage."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import psycopg

from reticent.storage.databases import open_database
from reticent.storage.sql import FileFormat, SqlDatabase

SCHEMA = """
CREATE TABLE notes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL UNIQUE, data BLOB, size INTEGER, marked BOOLEAN
);
CREATE TABLE marks (note INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (note, at)) WITHOUT ROWID;
"""


class BadNotes(Exception):
    pass


NOTES = FileFormat("a notebook", 0x4E4F5445, SCHEMA, BadNotes, namespace="notes", migrate="notes migrate")
NEWER = replace(
    NOTES,
    schema=SCHEMA.replace("size INTEGER", "size INTEGER, author TEXT"),
    migrations=("ALTER TABLE notes ADD COLUMN author TEXT; UPDATE notes SET author = 'ann' WHERE marked;",),
)


@contextlib.contextmanager
def opened(url: str | None, file_format: FileFormat = NOTES) -> Iterator[SqlDatabase]:
    with contextlib.closing(open_database(url, file_format)) as database:
        yield database


def texts(database: SqlDatabase) -> list[str]:
    with database.reading() as run:
        return [text for (text,) in run("SELECT text FROM notes ORDER BY number").fetchall()]


def write(database: SqlDatabase, *texts: str) -> None:
    with database.transaction() as run:
        for text in texts:
            run("INSERT INTO notes (text) VALUES (?)", (text,))


def kill_connections(url: str) -> None:
    """End all connections to a database but this one."""
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@contextlib.contextmanager
def hung(database: SqlDatabase) -> Iterator[int]:
    """The server's process of the connection that is used next stops, as on a machine that hangs."""
    with database.reading() as run:
        (pid,) = run("SELECT pg_backend_pid()").fetchone()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)
