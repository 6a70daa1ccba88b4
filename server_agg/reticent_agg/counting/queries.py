"""Queries until phones see them: announced by an analyst, countersigned by the key server, dealt to phones."""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, plaintext_count, signed_by, statements
from reticent.protocol.keys import KEY_BYTES, PHONE_BYTES
from reticent.protocol.layout import MAX_CONTRIBUTION_BYTES, ciphertexts_to, contribution_bytes
from reticent.protocol.phases import KEY_SERVER_UNAVAILABLE
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg.errors import BadKeyServerReply
from reticent_agg.store import AggregationStore, CountersignedDeal, NewQuery, WorkItem

__all__ = ["AnnouncedQuery", "Queries"]

_log = logging.getLogger(__name__)

MAX_DURATION = dt.timedelta(days=366)
"""The longest time for which a query may collect."""
_CACHED = 256  # queries, and keys, that are not parsed again for each batch

Name = TypeVar("Name")
Cached = TypeVar("Cached")


@dataclass(frozen=True)
class AnnouncedQuery:
    """The constant part of a query.

    Args:
        query: The query.
        key: The public key under which contributions are encrypted.
        plaintexts: The number of ciphertexts in a contribution.
    """

    query: Query
    key: PublicKey
    plaintexts: int


class Queries:
    """Takes announcements and countersignatures, and knows the public keys that queries name.

    Args:
        store: The aggregation server's.
        identity: The key server's public Ed25519 key.
        now: The time, in UTC.
        simulation: Accept keys that are only good for simulation as well.
    """

    def __init__(self, store: AggregationStore, identity: bytes, now: Now, *, simulation: bool) -> None:
        self._store = store
        self._identity = identity
        self._now = now
        self._simulation = simulation
        self._terms: wire.Terms | None = None
        self._announced: OrderedDict[bytes, AnnouncedQuery] = OrderedDict()
        self._keys: OrderedDict[bytes, PublicKey] = OrderedDict()

    def learn(self, terms: wire.Terms) -> None:
        """Take the key server's terms: the number of enrolled phones, and the key that queries may name from now on.

        Raises:
            BadKeyServerReply: The key is invalid.
        """
        try:
            key = PublicKey.from_bytes(terms.public_key, simulation=self._simulation)
        except ValueError as error:
            raise BadKeyServerReply(f"the key server's public key is invalid: {error}") from error
        self._store.put_key(key.key_id, key.to_bytes())
        _cache(self._keys, key.key_id, key)
        self._terms = terms

    def can_judge(self, query: Query) -> bool:
        """Whether an announcement can be answered without asking the key server for new terms.

        That is so if the query was announced before, or if the last terms have its key and enough phones.
        """
        known = self._store.query(query.digest)
        if known is not None and known.refused is None:
            return True
        has_key = self._key(query.key_id) is not None
        return has_key and self._terms is not None and query.population <= self._terms.population

    def announce(self, content: bytes, owner: str | None = None) -> Query:
        """Keep a query, so that it will be countersigned. The same query again changes nothing.

        Args:
            content: The query's canonical bytes.
            owner: The name of the analyst; None where analysts have no names.

        Raises:
            Refused: BAD_QUERY; CONFLICT with another query of this id; KEY_RETIRED for an unknown key;
                TOO_FEW_ENROLLED.
        """
        query = _parse(content)
        known = self._store.query_named(query.id)
        if known is None or known.may_be_replaced:
            if known is not None and known.owner != owner:
                raise Refused(Refusal.CONFLICT, f"another analyst's query has the name {query.id!r}, and was refused")
            self._refuse_too_large(query)
            known = self._store.announce(
                NewQuery(query.digest, query.id, content, owner, announced=milliseconds(self._now()))
            )
        if (known.digest, known.owner) != (query.digest, owner):
            raise Refused(Refusal.CONFLICT, f"there is another query of the name {query.id!r}")
        return query

    def to_countersign(self) -> list[tuple[WorkItem, Query]]:
        """The queries to countersign, in the order of their announcements.

        A query that was announced under less strict checks, and that the present ones refuse, is rejected.
        """
        items = ((item, self._parse_again(item.query)) for item in self._store.to_countersign())
        return [(item, query) for item, query in items if query is not None]

    def countersign(self, query: Query, deals: Iterable[wire.Deal]) -> None:
        """Begin to collect from the phones to which the key server has dealt a query. Again, it changes nothing.

        Raises:
            BadKeyServerReply: The countersignature is wrong, or these are not the phones of the query.
        """
        head, phones = self._verified(query, deals)
        announced = self.announced(query.digest)
        deal = CountersignedDeal(
            head.agreement_key,
            head.countersignature,
            phones,
            closes=milliseconds(self._now()) + query.closes_after * 1000,
            enough=[query.enough or population for population in query.cohort_populations],
            zero=ciphertexts_to([1] * announced.plaintexts, announced.key),  # 1 is a ciphertext of 0
        )
        self._store.countersign(query.digest, deal)

    def announced(self, digest: bytes) -> AnnouncedQuery:
        """The constant part of a query.

        Raises:
            Refused: There is no such query.
        """
        found = self._announced.get(digest)
        if found is None:
            content = self._store.content(digest)
            if content is None:
                raise Refused(Refusal.UNKNOWN_QUERY)
            query = Query.from_bytes(content)
            key = self._key(query.key_id)
            if key is None:
                raise AssertionError(f"the key of {query.id!r} was known when it was announced")
            found = AnnouncedQuery(query, key, plaintext_count(query, key.bits))
            _cache(self._announced, digest, found)
        return found

    def _parse_again(self, digest: bytes) -> Query | None:
        """A query that was kept; None if it is invalid now, and rejected."""
        try:
            return Query.from_bytes(self._store.content(digest) or b"")
        except ValueError as error:
            refused = Refused(Refusal.BAD_QUERY, str(error))
            _log.warning("a query that was announced is invalid now, and is not countersigned: %s", error)
            self._store.reject(digest, refused)
            return None

    def _refuse_too_large(self, query: Query) -> None:
        """Refuse a query that asks for more than there is, before anything is made for it."""
        if self._terms is None:
            raise Refused(Refusal.UNAVAILABLE, KEY_SERVER_UNAVAILABLE)
        enrolled = self._terms.population
        if query.population > enrolled:
            raise Refused(Refusal.TOO_FEW_ENROLLED, f"{enrolled} phones are enrolled, of {query.population}")
        key = self._key(query.key_id)
        if key is None:
            raise Refused(Refusal.KEY_RETIRED)
        try:
            plaintexts = plaintext_count(query, key.bits)
        except ValueError as error:
            raise Refused(Refusal.BAD_QUERY, str(error)) from error
        if contribution_bytes(query, key.bits) > MAX_CONTRIBUTION_BYTES:
            raise Refused(Refusal.BAD_QUERY, f"a contribution of {plaintexts} ciphertexts does not fit a message")

    def _key(self, key_id: str) -> PublicKey | None:
        try:
            name = bytes.fromhex(key_id)
        except ValueError:
            return None
        found = self._keys.get(name)
        if found is None:
            content = self._store.key(name)
            if content is None:
                return None
            found = PublicKey.from_bytes(content, simulation=self._simulation)
            _cache(self._keys, name, found)
        return found

    def _verified(self, query: Query, deals: Iterable[wire.Deal]) -> tuple[wire.Deal, Sequence[wire.Dealt]]:
        """The message with the countersignature, and all phones."""
        phones: list[wire.Dealt] = []
        head = wire.Deal()
        for deal in deals:
            head = head if head.countersignature else deal
            phones.extend(deal.phones)
        statement = statements.countersigned(query.digest, head.agreement_key)
        if len(head.agreement_key) != KEY_BYTES or not signed_by(self._identity, statement, head.countersignature):
            raise BadKeyServerReply(f"the countersignature of {query.id!r} is not the key server's")
        if len({each.phone for each in phones}) < len(phones) or not all(map(_is_valid, phones)):
            raise BadKeyServerReply(f"the key server has dealt {query.id!r} to a phone twice, or to an invalid phone")
        sizes = Counter(each.cohort for each in phones)
        if sizes != dict(enumerate(query.cohort_populations)):
            raise BadKeyServerReply(
                f"the key server has dealt {query.id!r} to another number of phones than the query has: "
                f"got {sorted(sizes.items())}"
            )
        return head, phones


def _is_valid(dealt: wire.Dealt) -> bool:
    return len(dealt.phone) == PHONE_BYTES and len(dealt.verify_key) == KEY_BYTES


def _parse(content: bytes) -> Query:
    try:
        query = Query.from_bytes(content)
    except ValueError as error:
        raise Refused(Refusal.BAD_QUERY, str(error)) from error
    if query.closes_after > MAX_DURATION.total_seconds():
        raise Refused(Refusal.BAD_QUERY, f"a query collects for {MAX_DURATION.days} days at most")
    return query


def _cache(cache: OrderedDict[Name, Cached], name: Name, value: Cached) -> None:
    cache[name] = value
    if len(cache) > _CACHED:
        cache.popitem(last=False)
