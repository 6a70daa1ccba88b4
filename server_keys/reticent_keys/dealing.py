"""Countersigning a query, once, and dealing phones to it, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from reticent.privacy import Query
from reticent.privacy.limits import QueryLimits
from reticent.protocol import Refusal, Refused, plaintext_count, statements
from reticent.storage.database import Database
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys.identity import Identity
from reticent_keys.journal import MEMBER, KeyState
from reticent_keys.keyring import Keyring, PublicPart, refuse_retired
from reticent_keys.query_keys import QueryKeys

__all__ = ["Dealer", "query_of"]

_log = logging.getLogger(__name__)

PHONES_A_MESSAGE = 1000  # of some 60 bytes each
QUERIES_KEPT = 16  # of up to a megabyte each


@lru_cache(maxsize=QUERIES_KEPT)
def query_of(content: bytes) -> Query:
    """The query of these canonical bytes, which were countersigned; it is costly to check anew.

    No others may be given: each is kept.
    """
    return Query.from_bytes(content)


class Dealer:
    """Countersigns queries, and deals phones to them.

    Args:
        journal: Where both are written down.
        identity: Countersigns.
        keyring: Says which key is active.
        query_keys: Makes each query a key of its own.
        limits: What the operator allows.
        rng: By what phones are dealt: whoever can replay it knows who is in a cohort with whom.
        now: Says what time it is.
    """

    def __init__(
        self,
        journal: Database,
        identity: Identity,
        keyring: Keyring,
        query_keys: QueryKeys,
        limits: QueryLimits,
        *,
        rng: np.random.Generator,
        now: Now,
    ) -> None:
        self._journal = journal
        self._identity = identity
        self._keyring = keyring
        self._query_keys = query_keys
        self._limits = limits
        self._rng = rng
        self._now = now

    def countersign(self, content: bytes) -> Iterator[wire.Deal]:
        """Countersign a query and deal phones to it; or tell again what was said before.

        Raises:
            Refused: BAD_QUERY, CONFLICT, KEY_RETIRED, NOT_ENROLLED_ENOUGH; UNAVAILABLE where the pair of its key cannot
                be opened.
        """
        try:
            query = Query.from_bytes(content)
        except ValueError as error:
            raise Refused(Refusal.BAD_QUERY, str(error)) from error
        number = self._countersigned(query)
        if number is None:
            key = self._active_key(query)
            self._refuse_too_few(query, len(self._enrolled()))  # a query of more cohorts than phones is costly to check
            self._check(query, key)
            number = self._dealt(query, key)
        return self._deal(query, number)

    def _countersigned(self, query: Query) -> int | None:
        """The query's number in the journal, where it was countersigned before."""
        with self._journal.reading() as run:
            row = run(
                "SELECT queries.number, digest, state FROM queries JOIN keys ON keys.number = queries.key"
                " WHERE queries.id = ?",
                (query.id,),
            ).fetchone()
        if row is None:
            return None
        number, digest, state = row
        if digest != query.digest:
            raise Refused(Refusal.CONFLICT, f"another query has the id {query.id!r}")
        refuse_retired(KeyState[state])
        return int(number)

    def _active_key(self, query: Query) -> PublicPart:
        """The key that the query names, if cohorts can be decided under it."""
        key = self._keyring.of_id(query.key_id)
        if key is None or key.state is not KeyState.ACTIVE:
            raise Refused(Refusal.KEY_RETIRED, "the query names a key that is not the active one")
        self._keyring.pair(key)
        return key

    def _check(self, query: Query, key: PublicPart) -> None:
        try:
            ciphertexts = plaintext_count(query, key.bits)
        except ValueError as error:
            raise Refused(Refusal.BAD_QUERY, str(error)) from error
        for violation in self._limits.violations(query, ciphertexts):
            raise Refused(Refusal.BAD_QUERY, violation)

    def _dealt(self, query: Query, key: PublicPart) -> int:
        """Write down the query and its phones, as one."""
        with self._journal.transaction() as run:
            number = self._countersigned(query)
            if number is not None:
                return number
            self._active_key(query)
            enrolled = self._enrolled()
            self._refuse_too_few(query, len(enrolled))
            agreement_key = self._query_keys.make(query.digest).public
            number = run(
                "INSERT INTO queries (digest, id, content, agreement_key, key, cohorts, countersigned)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    query.digest,
                    query.id,
                    query.to_bytes(),
                    agreement_key,
                    key.number,
                    query.cohorts,
                    milliseconds(self._now()),
                ),
            ).lastrowid
            assert number is not None  # noqa: S101  # it was inserted
            for phone, cohort in self._shuffled(enrolled, query):
                run("INSERT INTO dealt (query, phone, cohort) VALUES (?, ?, ?)", (number, phone, cohort))
        _log.info(
            "countersigned",
            extra={"query": query.id, "phones": query.population, "cohorts": query.cohorts, "key": query.key_id[:16]},
        )
        return number

    def _enrolled(self) -> list[int]:
        with self._journal.reading() as run:
            rows = run(f"SELECT number FROM phones WHERE {MEMBER}", (milliseconds(self._now()),)).fetchall()  # noqa: S608  # constants
        return [number for (number,) in rows]

    @staticmethod
    def _refuse_too_few(query: Query, enrolled: int) -> None:
        if enrolled < query.population:
            raise Refused(
                Refusal.NOT_ENROLLED_ENOUGH, f"the query asks {query.population} phones, and {enrolled} are enrolled"
            )

    def _shuffled(self, phones: list[int], query: Query) -> Iterator[tuple[int, int]]:
        """As many phones as the query asks, any of them as likely as any other, each with its cohort."""
        chosen = self._rng.permutation(np.array(phones))[: query.population]
        cohorts = np.repeat(np.arange(query.cohorts), query.cohort_populations)
        order = np.argsort(chosen)  # that of the journal, which says nothing about the cohorts
        return zip(chosen[order].tolist(), cohorts[order].tolist(), strict=True)

    def _deal(self, query: Query, number: int) -> Iterator[wire.Deal]:
        with self._journal.reading() as run:
            (agreement_key,) = run("SELECT agreement_key FROM queries WHERE number = ?", (number,)).fetchone()
        statement = statements.countersigned(query.digest, agreement_key)
        head = wire.Deal(agreement_key=agreement_key, countersignature=self._identity.signing.sign(statement))
        last = 0
        while rows := self._page(number, last):
            head.phones.extend(
                wire.Dealt(phone=phone, verify_key=verify_key, cohort=cohort) for _, phone, verify_key, cohort in rows
            )
            yield head
            head, last = wire.Deal(), rows[-1][0]

    def _page(self, number: int, last: int) -> list[tuple[int, bytes, bytes, int]]:
        with self._journal.reading() as run:
            return run(
                "SELECT phones.number, phones.id, phones.verify_key, dealt.cohort FROM dealt"
                " JOIN phones ON phones.number = dealt.phone"
                " WHERE dealt.query = ? AND dealt.phone > ? ORDER BY dealt.phone LIMIT ?",
                (number, last, PHONES_A_MESSAGE),
            ).fetchall()
