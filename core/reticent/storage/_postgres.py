"""A PostgreSQL database, which processes on several machines share: a transaction is on disk when it ends.

Transactions run at READ COMMITTED: a statement that reads rows to change them locks them first. The tables are in a
schema of their own, whose name the format gives.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from reticent.storage._postgres_claims import (
    LOCK_ONCE,
    LOCK_SHARED,
    OPENING,
    SERVING,
    SET_LOCK_TIMEOUT,
    TRY_LOCK_ONCE,
    TRY_LOCK_SHARED,
    SlotClaim,
)
from reticent.storage._postgres_connection import (
    LOCK_TIMEOUT,
    PostgresConnection,
    connect,
    has_password,
    is_usable,
    is_worn,
    named_errors,
    parse,
    schemas,
    shown_address,
)
from reticent.storage._postgres_history import History, add_history
from reticent.storage._postgres_sql import inserts, translated
from reticent.storage.database import columns_of
from reticent.storage.sql import Claim, Execute, FileFormat, InUse, statements

__all__ = ["PostgresDatabase", "has_password", "schemas"]

_COLUMNS = "SELECT CAST(table_name AS text), CAST(column_name AS text) FROM information_schema.columns"
_MARK = "CREATE TABLE file_format (application INTEGER NOT NULL, version INTEGER NOT NULL)"


class PostgresDatabase:
    """A schema of a PostgreSQL database, that threads and processes share.

    Each transaction has a connection of its own. One that is lost is replaced at the next call.

    Args:
        url: Such as postgresql://user@host/name; the password may be in a passfile.
        file_format: Of the schema, which is made if there is none.
        migrate: Upgrade a schema of an older version, which no process serves from.
    """

    def __init__(self, url: str, file_format: FileFormat, *, migrate: bool = False) -> None:
        if not file_format.namespace:
            raise ValueError(f"{file_format.name} is kept in a file: got an address of PostgreSQL")
        self._parameters = parse(url)
        self._format = file_format
        self._lock = threading.Lock()
        self._idle: list[PostgresConnection] = []
        self._is_closed = False
        self._history = History(file_format, self.place)
        self._own = threading.local()  # the connection of the transaction of a thread
        try:
            self._open(migrate=migrate)
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> str:
        """The address, without user and password."""
        return shown_address(self._parameters)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Execute]:
        """Execute statements, each on what is committed when it begins; or within a transaction of this thread."""
        with self._named_errors():
            if (connection := self._current()) is not None:
                yield partial(_execute, connection)
                return
            with self._connected() as connection:
                yield partial(_execute, connection)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        """Execute statements that take effect together when this ends, or not at all."""
        with self._named_errors():
            if (connection := self._current()) is not None:
                with _savepoint(connection):
                    yield partial(_execute, connection)
                return
            with self._connected() as connection:
                _execute(connection, "BEGIN ISOLATION LEVEL READ COMMITTED")
                self._own.connection = connection
                try:
                    run = partial(_execute, connection)
                    yield run
                    number = self._history.advance(run) if self._history.is_kept else 0
                    self._commit(connection)
                    self._history.committed(number)
                except BaseException:
                    with contextlib.suppress(psycopg.Error):  # a lost connection has no transaction
                        _execute(connection, "ROLLBACK")
                    raise
                finally:
                    self._own.connection = None

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """Run an INSERT for each row, within a transaction of this thread; a column has values of one type, or none.

        Returns the rows that the statement's RETURNING names.
        """
        returned: list[Any] = []
        for every, columns in inserts(statement, rows):
            cursor = _execute(self._within(), every, columns)
            returned += cursor.fetchall() if cursor.description else []
        return returned

    def lock(self, name: bytes, *, shared: bool = False) -> None:
        """Wait until no other transaction has locked this name, and lock it to the end of this thread's transaction.

        Shared locks exclude exclusive ones only. Whoever waits longest is first: unlike a row lock, an exclusive lock
        does not wait for shared ones that come later.
        """
        _execute(self._within(), LOCK_SHARED if shared else LOCK_ONCE, self._name_lock(name))

    def try_lock(self, name: bytes, *, patience: float = 0.0) -> bool:
        """Lock a name as `lock` does, but wait so many seconds at most; False if another transaction has it then."""
        connection, lock = self._within(), self._name_lock(name)
        if not patience:
            (is_locked,) = _execute(connection, TRY_LOCK_ONCE, lock).fetchone() or (False,)
            return bool(is_locked)
        try:
            with _savepoint(connection):
                _execute(connection, SET_LOCK_TIMEOUT, (round(1000 * patience),))
                _execute(connection, LOCK_ONCE, lock)
                _execute(connection, SET_LOCK_TIMEOUT, (round(1000 * LOCK_TIMEOUT),))
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    def try_lock_shared(self, name: bytes) -> bool:
        """Lock a name, shared, as `lock` does, but without waiting; False if another transaction has or wants it."""
        (is_locked,) = _execute(self._within(), TRY_LOCK_SHARED, self._name_lock(name)).fetchone() or (False,)
        return bool(is_locked)

    def _name_lock(self, name: bytes) -> tuple[str, int]:
        """The numbers of the advisory lock on a name."""
        return f"{self._format.namespace}.names", int.from_bytes(sha256(name).digest()[:4], "big", signed=True)

    @contextlib.contextmanager
    def claim(self, slots: int = 1) -> Iterator[Claim]:
        """Be the one process that serves from a slot; a connection of its own holds the claim.

        Raises:
            InUse: Other processes serve from all slots, or the schema is being upgraded.
        """
        with contextlib.closing(SlotClaim(self._connect, self._format, self.place, slots)) as claim:
            if self._format.restored:
                with self.transaction() as run:
                    if run("SELECT went_back FROM file_format").fetchone() != (False,):
                        raise self._history.went_back()
                    self._history.begin(run)
                self._history.is_kept = True
            try:
                yield claim
            finally:
                self._history.is_kept = False

    def accept_restored(self) -> None:
        """Within a transaction: processes may serve again from this database, which was restored from a copy."""
        if self._format.restored:
            _execute(self._within(), "UPDATE file_format SET went_back = FALSE")

    def clock(self) -> int:
        """The time of the machine with the database, in milliseconds."""
        with self.reading() as run:
            (now,) = run("SELECT CAST(1000 * extract(epoch FROM clock_timestamp()) AS INTEGER)").fetchone()
            return int(now)

    def close(self) -> None:
        """Close all connections; one that is used now, when it is not used any more."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _current(self) -> PostgresConnection | None:
        """The connection of the transaction of this thread."""
        connection: PostgresConnection | None = getattr(self._own, "connection", None)
        return connection

    def _within(self) -> PostgresConnection:
        """The connection of the transaction of this thread, which there must be."""
        connection = self._current()
        if connection is None:
            raise ValueError("this needs a transaction")
        return connection

    def _commit(self, connection: PostgresConnection) -> None:
        if _execute(connection, "COMMIT").statusmessage != "COMMIT":
            raise OSError(errno.EIO, "the transaction was rolled back: a statement in it has failed", self.place)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[PostgresConnection]:
        """A connection that nobody else uses meanwhile."""
        connection = self._idle_connection() or self._connect()
        try:
            yield connection
        except BaseException as error:
            if is_worn(error):
                connection.close()
            raise
        finally:
            with self._lock:
                is_good = connection.info.transaction_status == TransactionStatus.IDLE and not self._is_closed
                if is_good:
                    self._idle.append(connection)
            if not is_good:
                connection.close()

    def _idle_connection(self) -> PostgresConnection | None:
        """The connection that was used last, unless the server has closed it."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if is_usable(connection):
                return connection
            connection.close()

    def _connect(self) -> PostgresConnection:
        return connect(self._parameters, self._format.namespace)

    def _open(self, *, migrate: bool) -> None:
        """Make the tables of a new schema, and refuse a schema of another format."""
        own = self._format
        with self.transaction() as run:
            run(LOCK_ONCE, (own.namespace, OPENING))
            (encoding,) = run("SELECT current_setting('server_encoding')").fetchone()
            if encoding != "UTF8":
                raise own.refused(f"{self.place} has the encoding {encoding}: make a database with UTF8")
            found = _columns(run, own.namespace)
            if not found:
                self._create(run)
                return
            if ("file_format", "application") not in found:
                raise own.refused(f"the schema {own.namespace} of {self.place} is not {own.name}")
            (application, version) = run("SELECT application, version FROM file_format").fetchone()
            if application != own.application:
                raise own.refused(f"the schema {own.namespace} of {self.place} is not {own.name}")
            if migrate and own.can_upgrade(version):
                if not run(TRY_LOCK_ONCE, (own.namespace, SERVING)).fetchone()[0]:
                    raise InUse(f"a server runs on {self.place}: stop all its processes first")
                self._within().wait_without_limit()
                own.upgrade(run, version)
                run("UPDATE file_format SET version = ?", (own.version,))
                found = _columns(run, own.namespace)
            elif version != own.version:
                raise own.refused_version(self.place, version)
            if own.restored and ("progress", "process") not in found:
                add_history(run)
            if missing := columns_of(own) - found:
                raise own.refused(
                    f"{self.place} has no {'.'.join(min(missing))}: it is damaged, or another program made it"
                )

    def _create(self, run: Execute) -> None:
        own = self._format
        if run("SELECT 1 FROM pg_namespace WHERE nspname = ?", (own.namespace,)).fetchone() is None:
            run(f'CREATE SCHEMA "{own.namespace}"')
        for statement in (*statements(own.schema), _MARK):
            run(statement)
        run("INSERT INTO file_format VALUES (?, ?)", (own.application, own.version))
        if own.restored:
            add_history(run)

    def _named_errors(self) -> contextlib.AbstractContextManager[None]:
        return named_errors(self.place, self._format)


def _execute(
    connection: PostgresConnection, statement: str, values: Sequence[Any] = ()
) -> psycopg.Cursor[tuple[Any, ...]]:
    return connection.execute(translated(statement).encode(), values, binary=True)


@contextlib.contextmanager
def _savepoint(connection: PostgresConnection) -> Iterator[None]:
    """A part of a transaction."""
    _execute(connection, "SAVEPOINT part")
    try:
        yield
    except BaseException:
        with contextlib.suppress(psycopg.Error):  # then the transaction cannot be committed either
            _execute(connection, "ROLLBACK TO SAVEPOINT part")
            _execute(connection, "RELEASE SAVEPOINT part")
        raise
    _execute(connection, "RELEASE SAVEPOINT part")


def _columns(run: Execute, namespace: str) -> frozenset[tuple[str, str]]:
    """All columns of a schema, each with its table."""
    return frozenset(run(f"{_COLUMNS} WHERE table_schema = ?", (namespace,)).fetchall())
