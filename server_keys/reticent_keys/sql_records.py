"""The numbers of records under each key of a journal, in SQL: its queries, noted decryptions and decisions."""

from __future__ import annotations

import logging

from reticent.protocol import Refusal, Refused
from reticent.storage.sql import Execute
from reticent_keys.errors import JournalError
from reticent_keys.record_counts import RecordCounts

__all__ = ["add_records", "check_complete", "refuse_restored"]

_log = logging.getLogger(__name__)

RESTORED = (
    "the journal was restored from a backup, and lacks later records: stop all key servers, run "
    "`reticent keys rotate --retire`, and start them again"
)


def add_records(run: Execute, key_id: str, count: int = 1) -> int:
    """Count new records under a key, within a transaction; returns the number of all of them."""
    found = run("UPDATE keys SET records = records + ? WHERE id = ? RETURNING records", (count, key_id)).fetchone()
    return int(found[0])


def check_complete(run: Execute, counts: RecordCounts) -> list[tuple[str, int]]:
    """The numbers of records under each key that is not retired, within a transaction.

    Raises:
        JournalError: There are fewer than there were.
    """
    kept = counts.all()  # before the journal is read: another process may add records meanwhile
    keys: list[tuple[str, int]] = run("SELECT id, records FROM keys WHERE state <> 'RETIRED'").fetchall()
    if any(records < kept.get(key_id, 0) for key_id, records in keys):
        raise JournalError(RESTORED)
    return keys


def refuse_restored(run: Execute, counts: RecordCounts, key_id: str) -> None:
    """Refuse to record anything under a key, within a transaction, if there are fewer records than there were.

    Raises:
        Refused: UNAVAILABLE.
    """
    kept = counts.all().get(key_id, 0)
    (records,) = run("SELECT records FROM keys WHERE id = ?", (key_id,)).fetchone()
    if records < kept:
        _log.error(RESTORED, extra={"key": key_id[:16], "records": records, "kept": kept})
        raise Refused(Refusal.UNAVAILABLE, RESTORED)
