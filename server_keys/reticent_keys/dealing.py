"""Countersigning a query and dealing phones to it, once."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

import numpy as np

from reticent.privacy import Query, QueryLimits
from reticent.protocol import Refusal, Refused, plaintext_count, statements
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys.identity import Identity
from reticent_keys.journal import CountersignedQuery, Deal, Journal, Key, KeyState
from reticent_keys.keyring import Keyring
from reticent_keys.query_key_store import QueryKeyStore

__all__ = ["Dealer", "query_of"]

_log = logging.getLogger(__name__)

PHONES_PER_MESSAGE = 1000  # of some 60 bytes each
CACHED_QUERIES = 16  # of up to a megabyte each


@lru_cache(maxsize=CACHED_QUERIES)
def query_of(content: bytes) -> Query:
    """The query with these canonical bytes, which are costly to check.

    Call it for countersigned queries only: callers of the server must not fill the cache.
    """
    return Query.from_bytes(content)


class Dealer:
    """Countersigns queries, and deals phones to them.

    Args:
        journal: Records both.
        identity: Signs.
        keyring: Knows the active key.
        query_keys: Makes a key for each query.
        limits: The queries that the operator allows.
        rng: Shuffles the phones of a query: whoever can replay it knows which phones share a cohort.
        now: The clock.
    """

    def __init__(
        self,
        journal: Journal,
        identity: Identity,
        keyring: Keyring,
        query_keys: QueryKeyStore,
        limits: QueryLimits,
        *,
        rng: Callable[[Query], np.random.Generator],
        now: Now,
        decision_time: dt.timedelta,
    ) -> None:
        self._journal = journal
        self._identity = identity
        self._keyring = keyring
        self._query_keys = query_keys
        self._limits = limits
        self._rng = rng
        self._now = now
        self._decision_time = decision_time

    def countersign(self, content: bytes) -> Iterator[wire.Deal]:
        """Countersign a query and deal phones to it; the same query gets the same reply again.

        When this returns, the deal is recorded.

        Raises:
            Refused: BAD_QUERY, CONFLICT, KEY_RETIRED, TOO_FEW_ENROLLED; UNAVAILABLE if the pair of its key cannot be
                opened.
        """
        try:
            query = Query.from_bytes(content)
        except ValueError as error:
            raise Refused(Refusal.BAD_QUERY, str(error)) from error
        recorded = self._journal.countersigned(query)
        if recorded is None:
            key = self._active_key(query)
            now = milliseconds(self._now())
            _refuse_too_few(query, self._journal.member_count(now))  # a query of many cohorts is costly to check
            self._check(query, key)
            recorded = self._journal.countersign(query, partial(self._deal, query), now, self._deadline(query))
            _log.info(
                "countersigned",
                extra={
                    "query": query.id,
                    "phones": query.population,
                    "cohorts": query.cohorts,
                    "key": query.key_id[:16],
                },
            )
        return self._messages(recorded)

    def _deadline(self, query: Query) -> int:
        return milliseconds(self._now() + dt.timedelta(seconds=query.closes_after) + self._decision_time)

    def _active_key(self, query: Query) -> Key:
        """The query's key, if it is active and can be opened."""
        key = self._journal.key(query.key_id)
        if key is None or key.state is not KeyState.ACTIVE:
            raise Refused(Refusal.KEY_RETIRED, "the query names a key that is not the active one")
        self._keyring.pair(key)
        return key

    def _check(self, query: Query, key: Key) -> None:
        try:
            ciphertexts = plaintext_count(query, key.bits)
        except ValueError as error:
            raise Refused(Refusal.BAD_QUERY, str(error)) from error
        for violation in self._limits.violations(query, ciphertexts).values():
            raise Refused(Refusal.BAD_QUERY, violation)

    def _deal(self, query: Query, members: Sequence[int]) -> Deal:
        """Choose as many phones as the query needs, each with equal probability, and shuffle them into cohorts."""
        _refuse_too_few(query, len(members))
        chosen = self._rng(query).permutation(np.array(members))[: query.population]
        cohorts = np.repeat(np.arange(query.cohorts), query.cohort_populations)
        order = np.argsort(chosen)  # the order of enrolment, which says nothing about the cohorts
        dealt = zip(chosen[order].tolist(), cohorts[order].tolist(), strict=True)
        return Deal(self._query_keys.make(query.digest).public, dealt)

    def _messages(self, recorded: CountersignedQuery) -> Iterator[wire.Deal]:
        statement = statements.countersigned(recorded.digest, recorded.agreement_key)
        message = wire.Deal(
            agreement_key=recorded.agreement_key, countersignature=self._identity.signing.sign(statement)
        )
        for page in self._journal.dealt_phones(recorded.number, PHONES_PER_MESSAGE):
            message.phones.extend(
                wire.Dealt(phone=phone, verify_key=verify_key, cohort=cohort) for phone, verify_key, cohort in page
            )
            yield message
            message = wire.Deal()


def _refuse_too_few(query: Query, members: int) -> None:
    if members < query.population:
        raise Refused(Refusal.TOO_FEW_ENROLLED, f"the query needs {query.population} phones: {members} are enrolled")
