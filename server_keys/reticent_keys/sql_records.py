"""The numbers of records under each key of a journal, in SQL: its queries, noted decryptions and decisions."""

from __future__ import annotations

import logging

from reticent.protocol import Refusal, Refused
from reticent.storage.sql import Execute
from reticent_keys.errors import JournalError
from reticent_keys.journal import KeyState
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


def check_complete(run: Execute, counts: RecordCounts) -> dict[str, int]:
    """The numbers of records under each key that is not retired, within a transaction.

    Raises:
        JournalError: There are fewer than there were.
    """
    found, lacking = _compared(run, counts)
    if lacking:
        raise JournalError(RESTORED)
    return found


def refuse_restored(run: Execute, counts: RecordCounts) -> None:
    """Refuse to record anything, within a transaction, if there are fewer records under any key than there were.

    Raises:
        Refused: UNAVAILABLE.
    """
    _, lacking = _compared(run, counts)
    if lacking:
        _log.error(RESTORED, extra={"keys": ", ".join(key_id[:16] for key_id in lacking)})
        raise Refused(Refusal.UNAVAILABLE, RESTORED)


def _compared(run: Execute, counts: RecordCounts) -> tuple[dict[str, int], list[str]]:
    """The numbers of records under each key that is not retired; the keys of which some are missing, or all."""
    kept = counts.all()  # before the journal is read: another process may add records meanwhile
    keys: list[tuple[str, int, str]] = run("SELECT id, records, state FROM keys").fetchall()
    retired = {key_id for key_id, _, state in keys if state == KeyState.RETIRED.name}
    found = {key_id: records for key_id, records, _ in keys if key_id not in retired}
    return found, [key_id for key_id, count in kept.items() if key_id not in retired and found.get(key_id, 0) < count]
