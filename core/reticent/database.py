"""One SQLite file that is ours, for its owner only: what was written is on disk when the writing returns."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Database", "Kind"]

_OWNER_ONLY = 0o600
_BUSY = 10.0  # seconds to wait for another process that writes


@dataclass(frozen=True)
class Kind:
    """What a file is, and what to say of one that is something else."""

    name: str
    """As in "is not a ledger"."""
    application: int
    """SQLite's mark of whose file it is."""
    version: int
    schema: str
    refused: Callable[[str], Exception]
    """What is raised with a sentence about a file that is damaged, foreign or of another version."""


class Database:
    """A file of a kind, or one in memory, shared by threads and processes.

    All work is done within `reading` or `changing`; the latter is a transaction that nobody else writes in.

    >>> notes = Kind("a notebook", 0x4E4F5445, 1, "CREATE TABLE notes (text TEXT);", ValueError)
    >>> database = Database(None, notes)
    >>> with database.changing() as run:
    ...     _ = run("INSERT INTO notes VALUES (?)", ["hello"])
    >>> with database.reading() as run:
    ...     run("SELECT text FROM notes").fetchall()
    [('hello',)]
    """

    def __init__(self, path: Path | None, kind: Kind) -> None:
        self.path = path
        self._kind = kind
        self._lock = threading.RLock()
        if path is not None:
            _create(path)
        self._connection = sqlite3.connect(
            ":memory:" if path is None else path, timeout=_BUSY, isolation_level=None, check_same_thread=False
        )
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """Run statements; nobody else in this process does meanwhile."""
        with self._lock, self._damage():
            yield self.execute

    @contextlib.contextmanager
    def changing(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """Run statements that come true together, when this ends, or not at all."""
        with self._lock, self._damage():
            self.execute("BEGIN IMMEDIATE")
            try:
                yield self.execute
                self.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends some of its own accord, on a full disk for example
                    self.execute("ROLLBACK")
                raise

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement."""
        return self._connection.execute(statement, values)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    def _open(self) -> None:
        """Make the tables of a new file, and refuse one that is not ours."""
        kind = self._kind
        with self.changing() as run:
            (application,) = run("PRAGMA application_id").fetchone()
            (version,) = run("PRAGMA user_version").fetchone()
            (tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
            if tables == 0 and application == 0:
                for statement in filter(str.strip, kind.schema.split(";")):
                    run(statement)
                run(f"PRAGMA application_id = {kind.application}")
                run(f"PRAGMA user_version = {kind.version}")
            elif application != kind.application:
                raise kind.refused(f"{self.path} is not {kind.name}")
            elif version != kind.version:
                raise kind.refused(f"{self.path} has format version {version}: this program reads {kind.version}")
        with self.reading() as run:
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = FULL")
            run("PRAGMA secure_delete = ON")  # what is forgotten is not on the disk either

    @contextlib.contextmanager
    def _damage(self) -> Iterator[None]:
        """What SQLite says of a file, as an error that names the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise OSError(None, str(error), str(self.path)) from error
        except sqlite3.DatabaseError as error:
            raise self._kind.refused(f"{self.path} is damaged, or not {self._kind.name}: {error}") from error


def _create(path: Path) -> None:
    """A file for the owner only, whose name survives a loss of power."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, _OWNER_ONLY)
    try:
        with contextlib.suppress(PermissionError):  # somebody else's file, which they let us use
            os.fchmod(file, _OWNER_ONLY)
    finally:
        os.close(file)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
