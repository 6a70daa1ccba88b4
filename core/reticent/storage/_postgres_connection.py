"""Connections to PostgreSQL: their parameters and settings, and their errors as errors of the system."""

from __future__ import annotations

import contextlib
import errno
import select
from collections.abc import Generator, Iterator, Mapping
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8BinaryDumper

from reticent.storage.sql import FileFormat, TransactionConflict

__all__ = [
    "LOCK_TIMEOUT",
    "PostgresConnection",
    "connect",
    "has_password",
    "is_usable",
    "is_worn",
    "named_errors",
    "parse",
    "schemas",
    "shown_address",
]

DEFAULTS = {
    "connect_timeout": 10,  # in seconds
    "fallback_application_name": "reticent",
    "target_session_attrs": "read-write",  # a read-only replica has locks of its own, which exclude nobody
    "keepalives_idle": 10,  # a call to a machine that is gone fails soon
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # in milliseconds
}
"""The parameters of a connection, unless the URL has others."""
ANSWER_TIMEOUT = 30.0
"""Seconds to wait for the end of a statement. Then PostgreSQL hangs, or its machine is gone.

PostgreSQL itself ends a statement earlier, with which the connection stays usable. A migration may take any time.
"""

LOCK_TIMEOUT = 10.0
"""Seconds to wait for another transaction."""

_SETTINGS = (
    f"SET lock_timeout = '{LOCK_TIMEOUT:g}s'",
    "SET statement_timeout = '25s'",  # less than ANSWER_TIMEOUT
    "SET idle_in_transaction_session_timeout = '60s'",  # a process that is frozen would hold its locks for ever
    "SET tcp_keepalives_idle = 10",  # of a machine that is gone, the server rolls back the transactions soon
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
    "SET enable_hashjoin = off",  # all joins are by an index; a table that was just filled has no statistics yet
    "SET enable_mergejoin = off",
    "SET enable_material = off",
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
)
_LOST_CLASSES = {"08", "53", "55", "57", "58"}  # of SQLSTATE: it cannot be used now
_LOST_STATES = {"25P02", "25P03", "25P04", "26000", "0A000"}  # of SQLSTATE: this session cannot be used any more
_CONFLICTS = {"40001", "40P01", "23505"}  # serialisation failure, deadlock, and a race for a unique value
_ERRNO = {"53100": errno.ENOSPC, "55P03": errno.EBUSY, "25006": errno.EROFS, "42501": errno.EACCES}
_DAMAGED = "XX"

Result = TypeVar("Result")


class PostgresConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed if a statement does not end in time."""

    answer_timeout: float | None = None

    def wait(self, gen: Generator[Any, Any, Result], *arguments: Any, **named: Any) -> Result:
        """Wait for PostgreSQL, as psycopg does for everything that is sent; but not for ever."""
        if self.answer_timeout is None:
            return super().wait(gen, *arguments, **named)
        return super().wait(self._limited(gen, self.answer_timeout), *arguments, **named)

    def _limited(self, gen: Generator[Any, Any, Result], seconds: float) -> Generator[Any, Any, Result]:
        """The same steps, as long as there is time. psycopg resumes them with 0 now and then while nothing arrives."""
        end = monotonic() + seconds
        try:
            wanted = next(gen)
            while True:
                is_ready = yield wanted
                if not is_ready and monotonic() > end:
                    self.close()
                    raise psycopg.OperationalError(f"no answer in {seconds:g} s: the connection is closed")
                wanted = gen.send(is_ready)
        except StopIteration as stopped:
            result: Result = stopped.value
            return result

    def wait_without_limit(self) -> None:
        """Let statements take any time from now on."""
        self.answer_timeout = None
        self.execute("SET statement_timeout = 0")


def connect(parameters: Mapping[str, Any], namespace: str) -> PostgresConnection:
    """A connection whose tables are those of a schema."""
    connection = PostgresConnection.connect(**parameters, autocommit=True)
    connection.answer_timeout = ANSWER_TIMEOUT
    connection.prepare_threshold = 1
    connection.adapters.register_dumper(int, Int8BinaryDumper)  # one type, so one plan
    try:
        for setting in (*_SETTINGS, f'SET search_path TO "{namespace}"'):
            connection.execute(setting.encode())
    except BaseException:
        connection.close()
        raise
    return connection


def is_usable(connection: PostgresConnection) -> bool:
    """Whether an idle connection is not closed, on either side."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)  # a good one is silent while idle


def is_worn(error: BaseException) -> bool:
    """Whether the session of an error cannot be used any more."""
    return _state(error) in _LOST_STATES


@contextlib.contextmanager
def named_errors(place: str, file_format: FileFormat) -> Iterator[None]:
    """The errors of PostgreSQL, as errors that name the database."""
    try:
        yield
    except psycopg.Error as error:
        state = _state(error)
        text = (str(error).splitlines() or ["the connection is lost"])[0]
        if state in _CONFLICTS:
            raise TransactionConflict(errno.EAGAIN, text, place) from error
        if state[:2] == _DAMAGED:
            raise file_format.refused(f"{place} is damaged: {text}") from error
        is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or (
            state in _LOST_STATES or state[:2] in _LOST_CLASSES or error.diag.severity_nonlocalized == "FATAL"
        )
        if is_lost or state in _ERRNO:
            raise OSError(_ERRNO.get(state, errno.EIO), text, place) from error
        raise


def has_password(url: str) -> bool:
    """Whether an address holds a password."""
    return not parse(url).keys().isdisjoint({"password", "sslpassword"})


def schemas(url: str) -> frozenset[str]:
    """The names of all schemas of a database.

    Raises:
        OSError: The database cannot be used.
    """
    parameters = parse(url)
    try:
        with psycopg.connect(**parameters) as connection:
            return frozenset(name for (name,) in connection.execute("SELECT CAST(nspname AS text) FROM pg_namespace"))
    except psycopg.Error as error:
        text = (str(error).splitlines() or ["the connection is lost"])[0]
        raise OSError(errno.EIO, text, shown_address(parameters)) from error


def _state(error: BaseException) -> str:
    """The SQLSTATE of an error of PostgreSQL, or of the one that is its cause; empty if there is none."""
    found = error if isinstance(error, psycopg.Error) else error.__cause__
    return (found.sqlstate or "") if isinstance(found, psycopg.Error) else ""


def shown_address(parameters: Mapping[str, Any]) -> str:
    """The address of a database, without user and password."""
    host, port, name = (parameters.get(each) for each in ("host", "port", "dbname"))
    return f"postgresql://{host or ''}{f':{port}' if port else ''}/{name or ''}"


def parse(url: str) -> dict[str, Any]:
    """The parameters of a connection. An error never shows the URL, which may hold a password."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise ValueError(
            "this is no address of a PostgreSQL database, such as postgresql://user@host:5432/name"
        ) from None
    return DEFAULTS | given
