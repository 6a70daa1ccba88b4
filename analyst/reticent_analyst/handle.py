"""A query that was asked: how far it is, what became of it, and what is released.

Nothing is believed that the key server has not signed: a decision counts for the query and the cohort that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from reticent.privacy import CohortSum, Ledger, Query, QueryBurnt, Release, estimate
from reticent.protocol import Refusal, Refused, signed_by
from reticent.protocol import statements as said
from reticent.protocol.phases import OUTCOMES, PHASES, Outcome, Phase
from reticent.v1 import counting_pb2 as wire
from reticent_analyst.client import CountingClient, TimeOver, Waiting
from reticent_analyst.errors import BadReply, NeverDecided, NotDecided

__all__ = ["NEVER_ASKED", "Handle", "NeverDecided", "NotDecided", "Progress", "Watcher"]

NEVER_ASKED = frozenset({Refusal.NOT_ENROLLED_ENOUGH, Refusal.KEY_RETIRED, Refusal.BAD_QUERY})
"""For these the key server does not countersign a query that was announced."""


@dataclass(frozen=True)
class Progress:
    """How far a query is.

    Args:
        query: Which one.
        phase: What is being done with it; it is "lost" where it will never be decided.
        contributors: How many phones of each cohort have contributed.
        outcomes: What became of each cohort; None where that is not decided.
        closes_in: Seconds until collecting ends; 0 when it has.
        away: For how many seconds the server has not answered.
        refusal: Why it is refused.
    """

    query: Query
    phase: Phase
    contributors: tuple[int, ...]
    outcomes: tuple[Outcome | None, ...]
    closes_in: float
    away: float = 0.0
    refusal: str | None = None

    def __repr__(self) -> str:
        contributed = f"{sum(self.contributors):,} of {self.query.population:,} phones"
        decided = f"{self.decided} of {len(self.outcomes)} cohorts decided"
        return f"Progress({self.query.id!r}, {self.phase}, {contributed}, {decided})"

    @property
    def decided(self) -> int:
        """How many cohorts are decided."""
        return sum(outcome is not None for outcome in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """How far it is, as plain data."""
        return {
            "id": self.query.id,
            "phase": self.phase,
            "population": self.query.population,
            "contributors": list(self.contributors),
            "outcomes": list(self.outcomes),
            "closes_in": self.closes_in,
            "refusal": self.refusal,
        }


Watcher = Callable[[Progress], None]


class Handle:
    """A query that was asked.

    Args:
        query: What.
        client: By which the server is asked.
        identity: The key server's public Ed25519 key.
        ledger: What the phones have spent; the query is booked there if it is reserved.
        watcher: Told how far the query is, unless `result` is given another.
    """

    def __init__(
        self,
        query: Query,
        client: CountingClient,
        identity: bytes,
        *,
        ledger: Ledger | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.query = query
        self._client = client
        self._identity = identity
        self._ledger = ledger
        self._watcher = watcher or _watched_by_nobody
        self._decisions: dict[int, wire.Decision] = {}
        self._release: Release | None = None
        self._burnt: QueryBurnt | None = None
        nothing = (0,) * query.cohorts
        self.progress = Progress(query, "announced", nothing, (None,) * query.cohorts, float(query.closes_after))
        """How far the query was when that was last looked at."""

    def __repr__(self) -> str:
        return f"Handle({self.query.id!r}, {self.progress.phase})"

    def status(self) -> Progress:
        """How far the query is."""
        return self.read(self._client.status(self.query.id))

    def abort(self) -> Progress:
        """Close the query, and have every cohort burnt that is not decided yet."""
        return self.read(self._client.abort(self.query.id))

    def result(self, timeout: float | None = None, watcher: Watcher | None = None) -> Release:
        """Wait until all cohorts are decided. Asked again, it says the same.

        Args:
            timeout: For how many seconds; without end unless given.
            watcher: Told how far the query is, whenever that was looked at.

        Raises:
            QueryBurnt: Fewer than half of the cohorts are left.
            NotDecided: The time is over, and the query goes on.
            NeverDecided: The key server was restored from a backup, and decides nothing about the query any more.
            Unreachable: The server was away for longer than the patience with it.
            Refused: The key server would not countersign the query, and no phone was asked.
            BadReply: The server says what the key server has not signed.
        """
        patience = self._client.patience
        waiting = Waiting(None if timeout is None else patience.monotonic() + timeout)
        backoff, looks = patience.backoff, 0
        while not self._is_settled:
            self._look(waiting, timeout, watcher or self._watcher)
            if self.progress.phase == "lost":
                raise NeverDecided(
                    f"{self.query.id!r} will never be decided: the key server was restored from a backup, and does not "
                    "know this query, or decides nothing under its key any more"
                )
            if not self._is_settled:
                left = waiting.left(patience.monotonic())
                if left <= 0:
                    raise self._not_decided(timeout)
                looks += 1
                # Soon after closing there is something to see.
                patience.sleep(min(backoff.delay(looks), left, self.progress.closes_in + backoff.first))
        if self._release is None:
            assert self._burnt is not None  # noqa: S101  # it is one or the other
            raise self._burnt.with_traceback(None)
        return self._release

    @property
    def _is_settled(self) -> bool:
        return self._release is not None or self._burnt is not None

    def _look(self, waiting: Waiting, timeout: float | None, watcher: Watcher) -> None:
        def away(gone: float) -> None:
            watcher(replace(self.progress, away=gone))

        try:
            status = self._client.status(self.query.id, replace(waiting, away=away))
        except TimeOver:
            raise self._not_decided(timeout, is_away=True) from None
        except Refused as refused:
            if refused.refusal in NEVER_ASKED:
                self._book(is_spent=False)
            raise
        watcher(self.read(status))

    def _not_decided(self, timeout: float | None, *, is_away: bool = False) -> NotDecided:
        progress = self.progress
        rest = f"collecting ends in {progress.closes_in:.0f} s" if progress.closes_in else "collecting is over"
        if is_away:
            rest = f"{self._client.address} does not answer"
        return NotDecided(
            f"{self.query.id!r} is not decided after {timeout or 0:g} s: {progress.decided} of its "
            f"{self.query.cohorts} cohorts are, and {rest}; the query goes on"
        )

    def read(self, status: wire.QueryStatus) -> Progress:
        """Check what the server says of the query, and keep what is decided.

        Raises:
            BadReply: It says what cannot be, or what the key server has not signed.
        """
        query = self.query
        if status.query != query.to_bytes():
            raise BadReply(f"asked about {query.id!r}, the aggregation server speaks of another query")
        if status.phase not in PHASES or status.phase == wire.REFUSED or len(status.cohorts) not in {0, query.cohorts}:
            raise BadReply(f"the aggregation server tells of {len(status.cohorts)} cohorts of {query.id!r}")
        for number, cohort in enumerate(status.cohorts):
            if cohort.HasField("decision"):
                self._keep(number, cohort.decision)
        phase = PHASES[status.phase]
        if phase == "decided" and len(self._decisions) < query.cohorts:
            raise BadReply(
                f"{query.id!r} is called decided, and {query.cohorts - len(self._decisions)} cohorts are not"
            )
        if len(self._decisions) == query.cohorts:
            self._settle()
        outcomes = [self._decisions.get(number) for number in range(query.cohorts)]
        self.progress = Progress(
            query=query,
            phase=phase,
            contributors=tuple(cohort.contributors for cohort in status.cohorts) or (0,) * query.cohorts,
            outcomes=tuple(None if each is None else OUTCOMES[each.outcome] for each in outcomes),
            closes_in=status.closes_in_ms / 1000,
        )
        return self.progress

    def _keep(self, number: int, decision: wire.Decision) -> None:
        """A decision, if the key server has made it about this cohort."""
        before = self._decisions.get(number)
        if before is not None:
            if before != decision:
                raise BadReply(f"there are two decisions about cohort {number} of {self.query.id!r}")
            return
        fault = next(self._faults(number, decision), None)
        if fault is not None:
            raise BadReply(f"the decision about cohort {number} of {self.query.id!r} {fault}")
        self._decisions[number] = decision

    def _faults(self, number: int, decision: wire.Decision) -> Iterator[str]:
        """What is wrong with it; only what comes before a fault has been looked at."""
        query = self.query
        if decision.contributors > max(query.cohort_populations):
            yield f"counts {decision.contributors} phones of {max(query.cohort_populations)}"
        if not signed_by(self._identity, said.decision(decision), decision.signature):
            yield "is not signed by the key server"
        if decision.query != query.digest:
            yield "is about another query"
        if decision.cohort != number:
            yield f"is about cohort {decision.cohort}"
        if decision.outcome not in OUTCOMES:
            yield "has no outcome"
        if decision.outcome != wire.RELEASED and decision.sums:
            yield "has sums, and is not released"
        if decision.outcome == wire.RELEASED and decision.contributors < query.min_contributions:
            yield f"releases {decision.contributors} contributions, of at least {query.min_contributions}"
        if decision.outcome == wire.RELEASED and len(decision.sums) != query.size:
            yield f"has {len(decision.sums)} sums, of {query.size} counters"
        if any(said.shortest(said.number(each)) != each for each in decision.sums):
            yield "has sums that are not written as they must be"

    def _settle(self) -> None:
        """Compute the release, and book what was spent. What was computed stands."""
        if self._is_settled:
            return
        decisions = [self._decisions[number] for number in range(self.query.cohorts)]
        spent = [number for number, each in enumerate(decisions) if each.outcome != wire.BURNT]
        self._book(is_spent=bool(spent))
        try:
            self._release = estimate(
                self.query, list(map(_cohort_sum, decisions)), seeded=any(each.seeded for each in decisions)
            )
        except QueryBurnt as burnt:
            self._burnt = QueryBurnt(burnt.query, burnt.left_out, burnt.cohorts, spent)

    def _book(self, *, is_spent: bool) -> None:
        account = self.query.account
        if self._ledger is None or all(entry.query != account for entry in self._ledger.entries()):
            return
        if is_spent:
            self._ledger.spend(account)
        elif self.query.sequence is None:  # of a sequence another query may have been answered
            self._ledger.give_back(account)


def _cohort_sum(decision: wire.Decision) -> CohortSum:
    is_released = decision.outcome == wire.RELEASED
    return CohortSum(decision.contributors, tuple(map(said.number, decision.sums)) if is_released else None)


def _watched_by_nobody(_: Progress) -> None:
    pass
