"""The number of transactions that each process has committed: it shows that a database was restored from a copy."""

from __future__ import annotations

import secrets

from reticent.storage.sql import Execute, FileFormat

__all__ = ["History", "add_history"]

_KEPT_DAYS = 30  # for processes that were killed; of those that run, `seen` is at most a day old
_PROGRESS = "CREATE TABLE progress (process TEXT PRIMARY KEY, number INTEGER NOT NULL, seen TIMESTAMPTZ DEFAULT now())"
_FLAG = "ALTER TABLE file_format ADD COLUMN went_back BOOLEAN NOT NULL DEFAULT FALSE"
_BEGIN = "INSERT INTO progress (process, number) VALUES (?, 0) ON CONFLICT DO NOTHING"
_FORGET = f"DELETE FROM progress WHERE seen < now() - INTERVAL '{_KEPT_DAYS} days'"  # noqa: S608  # a constant
# A transaction without a number of PostgreSQL's has changed nothing, and its COMMIT does not wait for the disk. One a
# day is counted all the same.
_ADVANCE = """
WITH advanced AS (
    UPDATE progress SET number = number + 1, seen = now()
    WHERE process = ? AND (pg_current_xact_id_if_assigned() IS NOT NULL OR seen < now() - INTERVAL '1 day')
    RETURNING number
)
SELECT (SELECT number FROM progress WHERE process = ?), (SELECT number FROM advanced), went_back FROM file_format
"""


def add_history(run: Execute) -> None:
    """Make the tables of histories."""
    for statement in (_FLAG, _PROGRESS):
        run(statement)


class History:
    """The transactions of this process.

    Each one that changes anything, and one a day at least, adds 1 to the process's row. If a later one finds a smaller
    number there, or no row, the database has lost what it had committed. This is written down, so that no process
    serves until an operator has dealt with it.

    Args:
        file_format: Of the schema; it names the command for restored databases.
        place: The address of the database, for errors.
    """

    def __init__(self, file_format: FileFormat, place: str) -> None:
        self._format = file_format
        self._place = place
        self._process = secrets.token_hex(16)
        self._known = 0  # the number of the last transaction that is known to be committed
        self.is_kept = False

    def begin(self, run: Execute) -> None:
        """Keep a history from the next transaction on."""
        run(_FORGET)
        run(_BEGIN, (self._process,))

    def advance(self, run: Execute) -> int:
        """At the end of a transaction: its number, which `committed` is told; 0 if it has changed nothing."""
        known = self._known  # now: another thread may commit meanwhile
        found: int | None
        found, number, went_back = run(_ADVANCE, (self._process, self._process)).fetchone()
        if went_back or found is None or found < known:
            run("ROLLBACK")
            run("UPDATE file_format SET went_back = TRUE")
            raise self.went_back()
        return number or 0

    def committed(self, number: int) -> None:
        """A transaction is committed; several threads may tell in any order."""
        self._known = max(self._known, number)

    def went_back(self) -> Exception:
        """The error for a database that was restored."""
        return self._format.refused(
            f"{self._place} has lost transactions: it was restored from a copy, or a standby without them took over. "
            f"Stop all processes, run `{self._format.restored}`, and start them again"
        )
