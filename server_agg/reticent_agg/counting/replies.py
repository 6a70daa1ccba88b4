"""Replies to phones and analysts, read from the store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, signed_by, statements
from reticent.protocol.phases import phase_of
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg.counting.collection import refuse_odd_phone
from reticent_agg.store import AggregationStore, StoredQuery

__all__ = ["Replies", "refuse_too_many"]

REPLY_BYTES = 3 << 20
"""The most bytes of a reply: gRPC's clients take messages of 4 MiB unless told otherwise."""
ANONYMOUS_REPLY_BYTES = 1 << 16
"""The most bytes of a reply to a phone that has not proved who it is. One item is sent in any case."""
OPEN_QUERIES_AT_ONCE = 256
"""Open queries that one page of announcements covers: if all were dealt to the phone, they fit such a reply."""
LISTED_AT_ONCE = 100
"""Queries in a page of an analyst's list."""
MAX_WANTED = 1000
"""Decisions in one request."""

_ABOVE_ALL = (1 << 63) - 1  # every query's number is smaller

Item = TypeVar("Item", bound=Message)


class Replies:
    """Reads the store, and changes nothing.

    Args:
        store: The aggregation server's.
        now: The time, in UTC.
        poll_interval: How long phones wait before they ask for announcements again.
    """

    def __init__(self, store: AggregationStore, now: Now, poll_interval: dt.timedelta) -> None:
        self._store = store
        self._now = now
        self._poll_interval = poll_interval

    # To phones.

    def announcements(self, request: wire.AnnouncementsRequest) -> wire.AnnouncementsReply:
        """A page of the queries that collect from a phone."""
        refuse_odd_phone(request.phone)
        now = milliseconds(self._now())
        dealt, following = self._store.dealt_to(request.phone, now, request.after, OPEN_QUERIES_AT_ONCE)
        found = (
            wire.Announcement(
                query=each.digest,
                agreement_key=each.agreement_key,
                countersignature=each.countersignature,
                cohort=each.cohort,
                closes_in_ms=each.closes - now,
            )
            for each in dealt
        )
        return wire.AnnouncementsReply(
            announcements=found, again_in_ms=self._poll_interval // dt.timedelta(milliseconds=1), next=following or 0
        )

    def query(self, request: wire.QueryRequest) -> wire.QueryReply:
        """A query, for a phone to which it was dealt.

        Raises:
            Refused: MALFORMED, UNKNOWN_QUERY, NOT_DEALT, BAD_SIGNATURE; LATE if the query is pruned.
        """
        refuse_odd_phone(request.phone)
        query, content = self._store.query(request.query), self._store.content(request.query)
        if query is None or content is None or query.phase == wire.ANNOUNCED:
            raise Refused(Refusal.UNKNOWN_QUERY)
        phone = self._store.dealt(request.query, [request.phone]).get(request.phone)
        if phone is None:
            raise Refused(Refusal.LATE if query.pruned else Refusal.NOT_DEALT)
        if not signed_by(phone.verify_key, statements.fetching(request.query, request.phone), request.signature):
            raise Refused(Refusal.BAD_SIGNATURE)
        return wire.QueryReply(query=content)

    def key(self, request: wire.KeyRequest) -> wire.KeyReply:
        """A public key that some query may name.

        Raises:
            Refused: KEY_RETIRED if it is unknown.
        """
        content = self._store.key(request.key_id)
        if content is None:
            raise Refused(Refusal.KEY_RETIRED, "there is no such key")
        return wire.KeyReply(public_key=content)

    def decisions(self, request: wire.DecisionsRequest) -> wire.DecisionsReply:
        """Those of the wanted decisions that are made, from the first one on as many as fit a message.

        Phones never see that a cohort was burnt whose sum the key server has had: nobody but the key server knows
        whether it has decrypted it, so phones must not take their budget back.
        """
        refuse_too_many(request.wanted)
        found = (self._store.decision_for_phones(each.query, each.cohort) for each in request.wanted)
        return wire.DecisionsReply(
            decisions=_fitting((each for each in found if each is not None), ANONYMOUS_REPLY_BYTES)
        )

    # To analysts, by their names; None where they have none.

    def status(self, request: wire.StatusRequest | wire.AbortRequest, analyst: str | None = None) -> wire.QueryStatus:
        """The status of an analyst's query.

        Raises:
            Refused: UNKNOWN_QUERY; NOT_PERMITTED for another analyst's query; or the key server's reason if it has
                refused to countersign the query.
        """
        query = self._store.query_named(request.id)
        if query is None:
            raise Refused(Refusal.UNKNOWN_QUERY, f"there is no query of the name {request.id!r}")
        if query.owner != analyst:
            raise Refused(Refusal.NOT_PERMITTED, f"{request.id!r} is another analyst's query")
        if query.is_rejected and query.refused is not None:
            raise query.refused
        return self._status(query)

    def list_queries(self, analyst: str | None = None, after: int = 0) -> wire.ListReply:
        """A page of an analyst's queries, the latest first; also those that were refused."""
        numbered = self._store.queries_of(analyst, after or _ABOVE_ALL, LISTED_AT_ONCE)
        found = [(number, query) for number, name in numbered if (query := self._store.query_named(name)) is not None]
        queries = list(_fitting((self._status(query) for _, query in found), REPLY_BYTES))
        if len(queries) < len(found):
            following = found[len(queries) - 1][0]
        else:
            following = numbered[-1][0] if len(numbered) == LISTED_AT_ONCE else 0
        return wire.ListReply(queries=queries, next=following)

    def _status(self, query: StoredQuery) -> wire.QueryStatus:
        content = self._store.content(query.digest)
        if content is None:
            raise Refused(Refusal.UNKNOWN_QUERY)
        phase = phase_of(query.phase, is_refused=query.refused is not None)
        left = 0
        if phase == wire.ANNOUNCED:
            left = Query.from_bytes(content).closes_after * 1000
        elif phase == wire.COLLECTING and query.closes is not None:
            left = max(0, query.closes - milliseconds(self._now()))
        cohorts = [
            wire.CohortStatus(contributors=each.contributors, decision=each.decision)
            for each in self._store.cohorts(query.digest)
        ]
        return wire.QueryStatus(query=content, phase=phase, closes_in_ms=left, cohorts=cohorts)


def refuse_too_many(wanted: Sequence[wire.DecisionWanted]) -> None:
    """Refuse to look for more decisions than a phone can want."""
    if len(wanted) > MAX_WANTED:
        raise Refused(Refusal.OVERSIZED, f"{MAX_WANTED} decisions can be asked for at once: got {len(wanted)}")


def _fitting(items: Iterable[Item], most: int) -> Iterator[Item]:
    """From the first one on as many as fit a reply, and one in any case."""
    size = 0
    for item in items:
        size += item.ByteSize()
        if size > most and size > item.ByteSize():
            return
        yield item
