"""Whether a cohort may be decided under its key, and when a key is destroyed, in SQL."""

from __future__ import annotations

import hmac

from reticent.protocol import Refusal, Refused
from reticent.storage.sql import Execute
from reticent_keys.journal import Key, KeyState

__all__ = ["destroy_drained", "key_of", "refuse_pruned", "undecided_key"]


def key_of(row: tuple[str, int, bytes, str]) -> Key:
    """The key with these columns."""
    key_id, bits, public, state = row
    return Key(key_id, bits, public, KeyState[state])


def undecided_key(run: Execute, query: int, cohort: int, request: bytes) -> str:
    """The id of the key under which a request may still be decided, within a transaction.

    Raises:
        Refused: ALREADY_DECIDED: another request was noted for decryption. KEY_RETIRED.
    """
    key_id, state, noted = run(
        "SELECT keys.id, state, (SELECT request FROM decryptions WHERE query = queries.number AND cohort = ?)"
        " FROM queries JOIN keys ON keys.number = key WHERE queries.number = ?",
        (cohort, query),
    ).fetchone()
    if noted is not None and not hmac.compare_digest(noted, request):
        raise Refused(Refusal.ALREADY_DECIDED)
    if state == KeyState.RETIRED.name:
        raise Refused(Refusal.KEY_RETIRED, KeyState.RETIRED.value)
    refuse_pruned(run, query)
    return str(key_id)


def refuse_pruned(run: Execute, query: int) -> None:
    """Refuse to decide a query whose phones are deleted: its receipts cannot be checked, nor what was decrypted.

    Raises:
        Refused: KEY_RETIRED.
    """
    if run("SELECT 1 FROM queries WHERE number = ? AND pruned", (query,)).fetchone() is not None:
        raise Refused(Refusal.KEY_RETIRED, "the query was not decided in time, and its phones are deleted")


def destroy_drained(run: Execute, now: int) -> None:
    """Mark draining keys as destroyed, within a transaction, if nothing can be decided under them any more."""
    run(
        "UPDATE keys SET state = 'DESTROYED' WHERE state = 'DRAINING'"
        " AND NOT EXISTS (SELECT 1 FROM progress WHERE key = keys.number AND undecided > 0 AND deadline > ?)",
        (now,),
    )
