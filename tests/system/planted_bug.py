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
from reticent.storage.sql import Execute, SqlDatabase
from reticent_agg import sql_contributions, sql_schema, sql_store
from reticent_agg.counting import collection
from reticent_agg.sql_store import SqlStore
from reticent_agg.store import CohortBatch, PutResult

TWICE, FORGETS = "twice", "forgets"

honest_put = sql_contributions.put
honest_put_contributions = SqlStore.put_contributions
honest_close = SqlStore.close_query
honest_phone_of = collection._phone_of


def aggregation_program(bug: str) -> tuple[str, str, str]:
    """The program of a server pair that has this bug."""
    return sys.executable, str(Path(__file__).resolve()), bug


def add_repeated(database: SqlDatabase, run: Execute, batch: CohortBatch, shard: int, now: int) -> list[PutResult]:
    """Add what is there already to the sum once more."""
    results = honest_put(database, run, batch, shard, now)
    repeated = [place for place, result in enumerate(results) if result is PutResult.REPEATED]
    if repeated:
        (number,) = run("SELECT number FROM queries WHERE digest = ?", (batch.query,)).fetchone()
        place = number, batch.cohort, shard
        (_, ciphertexts) = run(sql_schema.SUM, place).fetchone()
        run(
            "UPDATE sums SET ciphertexts = ? WHERE query = ? AND cohort = ? AND shard = ?",
            (batch.add(ciphertexts, repeated), *place),
        )
    return results


def phone_without_contents(message: Any, target: Any) -> Any:
    """Forget that the phone has contributed."""
    return honest_phone_of(message, target)._replace(contents=None)


waiting: list[tuple[Sequence[CohortBatch], int]] = []


class _Undone(Exception):  # not an error
    pass


def put_in_memory(store: SqlStore, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
    """Find out what would happen, and keep it in memory."""
    results: list[list[PutResult]] = []
    with contextlib.suppress(_Undone), store.database.transaction():
        results = honest_put_contributions(store, batches, now)
        raise _Undone
    waiting.append((batches, now))
    return results


def write_and_close(
    store: SqlStore, digest: bytes, make_request: Callable[..., Any], now: int, **patience: float
) -> bool:
    """Write what is in memory, and close the query."""
    while waiting:
        honest_put_contributions(store, *waiting.pop(0))
    return honest_close(store, digest, make_request, now, **patience)


def plant(bug: str) -> None:
    """Let the servers of this process have a bug."""
    if bug == TWICE:
        sql_store.put = add_repeated  # type: ignore[attr-defined]
        collection._phone_of = phone_without_contents
    else:
        SqlStore.put_contributions = put_in_memory  # type: ignore[assignment]
        SqlStore.close_query = write_and_close  # type: ignore[assignment]


if __name__ == "__main__":
    plant(sys.argv[1])
    sys.exit(program.main(sys.argv[2:]))
