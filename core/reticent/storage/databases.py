"""A database by its place: a SQLite file, or the address of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from reticent.errors import MissingExtra
from reticent.storage.database import Database, claimed
from reticent.storage.sql import FileFormat, SqlDatabase

__all__ = ["has_password", "is_address", "migrate", "open_database", "place_of", "schemas"]

_SCHEMES = ("postgresql://", "postgres://")


def is_address(place: str | Path | None) -> bool:
    """Whether this is an address of PostgreSQL.

    >>> is_address("postgresql://localhost/reticent")
    True
    """
    return isinstance(place, str) and place.startswith(_SCHEMES)


def has_password(address: str) -> bool:
    """Whether an address of PostgreSQL holds a password.

    >>> has_password("postgresql://ann:secret@localhost/reticent"), has_password("postgresql://ann@localhost/reticent")
    (True, False)

    Raises:
        MissingExtra: PostgreSQL needs the extra `postgres`.
        ValueError: It is no address; the error does not show it.
    """
    with _importing():
        from reticent.storage import _postgres  # noqa: PLC0415  # in an extra
    return _postgres.has_password(address)


def place_of(path: Path, address: str | None) -> Path | str:
    """The address of PostgreSQL that a user gives, or the path.

    Raises:
        ValueError: It is no address; the error does not show it, for it may hold a password.
    """
    if address is not None and not is_address(address):
        raise ValueError("--database is no address of PostgreSQL, such as postgresql://user@host/name")
    return path if address is None else address


def open_database(place: str | Path | None, file_format: FileFormat, *, migrate: bool = False) -> SqlDatabase:
    """Open a database, which is made if there is none.

    Args:
        place: The path of a SQLite file, None for a SQLite database in memory, or an address of PostgreSQL.
        file_format: Of the database.
        migrate: Upgrade a database of an older version.

    Raises:
        MissingExtra: PostgreSQL needs the extra `postgres`.
    """
    if isinstance(place, str) and is_address(place):
        with _importing():
            from reticent.storage._postgres import PostgresDatabase  # noqa: PLC0415  # in an extra
        return PostgresDatabase(place, file_format, migrate=migrate)
    return Database(None if place is None else Path(place), file_format, migrate=migrate)


def schemas(address: str) -> frozenset[str]:
    """The names of all schemas of a PostgreSQL database, in which nothing is made.

    Raises:
        MissingExtra: PostgreSQL needs the extra `postgres`.
        OSError: The database cannot be used.
    """
    with _importing():
        from reticent.storage import _postgres  # noqa: PLC0415  # in an extra
    return _postgres.schemas(address)


@contextmanager
def _importing() -> Iterator[None]:
    """Name the extra that has psycopg, if it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra("a PostgreSQL database", "postgres", "psycopg") from error


def migrate(place: str | Path, file_format: FileFormat) -> None:
    """Upgrade a database to the version of this program, in one transaction; nothing changes if it has it.

    Raises:
        InUse: A server runs on it.
    """
    serving = nullcontext() if is_address(place) else claimed(Path(place))  # PostgreSQL's own locks are in the database
    with serving, closing(open_database(place, file_format, migrate=True)):
        pass
