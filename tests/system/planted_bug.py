"""An aggregation server with a bug in the protocol: python planted_bug.py twice|forgets agg serve ...

- twice: a contribution that is sent again is added to the sum again.
- forgets: contributions are acknowledged, and kept in memory until the query closes. A crash loses them.
"""

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reticent.console import program
from reticent.storage.database import Execute
from reticent_agg import sqlite_contributions, sqlite_store
from reticent_agg.counting import collection
from reticent_agg.sqlite_store import SqliteStore
from reticent_agg.store import CohortBatch, PutResult

TWICE, FORGETS = "twice", "forgets"

honest_put = sqlite_contributions.put
honest_put_contributions = SqliteStore.put_contributions
honest_close = SqliteStore.close_query
honest_phone_of = collection._phone_of


def aggregation_program(bug: str) -> tuple[str, str, str]:
    """The program of a server pair that has this bug."""
    return sys.executable, str(Path(__file__).resolve()), bug


def add_repeated(run: Execute, batch: CohortBatch, now: int) -> list[PutResult]:
    """Add what is there already to the sum once more."""
    results = honest_put(run, batch, now)
    repeated = [place for place, result in enumerate(results) if result is PutResult.REPEATED]
    (number,) = run("SELECT number FROM queries WHERE digest = ?", (batch.query,)).fetchone()
    place = number, batch.cohort
    (ciphertexts,) = run("SELECT ciphertexts FROM sums WHERE query = ? AND cohort = ?", place).fetchone()
    changed = batch.add(ciphertexts, repeated) if repeated else ciphertexts
    run("UPDATE sums SET ciphertexts = ? WHERE query = ? AND cohort = ?", (changed, *place))
    return results


def phone_without_contents(message: Any, target: Any) -> Any:
    """Forget that the phone has contributed."""
    return honest_phone_of(message, target)._replace(contents=None)


waiting: list[tuple[Sequence[CohortBatch], int]] = []


class _Undone(Exception):  # not an error
    pass


def put_in_memory(store: SqliteStore, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
    """Find out what would happen, and keep it in memory."""
    results: list[list[PutResult]] = []
    with contextlib.suppress(_Undone), store.database.transaction():
        results = honest_put_contributions(store, batches, now)
        raise _Undone
    waiting.append((batches, now))
    return results


def write_and_close(store: SqliteStore, digest: bytes, make_request: Callable[..., Any]) -> bool:
    """Write what is in memory, and close the query."""
    while waiting:
        honest_put_contributions(store, *waiting.pop(0))
    return honest_close(store, digest, make_request)


if __name__ == "__main__":
    if sys.argv[1] == TWICE:
        sqlite_store.put = add_repeated  # type: ignore[attr-defined]
        collection._phone_of = phone_without_contents
    else:
        SqliteStore.put_contributions = put_in_memory  # type: ignore[assignment]
        SqliteStore.close_query = write_and_close  # type: ignore[assignment]
    sys.exit(program.main(sys.argv[2:]))
