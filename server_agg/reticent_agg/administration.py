"""What the operator of an aggregation server asks of its file, while the server runs or not."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from reticent.privacy import Query
from reticent.protocol.phases import OUTCOMES, PHASES, Outcome, Phase, phase_of
from reticent.storage.database import Database
from reticent.times import instant, milliseconds
from reticent.v1 import counting_pb2 as wire

__all__ = ["Report", "prune", "report"]


@dataclass(frozen=True)
class Report:
    """Where a query is.

    Args:
        id: Its name.
        phase: What is being done with it.
        population: How many phones it asks.
        contributors: How many have contributed, of each cohort.
        outcomes: What became of each cohort that is decided.
        announced: When it was.
        closes: When collecting ends, or ended, at the latest; None before it has begun.
        refusal: Why the key server does not countersign it, or decide it.
        pruned: Whether it is forgotten who took part.
    """

    id: str
    phase: Phase
    population: int
    contributors: tuple[int, ...]
    outcomes: tuple[Outcome, ...]
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
                phase=PHASES[phase_of(phase, is_refused=refusal is not None)],
                population=Query.from_bytes(content).population,
                contributors=tuple(number for (number,) in run(_CONTRIBUTORS, (query,)).fetchall()),
                outcomes=tuple(_outcome(answer) for (answer,) in run(_ANSWERS, (query,)).fetchall()),
                announced=instant(announced),
                closes=None if closes is None else instant(closes),
                refusal=f"{refusal}: {detail}" if refusal else None,
                pruned=bool(pruned),
            )
            for query, name, content, phase, announced, closes, refusal, detail, pruned in run(_QUERIES).fetchall()
        ]


def prune(database: Database, before: dt.datetime) -> list[str]:
    """Forget who took part in queries that were decided before then; what was decided stays. The ids of the queries.

    Queries that were announced before then, and refused, are forgotten altogether.
    """
    moment = milliseconds(before)
    with database.reading() as run:
        old = run(_OLD, (wire.DECIDED, moment)).fetchall()
        refused = run(_REFUSED, (wire.ANNOUNCED, moment)).fetchall()
    if refused:
        with database.transaction() as run:
            for number, _ in refused:
                run("DELETE FROM queries WHERE number = ? AND refusal IS NOT NULL", (number,))
    for number, _ in old:
        with database.transaction() as run:  # one after the other: the server may want to write meanwhile
            for table in ("dealt", "receipts", "requests"):
                run(f"DELETE FROM {table} WHERE query = ?", (number,))  # noqa: S608  # one of three names
            run("UPDATE queries SET pruned = 1 WHERE number = ?", (number,))
    return [name for _, name in sorted(old + refused)]


def _outcome(answer: bytes) -> Outcome:
    return OUTCOMES[wire.Decision.FromString(answer).outcome]


_QUERIES = """
SELECT number, id, content, phase, announced, closes, refusal, detail, pruned FROM queries ORDER BY number DESC
"""
_CONTRIBUTORS = "SELECT contributors FROM sums WHERE query = ? ORDER BY cohort"
_ANSWERS = "SELECT answer FROM decisions WHERE query = ? ORDER BY cohort"
_REFUSED = "SELECT number, id FROM queries WHERE phase = ? AND refusal IS NOT NULL AND announced < ? ORDER BY number"
_OLD = "SELECT number, id FROM queries WHERE phase = ? AND decided < ? AND NOT pruned ORDER BY number"
