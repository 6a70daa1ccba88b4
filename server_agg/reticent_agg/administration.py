"""What the operator of an aggregation server asks of its file, while the server runs or not."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from reticent.database import Database
from reticent.privacy import Query
from reticent.v1 import counting_pb2 as wire
from reticent_agg.database import instant, milliseconds

__all__ = ["Report", "prune", "report"]


@dataclass(frozen=True)
class Report:
    """Where a query is.

    Args:
        id: Its name.
        phase: announced, refused, collecting, closing or decided.
        population: How many phones it asks.
        contributors: How many have contributed, of each cohort.
        decided: How many cohorts are.
        announced: When it was.
        closes: When collecting ends, or ended, at the latest; None before it has begun.
        refusal: Why the key server does not countersign it.
        pruned: Whether it is forgotten who took part.
    """

    id: str
    phase: str
    population: int
    contributors: tuple[int, ...]
    decided: int
    announced: dt.datetime
    closes: dt.datetime | None
    refusal: str | None
    pruned: bool


def report(database: Database) -> list[Report]:
    """All queries, the latest first."""
    with database.reading() as run:
        return [
            Report(
                id=name,
                phase="refused" if refusal else wire.Phase.Name(phase).lower(),
                population=Query.from_bytes(content).population,
                contributors=tuple(number for (number,) in run(_CONTRIBUTORS, (query,)).fetchall()),
                decided=run("SELECT count(*) FROM decisions WHERE query = ?", (query,)).fetchone()[0],
                announced=instant(announced),
                closes=None if closes is None else instant(closes),
                refusal=f"{refusal}: {detail}" if refusal else None,
                pruned=bool(pruned),
            )
            for query, name, content, phase, announced, closes, refusal, detail, pruned in run(_QUERIES).fetchall()
        ]


def prune(database: Database, before: dt.datetime) -> list[str]:
    """Forget who took part in queries that were decided before then; what was decided stays. The ids of the queries."""
    with database.reading() as run:
        old = run(_OLD, (wire.DECIDED, milliseconds(before))).fetchall()
    for number, _ in old:
        with database.changing() as run:  # one after the other: the server may want to write meanwhile
            for table in ("dealt", "receipts", "requests"):
                run(f"DELETE FROM {table} WHERE query = ?", (number,))  # noqa: S608  # one of three names
            run("UPDATE queries SET pruned = 1 WHERE number = ?", (number,))
    return [name for _, name in old]


_QUERIES = """
SELECT number, id, content, phase, announced, closes, refusal, detail, pruned FROM queries ORDER BY number DESC
"""
_CONTRIBUTORS = "SELECT contributors FROM sums WHERE query = ? ORDER BY cohort"
_OLD = "SELECT number, id FROM queries WHERE phase = ? AND decided < ? AND NOT pruned ORDER BY number"
