"""One SQLite file that is ours, for its owner only: what was written is on disk when the writing returns."""

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from reticent.errors import ReticentError
from reticent.storage.files import OWNER_ONLY, drafted, sync_folder

__all__ = ["Database", "Execute", "FileFormat", "InUse", "Readable", "Reader", "claimed", "migrate"]

_BUSY = 10.0  # seconds to wait for another process that writes

_PRIMARY = 0xFF  # of SQLite's codes for errors, which say more above it
_ERRNO = {
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_PERM: errno.EACCES,
}

Execute = Callable[..., sqlite3.Cursor]
"""Runs a statement of SQL."""


class InUse(ReticentError):
    """Another process serves from the same file."""


@dataclass(frozen=True)
class FileFormat:
    """What a file is, and what to say of one that is something else."""

    name: str
    """As in "is not a ledger"."""
    application: int
    """SQLite's mark of whose file it is."""
    version: int
    schema: str
    """How version 1 begins, in SQL."""
    refused: Callable[[str], Exception]
    """What is raised with a sentence about a file that is damaged, foreign or of another version."""
    migrations: tuple[str, ...] = ()
    """How each later version follows from the one before, in SQL. What was once in use never changes."""
    command: str = ""
    """What the user runs to bring an older file to this version, where there are migrations."""

    def __post_init__(self) -> None:
        if self.version != 1 + len(self.migrations):
            raise ValueError(f"version {self.version} of {self.name} needs {self.version - 1} migrations")

    def bring(self, run: Execute, version: int) -> None:
        """Bring a file of some version, 0 where it is empty, to the present one."""
        for script in (self.schema, *self.migrations)[version:]:
            for statement in _statements(script):
                run(statement)
        run(f"PRAGMA user_version = {self.version}")


