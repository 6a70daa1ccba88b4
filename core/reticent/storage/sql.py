"""SQL databases as an interface, which SQLite and PostgreSQL implement with one text of each schema and statement.

Statements are written for SQLite, with `?` for each value. In PostgreSQL, a comment `/* FOR UPDATE */`,
`/* FOR SHARE */` or `/* FOR UPDATE SKIP LOCKED */` is a clause. These rules keep a text good for both:

- Columns are BLOB, TEXT, INTEGER and BOOLEAN; a BOOLEAN is compared with TRUE and FALSE, never with a number.
- `INSERT ... ON CONFLICT DO NOTHING` replaces INSERT OR IGNORE, and `RETURNING` the id of the last row.
- A sum of integers is `CAST(sum(...) AS INTEGER)`.
"""

from __future__ import annotations

import functools
import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar

from reticent.errors import ExitCode, ReticentError

__all__ = [
    "Claim",
    "Cursor",
    "Execute",
    "FileFormat",
    "InUse",
    "SqlDatabase",
    "TransactionConflict",
    "retried",
    "statements",
]

ATTEMPTS = 6
"""Calls of a method whose transaction conflicts with others, at most."""
MAX_PAUSE = 0.05
"""Seconds between two calls, times the number of conflicts before."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Cursor(Protocol):
    """The rows that a statement returns."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed."""

    def fetchone(self) -> Any:
        """The next row, or None."""

    def fetchall(self) -> list[Any]:
        """All further rows."""

    def __iter__(self) -> Iterator[Any]: ...


Execute = Callable[..., Cursor]
"""Runs a statement of SQL."""


class InUse(ReticentError):
    """Another process serves from the same database."""

    exit_code = ExitCode.IN_USE


class TransactionConflict(OSError):
    """A transaction conflicts with a concurrent one, and was rolled back: repeat it."""


@dataclass(frozen=True)
class FileFormat:
    """The format of a database. A database of another format or version is refused.

    Args:
        name: With an article, as in "is not a ledger".
        application: SQLite's application id.
        schema: The newest one, in SQL.
        refused: What is raised with a sentence about a database that is damaged, foreign or of another version.
        migrations: Scripts of SQL; the first one makes the version after `first` from `first`.
        first: The oldest version that can be upgraded.
        namespace: The schema of PostgreSQL that holds the tables; empty for what is only kept in SQLite.
        migrate: The command that runs the migrations.
        restored: The command that makes a copy of a PostgreSQL database safe to serve from. If it is not empty,
            processes notice while they serve that their database was restored, and stop until it is run.
    """

    name: str
    application: int
    schema: str
    refused: Callable[[str], Exception]
    migrations: tuple[str, ...] = ()
    first: int = 1
    namespace: str = ""
    migrate: str = ""
    restored: str = ""

    @property
    def version(self) -> int:
        """The version that this program reads."""
        return self.first + len(self.migrations)

    def can_upgrade(self, version: int) -> bool:
        """Whether the migrations lead from this older version to the present one."""
        return self.first <= version < self.version

    def refused_version(self, place: object, version: int) -> Exception:
        """The error for a database of another version."""
        hint = ""
        if version < self.first:
            hint = f", and cannot upgrade from {version}"
        elif self.migrate and version < self.version:
            hint = f"; run `{self.migrate}` to upgrade it"
        return self.refused(f"{place} has format version {version}: this program reads {self.version}{hint}")

    def upgrade(self, run: Execute, version: int) -> None:
        """Run the migrations of a database of an older version, within a transaction."""
        for script in self.migrations[version - self.first :]:
            for statement in statements(script):
                run(statement)


class Claim(Protocol):
    """The right to be the one process that serves from a slot of a database."""

    @property
    def slot(self) -> int:
        """The number of the slot."""

    def check(self) -> None:
        """Raise `InUse` if the right is lost: another process may have it now."""

    def renew(self) -> None:
        """Claim a slot again, perhaps another one, if the right is lost.

        Raises:
            InUse: Other processes serve from all slots.
        """


class SqlDatabase(Protocol):
    """A database that threads share. All work is done within `reading` or `transaction`.

    Errors of a database that cannot be used now are `OSError`, and `TransactionConflict` if a transaction lost against
    another. After an `OSError` of `transaction`, its changes may be committed if the connection was lost at the end.
    """

    @property
    def place(self) -> str:
        """The path or the address, without user and password."""

    def reading(self) -> AbstractContextManager[Execute]:
        """Execute statements; within a transaction of the same thread, on what this has changed so far."""

    def transaction(self) -> AbstractContextManager[Execute]:
        """Execute statements that take effect together when this ends, or not at all.

        A transaction within one of the same thread is a part of it: where it fails, the rest may still come true.
        """

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """Run an INSERT for each row, within a transaction of this thread; a column has values of one type, or none.

        Returns the rows that the statement's RETURNING names.
        """

    def lock(self, name: bytes, *, shared: bool = False) -> None:
        """Wait until no other transaction has locked this name, and lock it to the end of this thread's transaction.

        Shared locks exclude exclusive ones only. Whoever waits longest is first: unlike a row lock, an exclusive lock
        does not wait for shared ones that come later. SQLite has one writer, who needs no locks.
        """

    def try_lock(self, name: bytes, *, patience: float = 0.0) -> bool:
        """Lock a name as `lock` does, but wait so many seconds at most; False if another transaction has it then."""

    def try_lock_shared(self, name: bytes) -> bool:
        """Lock a name, shared, as `lock` does, but without waiting; False if another transaction has or wants it."""

    def claim(self, slots: int = 1) -> AbstractContextManager[Claim]:
        """Be the one process that serves from the lowest free slot; other processes may still read and change all.

        A SQLite file has one slot.

        Raises:
            InUse: Other processes serve from all slots.
        """

    def accept_restored(self) -> None:
        """Within a transaction: processes may serve again from this database, which was restored from a copy."""

    def clock(self) -> int | None:
        """The time of the machine with the database, in milliseconds; None for a file."""

    def close(self) -> None:
        """Close all connections."""


def retried(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Repeat a method of one transaction while it conflicts with others, some times."""

    @functools.wraps(method)
    def repeat(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        for attempt in range(1, ATTEMPTS):
            try:
                return method(*arguments, **named)
            except TransactionConflict:
                time.sleep(random.uniform(0, attempt * MAX_PAUSE))  # noqa: S311  # only to stagger
        return method(*arguments, **named)

    return repeat


def statements(script: str) -> Iterator[str]:
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
