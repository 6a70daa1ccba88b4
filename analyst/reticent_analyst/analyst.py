"""The analyst: announce a query to real phones through the aggregation server, wait, and read the release.

All calls block, for notebooks and scripts.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from reticent.paillier import PublicKey
from reticent.privacy import AlreadyDecided, Contributions, Ledger, Query, Release
from reticent.protocol import Refusal, Refused
from reticent.protocol.keys import KEY_BYTES, identity_of
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent_analyst.client import CountingClient, OnOutage, Timeouts
from reticent_analyst.errors import BadReply
from reticent_analyst.handle import COUNTERSIGN_REFUSALS, Handle, OnProgress, Progress
from reticent_analyst.question import Question

__all__ = ["Analyst", "Terms"]


@dataclass(frozen=True)
class Terms:
    """The numbers that turn a question into a query.

    Args:
        population: The number of enrolled phones.
        public_key: The active key, under which phones encrypt.
    """

    population: int
    public_key: PublicKey

    @property
    def key_id(self) -> str:
        """The id of the key, as in a query."""
        return self.public_key.key_id.hex()


class Analyst:
    """Counts real phones through the aggregation server.

    Args:
        address: The host:port at which the aggregation server listens for analysts.
        certificate: The analyst's certificate; None if the server is on this machine and requires none.
        identity: The key server's public Ed25519 key, which signs decisions: 32 bytes, their 64 hexadecimal digits, or
            the file `identity.pub` that holds these.
        ledger: The phones' spending, as far as the analyst knows. A query that exceeds it is not announced.
        timeouts: How long to wait for replies.
        on_progress: Called with a query's progress after each status call.
        on_outage: Called before each retry, with the unavailable server and the seconds since the first attempt.
    """

    def __init__(
        self,
        address: str,
        certificate: Certificate | None,
        identity: bytes | str | Path,
        *,
        ledger: Ledger | None = None,
        timeouts: Timeouts | None = None,
        on_progress: OnProgress | None = None,
        on_outage: OnOutage | None = None,
    ) -> None:
        if not isinstance(identity, bytes):
            identity = identity_of(str(identity))
        if len(identity) != KEY_BYTES:
            raise ValueError(f"the key server's identity has {KEY_BYTES} bytes: got {len(identity)}")
        self._identity = identity
        self._ledger = ledger
        self._on_progress = on_progress
        self._client = CountingClient(address, certificate, timeouts or Timeouts(), on_outage)

    def __repr__(self) -> str:
        return f"Analyst({self._client.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Queries continue."""
        self._client.close()

    def terms(self) -> Terms:
        """Fetch the number of enrolled phones and the active key.

        Raises:
            Refused: The server refuses.
            Unreachable: The server does not reply.
        """
        terms = self._client.terms()
        try:
            key = PublicKey.from_bytes(terms.public_key, simulation=True)  # phones refuse short keys
        except ValueError as error:
            raise BadReply(f"the aggregation server sent an invalid public key: {error}") from error
        return Terms(terms.population, key)

    def query(self, question: Question, terms: Terms | None = None) -> Query:
        """The query for a question and the enrolled phones.

        Args:
            question: The question.
            terms: A result of `terms`; fetched if None.
        """
        terms = terms or self.terms()
        return question.to_query(terms.population, terms.key_id)

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        """Announce a query, wait until all cohorts are decided, and return the release.

        If the query was announced before and is not decided yet, this only waits.

        Args:
            query: The query.
            counters: None: real phones have their own counters.

        Raises:
            BudgetExceeded: The query costs more than is left in the ledger.
            QueryBurnt: Too few phones contributed.
            AlreadyDecided: The query was decided before; `find` has its result.
            ValueError: Phones would decline it: an earlier query of its sequence has other bounds, cost or noise.
            Refused: The server refuses.
            Unreachable: The server does not reply.
            BadReply: The reply is invalid, or not signed by the key server.
        """
        if counters is not None:
            raise ValueError("real phones have their own counters: counters must be None")
        return self.start(query).result()

    def start(self, query: Query) -> Handle:
        """Announce a query, and return at once.

        Raises:
            As `count`, except `QueryBurnt`.
        """
        if self._is_decided(query.id):
            raise AlreadyDecided(f"{query.id!r} was decided before: a second attempt is another query")
        self._check_sequence(query)
        before = None if self._ledger is None else self._reserve(self._ledger, query)
        handle = self._handle(query)
        try:
            status = self._client.announce(query.to_bytes())
        except Refused as refused:
            # An earlier attempt's reservation is free if no phone received the query then either. Another query of a
            # sequence may have been received.
            is_left_over = before == "reserved" and query.sequence is None and refused.refusal in COUNTERSIGN_REFUSALS
            if self._ledger is not None and (before is None or is_left_over):
                self._ledger.give_back(query.account)
            raise
        handle.read(status)
        return handle

    def find(self, name: str) -> Handle:
        """The handle of a query that was announced before, by its id.

        Raises:
            Refused: There is no such query.
        """
        handle = self._found(self._client.status(name))
        if handle.query.id != name:
            raise BadReply(f"the status of {name!r} is of another query, {handle.query.id!r}")
        return handle

    def queries(self) -> list[Progress]:
        """The progress of all queries, the latest first, including those that the key server refused."""
        return [self._progress(status) for status in self._client.queries()]

    def paid_queries(self) -> list[Query]:
        """The queries on which phones have spent budget, or may still: not refused, and not burnt as a whole."""
        paid = []
        for status in self._client.queries():
            if status.phase == wire.REFUSED:
                continue
            query = _query(status)
            with contextlib.suppress(BadReply):  # such as a decision of another key server: it may have cost budget
                if set(self._found(status).progress.outcomes) == {"burnt"}:
                    continue
            paid.append(query)
        return paid

    def _check_sequence(self, query: Query) -> None:
        """Refuse terms that phones of the sequence decline: the analyst would only see that nobody contributes."""
        if query.sequence is None:
            return
        for other in self.paid_queries():
            if other.id != query.id and other.sequence == query.sequence and other.terms != query.terms:
                raise ValueError(
                    f"phones that contributed to {other.id!r} decline {query.id!r}: all queries of the sequence "
                    f"{query.sequence!r} must have the same bounds, cost and noise; got {_differences(query, other)}"
                )

    @staticmethod
    def _reserve(ledger: Ledger, query: Query) -> str | None:
        """Reserve a query's cost. Returns the state of its account before."""
        before = next((entry.state for entry in ledger.entries() if entry.query == query.account), None)
        ledger.reserve(query.account, query.cost)
        return before

    def _is_decided(self, name: str) -> bool:
        try:
            return self._client.status(name).phase == wire.DECIDED
        except Refused as refusal:
            if refusal.refusal is Refusal.NOT_PERMITTED:
                raise
            return False  # an unknown or refused query: its id is free

    def _progress(self, status: wire.QueryStatus) -> Progress:
        if status.phase != wire.REFUSED:
            return self._found(status).progress
        query = _query(status)
        try:
            return self._found(self._client.status(query.id)).progress  # announced again meanwhile
        except Refused as refused:
            nothing = (None,) * query.cohorts
            return Progress(query, "refused", (0,) * query.cohorts, nothing, 0.0, str(refused))

    def _found(self, status: wire.QueryStatus) -> Handle:
        handle = self._handle(_query(status))
        handle.read(status)
        return handle

    def _handle(self, query: Query) -> Handle:
        return Handle(query, self._client, self._identity, ledger=self._ledger, on_progress=self._on_progress)


def _differences(query: Query, other: Query) -> str:
    """The fields in which two queries of a sequence differ."""
    names = ("epsilon", "delta", "l2_squared", "l1", "noise", "fraction_bits")
    pairs = [(name, getattr(query, name), getattr(other, name)) for name in names]
    return ", ".join(f"{name} = {new} instead of {old}" for name, new, old in pairs if new != old)


def _query(status: wire.QueryStatus) -> Query:
    try:
        return Query.from_bytes(status.query)
    except ValueError as error:
        raise BadReply(f"the aggregation server sent an invalid query: {error}") from error
