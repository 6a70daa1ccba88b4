"""An announced query: its progress, its decisions and its release.

The analyst accepts only decisions that the key server has signed for this query and cohort.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from reticent.privacy import CohortSum, Ledger, Query, QueryBurnt, Release, estimate
from reticent.protocol import Refusal, Refused, signed_by, statements
from reticent.protocol.phases import KEY_SERVER_UNAVAILABLE, OUTCOMES, PHASES, Outcome, Phase
from reticent.v1 import counting_pb2 as wire
from reticent_analyst.client import CountingClient
from reticent_analyst.errors import BadReply, DeadlineExceeded, NeverDecided, NotDecided

__all__ = ["COUNTERSIGN_REFUSALS", "Handle", "OnProgress", "Progress"]

COUNTERSIGN_REFUSALS = frozenset({Refusal.TOO_FEW_ENROLLED, Refusal.KEY_RETIRED, Refusal.BAD_QUERY})
"""The refusals of the key server to countersign an announced query: no phone has received it.

Only these prove it, and only about an announced query: after `UNKNOWN_QUERY` the phones may have contributed.
"""


@dataclass(frozen=True)
class Progress:
    """The progress of a query.

    Args:
        query: The query.
        phase: Its phase. It is "lost" if it can no longer be decided.
        contributors: The contributions to each cohort so far.
        outcomes: The outcome of each cohort; None if it is not decided.
        closes_in: Seconds until collecting ends; 0 after that.
        refusal: The reason, if the key server refused the query.
        is_key_server_unavailable: Whether the aggregation server cannot reach the key server at present.
    """

    query: Query
    phase: Phase
    contributors: tuple[int, ...]
    outcomes: tuple[Outcome | None, ...]
    closes_in: float
    refusal: str | None = None
    is_key_server_unavailable: bool = False

    def __repr__(self) -> str:
        contributed = f"{sum(self.contributors):,} of {self.query.population:,} phones"
        decided = f"{self.decided} of {len(self.outcomes)} cohorts decided"
        return f"Progress({self.query.id!r}, {self.phase}, {contributed}, {decided})"

    @property
    def decided(self) -> int:
        """The number of decided cohorts."""
        return sum(outcome is not None for outcome in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """The progress as plain data."""
        return {
            "id": self.query.id,
            "phase": self.phase,
            "population": self.query.population,
            "contributors": list(self.contributors),
            "outcomes": list(self.outcomes),
            "closes_in": self.closes_in,
            "refusal": self.refusal,
            "key_server_unavailable": self.is_key_server_unavailable,
        }


OnProgress = Callable[[Progress], None]
"""Called with the progress after each status call."""


class Handle:
    """An announced query.

    Args:
        query: The query.
        client: The connection to the aggregation server.
        identity: The key server's public Ed25519 key.
        ledger: The phones' spending. The query's reservation is spent or given back when it is decided.
        on_progress: The default of `result`.
    """

    def __init__(
        self,
        query: Query,
        client: CountingClient,
        identity: bytes,
        *,
        ledger: Ledger | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.query = query
        self._client = client
        self._identity = identity
        self._ledger = ledger
        self._on_progress = on_progress or (lambda _: None)
        self._decisions: dict[int, wire.Decision] = {}
        self._release: Release | None = None
        self._burnt: QueryBurnt | None = None
        nothing = (0,) * query.cohorts
        self.progress = Progress(query, "announced", nothing, (None,) * query.cohorts, float(query.closes_after))
        """The progress at the last status call."""

    def __repr__(self) -> str:
        return f"Handle({self.query.id!r}, {self.progress.phase})"

    def status(self) -> Progress:
        """Fetch the progress."""
        return self.read(self._client.status(self.query.id))

    def abort(self) -> Progress:
        """Close the query now. Its undecided cohorts are burnt."""
        return self.read(self._client.abort(self.query.id))

    def result(self, timeout: float | None = None, on_progress: OnProgress | None = None) -> Release:
        """Wait until all cohorts are decided. Later calls return the same.

        Args:
            timeout: Seconds to wait; no limit if None.
            on_progress: Called with the progress after each status call.

        Raises:
            QueryBurnt: Fewer than half of the cohorts are left.
            NotDecided: The timeout passed. The query continues.
            NeverDecided: The key server was restored from a backup, and can no longer decide the query.
            Unreachable: The server was unavailable for longer than `Timeouts.max_outage`.
            Refused: The key server did not countersign the query, so no phone received it.
            BadReply: The reply is invalid, or not signed by the key server.
        """
        timeouts, on_progress = self._client.timeouts, on_progress or self._on_progress
        deadline = math.inf if timeout is None else timeouts.monotonic() + timeout
        polls = 0
        while not self._is_settled:
            try:
                on_progress(self.read(self._client.status(self.query.id, deadline)))
            except DeadlineExceeded:
                raise self._not_decided(timeout, f"{self._client.address} does not reply") from None
            except Refused as refused:
                if refused.refusal in COUNTERSIGN_REFUSALS:
                    self._record_cost(is_spent=False)
                raise
            if self.progress.phase == "lost":
                raise NeverDecided(
                    f"{self.query.id!r} can no longer be decided: the key server was restored from a backup, and does "
                    "not know the query or has retired its key"
                )
            if not self._is_settled:
                closes_in = self.progress.closes_in
                left = deadline - timeouts.monotonic()
                if left <= 0:
                    rest = f"collecting ends in {closes_in:.0f} s" if closes_in else "collecting has ended"
                    if self.progress.is_key_server_unavailable:
                        rest += f", {KEY_SERVER_UNAVAILABLE}"
                    raise self._not_decided(timeout, rest)
                polls += 1
                backoff = timeouts.backoff
                timeouts.sleep(min(backoff.delay(polls), left, closes_in + backoff.first))
        if self._release is None:
            assert self._burnt is not None  # noqa: S101  # it is one or the other
            raise self._burnt.with_traceback(None)
        return self._release

    @property
    def _is_settled(self) -> bool:
        return self._release is not None or self._burnt is not None

    def _not_decided(self, timeout: float | None, rest: str) -> NotDecided:
        decided = f"{self.progress.decided} of {self.query.cohorts} cohorts are decided"
        return NotDecided(
            f"{self.query.id!r} is not decided after {timeout or 0:g} s: {decided}, {rest}; the query continues"
        )

    def read(self, status: wire.QueryStatus) -> Progress:
        """Check a status, and keep its decisions.

        Raises:
            BadReply: The status is invalid, or a decision is not signed by the key server.
        """
        query = self.query
        if status.query != query.to_bytes():
            raise BadReply(f"the status of {query.id!r} is of another query")
        if status.phase not in PHASES or status.phase == wire.REFUSED or len(status.cohorts) not in {0, query.cohorts}:
            raise BadReply(
                f"the status of {query.id!r} is invalid: phase {status.phase}, {len(status.cohorts)} cohorts"
            )
        for number, cohort in enumerate(status.cohorts):
            if cohort.HasField("decision"):
                self._keep(number, cohort.decision)
        phase = PHASES[status.phase]
        if phase == "decided" and len(self._decisions) < query.cohorts:
            raise BadReply(
                f"{query.id!r} is decided, but {query.cohorts - len(self._decisions)} cohorts have no decision"
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
            is_key_server_unavailable=status.key_server_unavailable,
        )
        return self.progress

    def _keep(self, number: int, decision: wire.Decision) -> None:
        """Keep a decision, if the key server has signed it for this cohort."""
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
        """The faults of a decision. The caller takes the first only: later checks rely on earlier ones."""
        query = self.query
        if decision.contributors > max(query.cohort_populations):
            yield f"counts {decision.contributors} phones of {max(query.cohort_populations)}"
        if not signed_by(self._identity, statements.decision(decision), decision.signature):
            yield "is not signed by the key server"
        if decision.query != query.digest:
            yield "is about another query"
        if decision.cohort != number:
            yield f"is about cohort {decision.cohort}"
        if decision.outcome not in OUTCOMES:
            yield "has an unknown outcome"
        if decision.outcome != wire.RELEASED and decision.sums:
            yield "has sums, but is not released"
        if decision.outcome == wire.RELEASED and decision.contributors < query.min_contributions:
            yield f"releases {decision.contributors} contributions: at least {query.min_contributions} are required"
        if decision.outcome == wire.RELEASED and len(decision.sums) != query.size:
            yield f"has {len(decision.sums)} sums for {query.size} counters"
        if any(statements.integer_to(statements.integer_from(each)) != each for each in decision.sums):
            yield "has sums that are not encoded in the shortest form"

    def _settle(self) -> None:
        """Compute the release once, and record the cost."""
        if self._is_settled:
            return
        decisions = [self._decisions[number] for number in range(self.query.cohorts)]
        spent = [number for number, each in enumerate(decisions) if each.outcome != wire.BURNT]
        self._record_cost(is_spent=bool(spent))
        try:
            self._release = estimate(
                self.query, list(map(_cohort_sum, decisions)), seeded=any(each.seeded for each in decisions)
            )
        except QueryBurnt as burnt:
            self._burnt = QueryBurnt(burnt.query, burnt.left_out, burnt.cohorts, spent)

    def _record_cost(self, *, is_spent: bool) -> None:
        account = self.query.account
        if self._ledger is None or all(entry.query != account for entry in self._ledger.entries()):
            return
        if is_spent:
            self._ledger.spend(account)
        elif self.query.sequence is None:  # another query of a sequence may have spent the same reservation
            self._ledger.give_back(account)


def _cohort_sum(decision: wire.Decision) -> CohortSum:
    is_released = decision.outcome == wire.RELEASED
    return CohortSum(decision.contributors, tuple(map(statements.integer_from, decision.sums)) if is_released else None)
