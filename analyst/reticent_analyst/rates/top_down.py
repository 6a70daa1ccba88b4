"""The queries of an estimate, from the root down, one for each level: algorithms 7 and 8 of Götz's dissertation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reticent.hierarchy import Hierarchy
from reticent.privacy import AlreadyDecided, Contributions, Counter, Counts, Query, QueryBurnt, Release
from reticent.protocol import Refusal, Refused
from reticent_analyst.analyst import Analyst
from reticent_analyst.errors import LevelBurnt, NeverDecided
from reticent_analyst.handle import COUNTERSIGN_REFUSALS
from reticent_analyst.question import Question
from reticent_analyst.rates.candidates import BidIndex, Candidates
from reticent_analyst.rates.state import EstimateState, QueryOutcome
from reticent_analyst.rates.table import CountedLevel, ScaledCounts
from reticent_analyst.rates.terms import EstimateTerms

__all__ = ["CountersOf", "LevelProgress", "OnLevel", "ToQuery", "TopDown"]

SUPPORT_DEVIATIONS = 3
"""By default, a count has support if it exceeds so many standard deviations of its error."""

UNANNOUNCED = COUNTERSIGN_REFUSALS | {Refusal.OVERSIZED}
"""The refusals after which no phone has received the query."""

ToQuery: TypeAlias = Callable[[Question], Query]
CountersOf: TypeAlias = Callable[[Query], Contributions]


@dataclass(frozen=True)
class LevelProgress:
    """The progress of an estimate at one level.

    Args:
        depth: The level: 0 is the root.
        levels: The most levels that are counted.
        nodes: The number of candidate nodes.
        query: The query of the level.
        release: Its release; None before the query is asked.
    """

    depth: int
    levels: int
    nodes: int
    query: Query
    release: Release | None = None


OnLevel: TypeAlias = Callable[[LevelProgress], None]
"""Called before the query of each level, and with its release."""


class TopDown:
    """Counts the levels of a hierarchy, below nodes with enough entries, and there the ads with enough views.

    In a child, an ad has fewer views than in the parent. A rate without support is never used in place of an
    ancestor's, so nothing is lost where algorithm 8 would count all ads.

    Args:
        counts: Counts phones, real or simulated.
        hierarchy: The hierarchy of contexts.
        bids: The ads and the nodes that they bid on.
        terms: The terms of the estimate.
        state: The state of earlier runs. Its budget holds; the depth of `terms` may be smaller.
        to_query: Makes a query of a question.
        counters: The counters of simulated phones for a query; None for real ones.
        question: Other arguments of `Question`.
        on_level: Called before the query of each level, and with its release.
    """

    def __init__(
        self,
        counts: Counts,
        hierarchy: Hierarchy,
        bids: BidIndex,
        terms: EstimateTerms,
        state: EstimateState,
        *,
        to_query: ToQuery,
        counters: CountersOf | None,
        question: Mapping[str, Any],
        on_level: OnLevel,
    ) -> None:
        self._counts = counts
        self._hierarchy = hierarchy
        self._bids = bids
        self._terms = terms
        self._state = state
        self._to_query = to_query
        self._counters = counters
        self._question = question
        self._on_level = on_level
        self._make_question("check", [Counter("check", 0, 1)])  # refuses bad arguments before anything is asked

    def run(self) -> list[CountedLevel]:
        """Count all levels that no earlier run has counted, and return all.

        Raises:
            LevelBurnt: The query of a level is burnt.
            As `Counts.count`.
        """
        counted: list[CountedLevel] = []
        population = 0
        candidates = self._bids.root()
        while candidates.depth < self._terms.levels and len(candidates.nodes) and self._is_affordable(candidates.depth):
            query, release = self._counted(candidates)
            population = population or query.population
            level = CountedLevel.of(candidates, query, release, population, self._terms.entries)
            counted.append(level)
            candidates = self._bids.below(candidates, self._has_support(level.entries), self._has_support(level.views))
        if not counted:
            raise ValueError("burnt queries have used the whole budget: begin a new estimate, under another name")
        return counted

    def _has_support(self, counts: ScaledCounts) -> npt.NDArray[np.bool_]:
        """The counts above the support."""
        least = self._terms.min_support
        if least is None:
            least = SUPPORT_DEVIATIONS * math.sqrt(counts.variance.min(initial=math.inf))
        return np.asarray(counts.value > least)

    def _is_affordable(self, depth: int) -> bool:
        """Whether the budget has a query left: burnt queries whose sums were decrypted have used their part of it."""
        return self._state.current(depth) is not None or self._state.spent < self._state.terms.levels

    def _counted(self, candidates: Candidates) -> tuple[Query, Release]:
        """The query of a level and its release."""
        scale = self._state.terms.scale(candidates.depth)
        counters = candidates.counters(self._hierarchy, self._bids.ads, self._terms.entries, scale)
        attempt = self._state.current(candidates.depth)
        if attempt is None:
            query = self._to_query(self._make_question(self._new_id(candidates.depth), counters))
            attempt = self._state.add(candidates.depth, query)  # before it is asked: a kill loses no query
        query, release = attempt.query, attempt.release
        if list(query.counters) != counters:
            raise ValueError(f"the recorded query {query.id!r} has other counters: the state is not of this estimate")
        progress = LevelProgress(candidates.depth, self._terms.levels, len(candidates.nodes), query)
        if release is None:
            self._on_level(progress)
            release = self._count(candidates.depth, query)
            self._state.settle(candidates.depth, "released", release)
        self._on_level(replace(progress, release=release))
        return query, release

    def _count(self, depth: int, query: Query) -> Release:
        try:
            return self._release_of(query)
        except QueryBurnt as burnt:
            outcome: QueryOutcome = "spent" if burnt.spent else "free"
            self._state.settle(depth, outcome)
            raise LevelBurnt(self._burnt_text(depth, str(burnt), outcome)) from burnt
        except NeverDecided as lost:
            self._state.settle(depth, "spent")
            raise LevelBurnt(self._burnt_text(depth, str(lost), "spent")) from lost
        except Refused as refused:
            if refused.refusal in UNANNOUNCED:
                self._state.settle(depth, "free")
            raise

    def _release_of(self, query: Query) -> Release:
        """Ask a query, or find the release of one that an earlier run asked."""
        try:
            return self._counts.count(query, None if self._counters is None else self._counters(query))
        except AlreadyDecided:
            if not isinstance(self._counts, Analyst):
                raise
        handle = self._counts.find(query.id)
        if handle.query.digest != query.digest:
            raise ValueError(f"there was another query {query.id!r}: choose another name for the estimate")
        return handle.result()

    def _burnt_text(self, depth: int, why: str, outcome: QueryOutcome) -> str:
        terms = self._state.terms
        if outcome == "free":
            why += ". Too few phones contributed; a phone does not if its budget is too small, or if it is away"
        released = sum(attempt.outcome == "released" for attempt in self._state.attempts)
        cost = f"({terms.epsilon:g}, {terms.delta:g}) for each phone" if self._state.spent else "nothing"
        again = "run the estimate again with the same state: the level gets a new query"
        if outcome == "spent":
            again += ", and as the burnt one used a part of the phones' bounds, one level less is counted"
        if depth:
            again += f"; to end with the levels above, set the depth to {depth - 1}"
        return (
            f"level {depth} has no release: {why}. {released} of {terms.levels} levels are released, and the estimate "
            f"has cost {cost} so far. To go on, {again}"
        )

    def _new_id(self, depth: int) -> str:
        number = sum(attempt.depth == depth for attempt in self._state.attempts)
        return f"{self._terms.name}-level-{depth}" + (f"-attempt-{number + 1}" if number else "")

    def _make_question(self, name: str, counters: list[Counter]) -> Question:
        return self._state.terms.sequence.question(name, counters, **self._question)
