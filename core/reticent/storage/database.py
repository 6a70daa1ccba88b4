"""A SQLite file that only its owner may read: a transaction is on disk when it ends."""

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from reticent.storage.files import OWNER_ONLY, drafted, sync_file, sync_folder
from reticent.storage.sql import Claim, Execute, FileFormat, InUse, statements

__all__ = ["Database", "Reader", "claimed", "columns_of", "named_errors"]

_BUSY = 10.0  # seconds to wait for another process that writes
_ERASING = 1000  # milliseconds to wait for other processes before deleted content is overwritten

_PRIMARY = 0xFF  # the part of SQLite's extended error codes that is the error itself
_ERRNO = {
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_PERM: errno.EACCES,
}


class Database:
    """A file, or a database in memory, that threads and processes share.

    All work is done within `reading` or `transaction`. One transaction runs at a time. A transaction within one of the
    same thread is a part of it.

    Args:
        path: Of the file, which is made if there is none; None for a database in memory.
        file_format: Of the file.
        migrate: Upgrade a file of an older version.

    >>> notes = FileFormat("a notebook", 0x4E4F5445, "CREATE TABLE notes (text TEXT);", ValueError)
    >>> database = Database(None, notes)
    >>> with database.transaction() as run:
    ...     _ = run("INSERT INTO notes VALUES (?)", ["hello"])
    >>> with database.reading() as run:
    ...     run("SELECT text FROM notes").fetchall()
    [('hello',)]
    >>> database.close()
    """

    def __init__(self, path: Path | None, file_format: FileFormat, *, migrate: bool = False) -> None:
        self.path = path
        self._format = file_format
        self._migrate = migrate
        self._lock = threading.RLock()
        self._owner: int | None = None  # the thread of the transaction that runs
        with contextlib.nullcontext() if path is None else _opening(path):
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

    @property
    def place(self) -> str:
        """The path of the file."""
        return str(self.path)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Execute]:
        """Execute statements; the other threads of this process wait."""
        with self._lock, named_errors(self.path, self._format):
            yield self._execute

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        """Execute statements that take effect together when this ends, or not at all."""
        with self._lock, named_errors(self.path, self._format):
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
                if self._connection.in_transaction:  # SQLite itself ends some, on a full disk for example
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

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """Run a statement for each row, within a transaction of this thread; returns all rows that it returns."""
        return [returned for row in rows for returned in self._execute(statement, row).fetchall()]

    def lock(self, name: bytes, *, shared: bool = False) -> None:
        """Do nothing: a transaction excludes all others."""

    def try_lock(self, name: bytes, *, patience: float = 0.0) -> bool:  # as of PostgreSQL
        """Do nothing: a transaction excludes all others."""
        return True

    def try_lock_shared(self, name: bytes) -> bool:  # as of PostgreSQL
        """Do nothing: a transaction excludes all others."""
        return True

    @contextlib.contextmanager
    def claim(self, slots: int = 1) -> Iterator[Claim]:  # a file has one slot
        """Be the one process that serves from the file; other processes may still read and change it.

        Raises:
            InUse: Another process does.
        """
        with contextlib.nullcontext() if self.path is None else claimed(self.path):
            yield _FileClaim()

    def accept_restored(self) -> None:
        """Do nothing: a file is not replaced while a process serves from it."""

    def clock(self) -> None:
        """A file has no clock."""

    def backup(self, path: Path) -> None:
        """Copy the present content to a new file, whole or not at all.

        Other processes continue meanwhile; other threads of this process wait.

        Raises:
            FileExistsError: The name is taken.
        """
        with drafted(path) as draft, self._lock:
            if self._connection.in_transaction:
                raise ValueError("a backup cannot be made within a transaction")
            _create(draft)
            with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as copy:
                try:
                    self._connection.backup(copy)
                    copy.execute("PRAGMA journal_mode = DELETE")  # all in this one file
                    (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
                except sqlite3.OperationalError as error:
                    raise _os_error(error, path) from error
            if found != "ok":
                raise self._format.refused(f"{self.path} is damaged: {found}")

    def erase_deleted(self) -> bool:
        """Overwrite deleted content now, also in the log of the database. Returns whether that was possible.

        If another process reads or writes for a second, the content stays until a process closes the file.
        """
        with self._lock, named_errors(self.path, self._format):
            self._execute(f"PRAGMA busy_timeout = {_ERASING:d}")
            try:
                busy, *_ = self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._execute(f"PRAGMA busy_timeout = {1000 * _BUSY:.0f}")
        return not busy

    def close(self) -> None:
        """Close the file. Deleted content is then gone from its log as well, unless another process uses the file."""
        with self._lock:
            with contextlib.suppress(sqlite3.Error):  # the next process that opens the file does this
                if self._connection.total_changes:  # a reader leaves the file as it was
                    self._connection.execute("PRAGMA busy_timeout = 0")
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()

    def _open(self) -> None:
        """Make the tables of a new file, and refuse a file of another format."""
        own = self._format
        with self.transaction() as run:
            (application,) = run("PRAGMA application_id").fetchone()
            (version,) = run("PRAGMA user_version").fetchone()
            (tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
            is_new = tables == 0 and application == 0
            if is_new or application == own.application:
                self._keep_private()
            if is_new:
                _create_tables(own, run)
            elif application != own.application:
                raise own.refused(f"{self.path} is not {own.name}")
            elif self._migrate and own.can_upgrade(version):
                own.upgrade(run, version)
                run(f"PRAGMA user_version = {own.version}")
            elif version != own.version:
                raise own.refused_version(self.path, version)
            if missing := columns_of(own) - _columns(run):
                raise own.refused(
                    f"{self.path} has no {'.'.join(min(missing))}: it is damaged, or another program made it"
                )
        with self.reading() as run:
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = FULL")
            run("PRAGMA secure_delete = ON")  # deleted content is overwritten at the next checkpoint
        self._sync_log()

    def _sync_log(self) -> None:
        """Make what is read from now on survive a loss of power: its writer may have died before it synced.

        SQLite holds no locks on the log, which closing it here would release.
        """
        if self.path is not None:
            with contextlib.suppress(FileNotFoundError):
                sync_file(Path(f"{self.path}-wal"))

    def _keep_private(self) -> None:
        """Let only the owner read the file, and the files that SQLite puts beside it."""
        for end in () if self.path is None else ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(PermissionError, FileNotFoundError):  # another user's, which we may use
                Path(f"{self.path}{end}").chmod(OWNER_ONLY)


class _FileClaim:
    """A claim of a file ends with its process only."""

    slot = 0

    def check(self) -> None:
        """The claim cannot be lost."""

    def renew(self) -> None:
        """The claim cannot be lost."""


class Reader:
    """A second connection to an open file, which does not wait for transactions.

    Only SQLite opens and closes the file: a plain close would release the locks of this process.

    Args:
        path: Of the file.
        file_format: Of the file.
    """

    def __init__(self, path: Path, file_format: FileFormat) -> None:
        self._path = path
        self._format = file_format
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA query_only = ON")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Execute]:
        """Execute statements, on what was written when each begins."""
        with self._lock, named_errors(self._path, self._format):
            yield self._connection.execute

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()


@contextlib.contextmanager
def named_errors(path: Path | None, file_format: FileFormat) -> Iterator[None]:
    """SQLite's errors, as errors that name the file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _os_error(error, path) from error
    except sqlite3.DatabaseError as error:
        if type(error) is not sqlite3.DatabaseError:  # a wrong statement, or a violated constraint
            raise
        raise file_format.refused(f"{path} is damaged, or not {file_format.name}: {error}") from error


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


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Be the only one that opens a file of the same folder.

    SQLite fails, or waits in vain, where two connections to a new file switch to the write-ahead log at the same time.
    The lock is on the folder: closing a descriptor of the file itself would release SQLite's own locks.
    """
    try:
        descriptor = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _os_error(error: sqlite3.OperationalError, path: Path | None) -> OSError:
    """The system's error for a file that SQLite cannot use now."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
    return OSError(_ERRNO.get(code, errno.EIO), str(error), str(path))


def _create_tables(file_format: FileFormat, run: Execute) -> None:
    """Make the tables in an empty file, and mark it."""
    for statement in statements(file_format.schema):
        run(statement)
    run(f"PRAGMA user_version = {file_format.version}")
    run(f"PRAGMA application_id = {file_format.application}")


@lru_cache
def columns_of(file_format: FileFormat) -> frozenset[tuple[str, str]]:
    """The columns of a new file, each with its table."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        _create_tables(file_format, empty.execute)
        return _columns(empty.execute)


def _columns(run: Execute) -> frozenset[tuple[str, str]]:
    """All columns, each with its table."""
    return frozenset(
        run(
            "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns"
            " WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite%'"
        ).fetchall()
    )


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
