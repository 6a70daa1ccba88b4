"""Advisory locks of PostgreSQL: on names, and on the slots from which processes serve."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from reticent.storage._postgres_connection import PostgresConnection, is_usable, named_errors
from reticent.storage.sql import FileFormat, InUse

__all__ = [
    "LOCK_ONCE",
    "LOCK_SHARED",
    "OPENING",
    "SERVING",
    "SET_LOCK_TIMEOUT",
    "TRY_LOCK_ONCE",
    "TRY_LOCK_SHARED",
    "SlotClaim",
]

OPENING, SERVING, _SLOTS = 0, 1, 2  # the numbers of advisory locks; each slot has one
TRY_LOCK_ONCE = "SELECT pg_try_advisory_xact_lock(hashtext(?), CAST(? AS int))"
LOCK_ONCE = "SELECT pg_advisory_xact_lock(hashtext(?), CAST(? AS int))"
SET_LOCK_TIMEOUT = (
    "SELECT set_config('lock_timeout', CAST(CAST(? AS int) AS text), true)"  # to the end of a transaction
)
LOCK_SHARED = "SELECT pg_advisory_xact_lock_shared(hashtext(?), CAST(? AS int))"
TRY_LOCK_SHARED = "SELECT pg_try_advisory_xact_lock_shared(hashtext(?), CAST(? AS int))"
_CLAIM = "SELECT pg_try_advisory_lock(hashtext(%s), CAST(%s AS int))"
_SERVE = "SELECT pg_try_advisory_lock_shared(hashtext(%s), CAST(%s AS int))"


class SlotClaim:
    """A claim of a slot, as long as its connection lasts.

    Args:
        connect: Makes a connection, which the claim keeps for itself.
        file_format: Of the schema.
        place: The address of the database, for errors.
        slots: The number of slots.

    Raises:
        InUse: Other processes serve from all slots, or the schema is being upgraded.
    """

    def __init__(
        self, connect: Callable[[], PostgresConnection], file_format: FileFormat, place: str, slots: int
    ) -> None:
        self._connect = connect
        self._format = file_format
        self._place = place
        self._slots = slots
        self._lock = threading.Lock()
        self._connection, self.slot = self._claimed()

    def check(self) -> None:
        """Raise `InUse` if the connection is lost: another process may have the claim now."""
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error as error:
            raise InUse(f"the connection to {self._place} is lost: another process may serve from it now") from error

    def renew(self) -> None:
        """Claim a slot again, perhaps another one, if the connection is lost. Costs nothing while it is there."""
        with self._lock:
            if not is_usable(self._connection):
                self._connection.close()
                self._connection, self.slot = self._claimed()

    def close(self) -> None:
        """End the claim."""
        self._connection.close()

    def _claimed(self) -> tuple[PostgresConnection, int]:
        with named_errors(self._place, self._format), contextlib.ExitStack() as stack:
            connection = stack.enter_context(contextlib.closing(self._connect()))
            slot = _free_slot(connection, self._format, self._place, self._slots)
            if slot is None:
                raise InUse(f"another process serves from {self._place}")
            stack.pop_all()
            return connection, slot


def _free_slot(connection: PostgresConnection, file_format: FileFormat, place: str, slots: int) -> int | None:
    """The lowest slot that was free, locked as long as the connection lasts."""
    name = file_format.namespace
    if not _value(connection, _SERVE, name, SERVING):
        return None
    version = _value(connection, "SELECT version FROM file_format")  # nobody upgrades it from here on
    if version != file_format.version:
        raise file_format.refused_version(place, version)
    return next((slot for slot in range(slots) if _value(connection, _CLAIM, name, _SLOTS + slot)), None)


def _value(connection: PostgresConnection, statement: str, *values: Any) -> Any:
    row = connection.execute(statement.encode(), values, binary=True).fetchone()
    return None if row is None else row[0]