class Database:
    """A file of a kind, or one in memory, shared by threads and processes.

    All work is done within `reading` or `transaction`; the latter is a transaction that nobody else writes in. A
    transaction within one of the same thread is a part of it.

    Args:
        path: Where the file is or will be; None for one in memory.
        kind: What it is.
        older: Whether a file of an older version is brought to the present one, rather than refused.

    >>> notes = FileFormat("a notebook", 0x4E4F5445, 1, "CREATE TABLE notes (text TEXT);", ValueError)
    >>> database = Database(None, notes)
    >>> with database.transaction() as run:
    ...     _ = run("INSERT INTO notes VALUES (?)", ["hello"])
    >>> with database.reading() as run:
    ...     run("SELECT text FROM notes").fetchall()
    [('hello',)]
    >>> database.close()
    """

    def __init__(self, path: Path | None, kind: FileFormat, *, older: bool = False) -> None:
        self.path = path
        self._kind = kind
        self._older = older
        self._lock = threading.RLock()
        self._owner: int | None = None  # the thread of the transaction that runs
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
    def reading(self) -> Iterator[Execute]:
        """Execute statements; nobody else in this process does meanwhile."""
        with self._lock, self._damage():
            yield self._execute

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        """Execute statements that come true together, when this ends, or not at all."""
        with self._lock, self._damage():
            if self._is_inside:
                with self._savepoint():
                    yield self._execute
                return
            self._execute("BEGIN IMMEDIATE")
            self._owner = threading.get_ident()
            try:
                yield self._execute
                self._execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends some of its own accord, on a full disk for example
                    self._execute("ROLLBACK")
                raise
            finally:
                self._owner = None

    @property
    def _is_inside(self) -> bool:
        """Whether this runs within a transaction of the same thread."""
        return self._owner == threading.get_ident()

    @contextlib.contextmanager
    def _savepoint(self) -> Iterator[None]:
        """A part of a transaction: where it fails, the rest may still come true."""
        self._execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._execute("ROLLBACK TO part")
                self._execute("RELEASE part")
            raise
        self._execute("RELEASE part")

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Execute one statement."""
        return self._connection.execute(statement, values)

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Be the one process that serves from the file; others may still read and change it.

        Raises:
            InUse: Another one does.
        """
        with contextlib.nullcontext() if self.path is None else claimed(self.path):
            yield

    def backup(self, path: Path) -> None:
        """Copy all that is true at this moment to a new file, which is there whole or not at all.

        Other processes go on meanwhile, other threads of this one wait.

        Raises:
            FileExistsError: The name is taken.
        """
        with drafted(path) as draft, self._lock:
            if self._connection.in_transaction:
                raise ValueError("a backup cannot be made in the midst of a change")
            _create(draft)
            with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as copy:
                try:
                    self._connection.backup(copy)
                    copy.execute("PRAGMA journal_mode = DELETE")  # all in this one file
                    (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
                except sqlite3.OperationalError as error:
                    raise _os_error(error, path) from error
            if found != "ok":
                raise self._kind.refused(f"{self.path} is damaged: {found}")

    def close(self) -> None:
        """Let go of the file. What was forgotten is then in its log no more either, unless others use it still."""
        with self._lock:
            with contextlib.suppress(sqlite3.Error):  # whoever begins with the file next takes the log in
                if self._connection.total_changes:  # who has only read leaves the file as it was
                    self._connection.execute("PRAGMA busy_timeout = 0")
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()

    def _open(self) -> None:
        """Make the tables of a new file, and refuse one that is not ours."""
        kind = self._kind
        with self.transaction() as run:
            (application,) = run("PRAGMA application_id").fetchone()
            (version,) = run("PRAGMA user_version").fetchone()
            (tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
            if application == kind.application or (tables == 0 and application == 0):
                self._keep_private()
            if tables == 0 and application == 0:
                kind.bring(run, 0)
                run(f"PRAGMA application_id = {kind.application}")
            elif application != kind.application:
                raise kind.refused(f"{self.path} is not {kind.name}")
            elif self._older and 0 < version < kind.version:
                kind.bring(run, version)
            elif version != kind.version:
                way = f"; `{kind.command}` brings it there" if kind.command and 0 < version < kind.version else ""
                raise kind.refused(f"{self.path} has format version {version}: this program reads {kind.version}{way}")
            if missing := _shape_of(kind) - _shape(run):
                raise kind.refused(
                    f"{self.path} has no {'.'.join(min(missing))}: another version of this program made it, or damage"
                )
        with self.reading() as run:
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = FULL")
            run("PRAGMA secure_delete = ON")  # what is forgotten is overwritten, when the log is taken in

    def _keep_private(self) -> None:
        """Have nobody else read the file, now that it is known to be ours, and what SQLite has put beside it."""
        for end in () if self.path is None else ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(PermissionError, FileNotFoundError):  # somebody else's, which they let us use
                Path(f"{self.path}{end}").chmod(OWNER_ONLY)

    @contextlib.contextmanager
    def _damage(self) -> Iterator[None]:
        """What SQLite says of a file, as an error that names the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise _os_error(error, self.path) from error
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:  # a statement that is wrong, or against a constraint
                raise
            raise self._kind.refused(f"{self.path} is damaged, or not {self._kind.name}: {error}") from error


class Readable(Protocol):
    """Where statements can be run that change nothing."""

    def reading(self) -> contextlib.AbstractContextManager[Execute]:
        """Execute statements; nobody else does here meanwhile."""


class Reader:
    """A second way to a file that is open already, which does not wait for what is being written.

    The file itself is not opened and closed beside SQLite, which would lose the locks that this process has on it.

    Args:
        path: Of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA query_only = ON")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Execute]:
        """Execute statements, on what was written when each begins."""
        with self._lock:
            try:
                yield self._connection.execute
            except sqlite3.OperationalError as error:
                raise _os_error(error, self._path) from error

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()


def migrate(path: Path, kind: FileFormat) -> None:
    """Bring a file of an older version to the present one, at once or not at all, while no server has it.

    Raises:
        InUse: A server has it.
    """
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    with claimed(path), contextlib.closing(Database(path, kind, older=True)):
        pass


@contextlib.contextmanager
def claimed(path: Path, occupied: Exception | None = None) -> Iterator[None]:
    """Be the one process that serves from a file.

    Args:
        path: The file; the claim is on one beside it.
        occupied: What is raised where another process has claimed it; `InUse` unless given.
    """
    with open(f"{path}.lock", "w", encoding="utf-8", opener=_private) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise occupied or InUse(f"another process serves from {path}") from error
        yield


def _os_error(error: sqlite3.OperationalError, path: Path | None) -> OSError:
    """What the system would say of a file that SQLite cannot use now."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
    return OSError(_ERRNO.get(code, errno.EIO), str(error), str(path))


@lru_cache
def _shape_of(kind: FileFormat) -> frozenset[tuple[str, str]]:
    """The tables of the present version of a kind."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        kind.bring(empty.execute, 0)
        return _shape(empty.execute)


def _shape(run: Execute) -> frozenset[tuple[str, str]]:
    """Each table with each of its columns."""
    return frozenset(
        run(
            "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns"
            " WHERE tables.type = 'table'"
        ).fetchall()
    )


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, of which some may hold others, as triggers do."""
    begun = ""
    for part in script.split(";"):
        begun += f"{part};"
        if sqlite3.complete_statement(begun):
            if begun.strip("; \n"):
                yield begun
            begun = ""
    if begun.strip("; \n"):
        raise ValueError(f"this is no SQL: {begun.strip()}")


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, OWNER_ONLY)


def _create(path: Path) -> None:
    """A file for the owner only, whose name survives a loss of power."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    # One that is there is not opened: closing it would take the locks of another connection of this process from it.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    sync_folder(path.parent)
