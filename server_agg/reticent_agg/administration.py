"""The view of the operator of an aggregation server on its queries."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from reticent.privacy import Query
from reticent.protocol.phases import OUTCOMES, PHASES, Outcome, Phase, phase_of
from reticent.times import instant
from reticent_agg.store import AggregationStore, StoredQuery

__all__ = ["QuerySummary", "summaries"]


@dataclass(frozen=True)
class QuerySummary:
    """The progress of a query.

    Args:
        id: Its name.
        phase: Its phase.
        population: The number of phones to which it is dealt.
        contributors: The number of contributions, of each cohort.
        outcomes: The outcome of each cohort that is decided.
        announced: When it was announced.
        closes: When collecting ends, or ended; of an aborted query, at the latest. None before the countersignature.
        refusal: Why the key server refuses to countersign it, or to decide it.
        pruned: Whether its phones and receipts are deleted.
        attempts: The attempts to have it countersigned or a cohort decided, the most of one that has not succeeded.
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
    attempts: int


def summaries(store: AggregationStore) -> list[QuerySummary]:
    """All queries, the latest first."""
    found = (store.query_named(query_id) for query_id in store.query_ids())
    return [_summary(store, query) for query in found if query is not None]


def _summary(store: AggregationStore, query: StoredQuery) -> QuerySummary:
    cohorts = store.cohorts(query.digest)
    return QuerySummary(
        id=query.id,
        phase=PHASES[phase_of(query.phase, is_refused=query.refused is not None)],
        population=Query.from_bytes(store.content(query.digest) or b"").population,
        contributors=tuple(each.contributors for each in cohorts),
        outcomes=tuple(OUTCOMES[each.decision.outcome] for each in cohorts if each.decision is not None),
        announced=instant(query.announced),
        closes=None if query.closes is None else instant(query.closes),
        refusal=None if query.refused is None else str(query.refused),
        pruned=query.pruned,
        attempts=store.attempts(query.digest),
    )
