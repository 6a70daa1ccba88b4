"""Advisory locks of PostgreSQL: on names, and on the slots from which processes serve."""

from __future__ import annotations

from typing import Any

import psycopg

from reticent.storage._postgres_connection import Connection
from reticent.storage.sql import FileFormat, InUse

__all__ = ["LOCK_ONCE", "LOCK_SHARED", "OPENING", "SERVING", "TRY_LOCK_ONCE", "SlotClaim", "free_slot"]

OPENING, SERVING, _SLOTS = 0, 1, 2  # the numbers of advisory locks; each slot has one
TRY_LOCK_ONCE = "SELECT pg_try_advisory_xact_lock(hashtext(?), CAST(? AS int))"
LOCK_ONCE = "SELECT pg_advisory_xact_lock(hashtext(?), CAST(? AS int))"
LOCK_SHARED = "SELECT pg_advisory_xact_lock_shared(hashtext(?), CAST(? AS int))"
_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtext(%s), CAST(%s AS int))"
_TRY_LOCK_SHARED = "SELECT pg_try_advisory_lock_shared(hashtext(%s), CAST(%s AS int))"


class SlotClaim:
    """A claim of a slot, as long as its connection lasts."""

    def __init__(self, connection: Connection, slot: int, place: str) -> None:
        self.slot = slot
        self._connection = connection
        self._place = place

    def check(self) -> None:
        """Raise `InUse` if the connection is lost: another process may have the claim now."""
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error as error:
            raise InUse(f"the connection to {self._place} is lost: another process may serve from it now") from error


def free_slot(connection: Connection, file_format: FileFormat, place: str, slots: int) -> int | None:
    """The lowest slot that was free, locked as long as the connection lasts."""
    name = file_format.namespace
    if not _value(connection, _TRY_LOCK_SHARED, name, SERVING):
        return None
    version = _value(connection, "SELECT version FROM file_format")  # nobody upgrades it from here on
    if version != file_format.version:
        raise file_format.refused_version(place, version)
    return next((slot for slot in range(slots) if _value(connection, _TRY_LOCK, name, _SLOTS + slot)), None)


def _value(connection: Connection, statement: str, *values: Any) -> Any:
    row = connection.execute(statement.encode(), values, binary=True).fetchone()
    return None if row is None else row[0]
