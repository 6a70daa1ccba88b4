"""The end of a query: closed by this server's clock, sent to the key server, decided there."""

from __future__ import annotations

import datetime as dt
import errno
import logging
from collections.abc import Iterator
from functools import partial

import numpy as np

from reticent.protocol import Refusal, Refused, signed_by, statements
from reticent.protocol.layout import ciphertexts_from, ciphertexts_to
from reticent.protocol.phases import OUTCOMES
from reticent.times import Now, instant, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg import metrics
from reticent_agg.counting.queries import AnnouncedQuery, Queries
from reticent_agg.errors import BadKeyServerReply
from reticent_agg.store import (
    PATIENCE,
    AggregationStore,
    EncryptedSum,
    QueryLocked,
    StoredQuery,
    StoredRequest,
    WorkItem,
)

__all__ = ["FINAL_REFUSALS", "Closing", "abort"]

_log = logging.getLogger(__name__)

RECEIPTS_AT_ONCE = 1000
"""Receipts in a message."""
FINAL_REFUSALS = frozenset({Refusal.KEY_RETIRED, Refusal.UNKNOWN_QUERY})
"""In reply to a request to decide, these are final: the key server was restored from a backup, and never decides it.

In reply to other requests they are not, so the table of refusals does not have this.
"""


class Closing:
    """Closes queries, and keeps their decisions.

    Args:
        store: The aggregation server's.
        queries: Over the same store.
        identity: The key server's public Ed25519 key.
        now: The time, in UTC.
        rng: Rerandomises the sums: nobody may be able to replay it.
    """

    def __init__(
        self, store: AggregationStore, queries: Queries, identity: bytes, now: Now, rng: np.random.Generator
    ) -> None:
        self._store = store
        self._queries = queries
        self._identity = identity
        self._now = now
        self._rng = rng

    def close_due(self) -> list[str]:
        """Close the queries whose time is over, and those with enough contributions; returns their ids.

        Other processes that have locked queries delay this for a moment only, however many queries these are.

        Raises:
            QueryLocked: Another process has locked at least one query. All others are closed.
            Exception: At least one query cannot be closed now, for another reason. All others are closed.
        """
        closed: list[str] = []
        locked: list[bytes] = []
        errors: list[Exception] = []
        now = milliseconds(self._now())
        for digest in self._store.due(now):
            try:
                announced = self._queries.announced(digest)
                with metrics.CLOSE_SECONDS.time():
                    patience = 0.0 if locked else PATIENCE
                    request = partial(self._request, announced)
                    is_closed = self._store.close_query(digest, request, now, patience=patience)
            except QueryLocked:
                locked.append(digest)
                continue
            except Exception as error:  # noqa: BLE001  # raised below
                errors.append(error)
                continue
            if is_closed:
                _log.info("%r is closed", announced.query.id)
                closed.append(announced.query.id)
        if errors:
            raise errors[0]
        if locked:
            names = ", ".join(self._queries.announced(digest).query.id for digest in locked)
            raise QueryLocked(errno.EBUSY, "another process has locked", names)
        return closed

    def next_due(self) -> dt.datetime | None:
        """The next time at which a query closes."""
        due = self._store.next_due()
        return None if due is None else instant(due)

    def to_decide(self) -> dict[WorkItem, str]:
        """The cohorts to decide, in the order of their queries, each with the name of its query."""
        items = self._store.to_decide()
        names = {digest: self._queries.announced(digest).query.id for digest in {item.query for item in items}}
        return {item: names[item.query] for item in items}

    def messages(self, head: wire.DecideHead) -> Iterator[wire.DecideRequest]:
        """The messages of a request to decide: the head, then the receipts, always in the same order."""
        yield wire.DecideRequest(head=head)
        after = b""
        while receipts := self._store.receipts(head.query, head.cohort, after, RECEIPTS_AT_ONCE):
            yield wire.DecideRequest(receipts=wire.Receipts(receipts=receipts))
            after = receipts[-1].phone

    def decide(self, decision: wire.Decision) -> None:
        """Keep a decision of the key server. The same decision again changes nothing.

        Raises:
            BadKeyServerReply: It is not signed by the key server's identity, does not answer a request, or contradicts
                an earlier decision.
        """
        statement = statements.decision(decision)
        if decision.outcome not in OUTCOMES or not signed_by(self._identity, statement, decision.signature):
            raise BadKeyServerReply("a decision is not signed by the key server's identity")
        kept = self._store.decide(decision, partial(_refuse_mismatch, decision), milliseconds(self._now()))
        if kept is None:
            raise BadKeyServerReply(f"the key server has decided cohort {decision.cohort} of a query without a request")
        if kept != decision:
            raise BadKeyServerReply(f"cohort {decision.cohort} was decided before, in another way")

    def refuse(self, head: wire.DecideHead, refused: Refused) -> None:
        """Take a refusal to decide.

        If the cohort is decided already, the request that was sent before an abort stands, and is sent again. If the
        refusal is final, the query is lost.
        """
        if refused.refusal is Refusal.ALREADY_DECIDED:
            self._store.withdraw_burn(head.query, head.cohort)
        elif refused.refusal in FINAL_REFUSALS:
            self._store.lose(head.query, refused)

    def _request(self, announced: AnnouncedQuery, cohort: EncryptedSum) -> wire.DecideHead:
        """The request to decide a cohort: with other ciphertexts of the same sums, or none if there are too few."""
        query, key = announced.query, announced.key
        head = wire.DecideHead(query=query.digest, cohort=cohort.cohort, contributors=cohort.contributors)
        if cohort.contributors >= query.min_contributions:
            partial_sums = [ciphertexts_from(each, key) for each in cohort.partial_sums]
            sums = [key.add(column) for column in zip(*partial_sums, strict=True)]
            head.ciphertexts = ciphertexts_to(key.rerandomise(sums, self._rng), key)
        return head


def abort(store: AggregationStore, query_id: str) -> StoredQuery:
    """Close a query now, and have every cohort burnt that is not decided yet.

    A request that was sent before may be decided already: then that decision stands.

    Raises:
        Refused: There is no such query, or the key server has refused to countersign it, for this reason.
    """
    query = store.abort(query_id)
    if query is None:
        raise Refused(Refusal.UNKNOWN_QUERY)
    if query.is_rejected and query.refused is not None:
        raise query.refused
    return query


def _refuse_mismatch(decision: wire.Decision, request: StoredRequest) -> None:
    """Refuse a decision that does not answer the request.

    A key server that has the ciphertexts could keep them and report the cohort as burnt: phones would take their
    budget back.
    """
    if decision.outcome == wire.BURNT and request.head.ciphertexts and not request.burn:
        raise BadKeyServerReply(f"cohort {decision.cohort} was to be decrypted, and the key server reports it as burnt")
    if decision.contributors != request.head.contributors:
        raise BadKeyServerReply(
            f"cohort {decision.cohort} has {request.head.contributors} contributions, and the key server reports "
            f"{decision.contributors}"
        )
