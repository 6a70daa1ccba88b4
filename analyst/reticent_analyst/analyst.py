"""The analyst's side: ask a query of real phones through the aggregation server, wait, and read what is released.

All of it blocks, so that it can be used from a notebook or a script as it is.
"""

from __future__ import annotations

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
from reticent_analyst.client import CountingClient, Hindered, Patience
from reticent_analyst.errors import BadReply
from reticent_analyst.handle import NEVER_ASKED, Handle, Progress, Watcher
from reticent_analyst.question import Question

__all__ = ["Analyst", "Terms"]


@dataclass(frozen=True)
class Terms:
    """What a query can be asked of at present.

    Args:
        population: How many phones are enrolled.
        public_key: Under which they would encrypt.
    """

    population: int
    public_key: PublicKey

    @property
    def key_id(self) -> str:
        """How a query names the key."""
        return self.public_key.key_id.hex()


class Analyst:
    """Counts real phones, through the aggregation server.

    Args:
        address: Of the aggregation server, for analysts: host:port.
        certificate: The analyst's own, with which it is let in; None where the server is on this machine and asks for
            none.
        identity: The key server's public Ed25519 key, which signs decisions: 32 bytes, or the 64 hexadecimal digits of
            them, or the file `identity.pub` that holds these.
        ledger: What the phones have spent, as far as is known here. A query that they would refuse is then refused
            before anybody is asked.
        patience: How long to wait for answers.
        watcher: Told how far a query is, whenever that was looked at.
        hindered: Told who is waited for, whenever a server has to be asked again.
    """

    def __init__(
        self,
        address: str,
        certificate: Certificate | None,
        identity: bytes | str | Path,
        *,
        ledger: Ledger | None = None,
        patience: Patience | None = None,
        watcher: Watcher | None = None,
        hindered: Hindered | None = None,
    ) -> None:
        if not isinstance(identity, bytes):
            identity = identity_of(str(identity))
        if len(identity) != KEY_BYTES:
            raise ValueError(f"the key server's identity has {KEY_BYTES} bytes: got {len(identity)}")
        self._identity = identity
        self._ledger = ledger
        self._watcher = watcher
        self._client = CountingClient(address, certificate, patience or Patience(), hindered)

    def __repr__(self) -> str:
        return f"Analyst({self._client.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection. Queries go on."""
        self._client.close()

    def terms(self) -> Terms:
        """How many phones could be asked now, and under which key.

        Raises:
            Refused: The server says no.
            Unreachable: It does not answer.
        """
        standing = self._client.standing()
        try:
            key = PublicKey.from_bytes(standing.public_key, simulation=True)  # it is for phones to refuse short ones
        except ValueError as error:
            raise BadReply(f"what the aggregation server gives as the public key is none: {error}") from error
        return Terms(standing.population, key)

    def query(self, question: Question, terms: Terms | None = None) -> Query:
        """The query that asks this of the phones that are enrolled.

        Args:
            question: What is wanted.
            terms: What `terms` said; the present ones, unless given.
        """
        terms = terms or self.terms()
        return question.to_query(terms.population, terms.key_id)

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        """Ask the phones, wait until all cohorts are decided, and say what is released.

        A query that was asked before and is not decided yet is waited for.

        Args:
            query: What is asked.
            counters: None: real phones take their own.

        Raises:
            BudgetExceeded: The query costs more than is left in the ledger.
            QueryBurnt: Too few phones answered.
            AlreadyDecided: The query was decided before; `find` has its result.
            Refused: The server says no.
            Unreachable: It does not answer.
            BadReply: It says what the key server has not signed.
        """
        if counters is not None:
            raise ValueError("real phones take their own counters: got some")
        return self.start(query).result()

    def start(self, query: Query) -> Handle:
        """Ask the phones, and return at once.

        Raises:
            As `count`, but for `QueryBurnt`.
        """
        if self._is_decided(query.id):
            raise AlreadyDecided(f"{query.id!r} was decided before: a second attempt is another query")
        before = None if self._ledger is None else self._reserve(self._ledger, query)
        handle = self._handle(query)
        try:
            status = self._client.announce(query.to_bytes())
        except Refused as refused:
            # What an attempt before this one has reserved is free where nobody was asked then either. Of a sequence
            # another query may have been asked.
            is_left_over = before == "reserved" and query.sequence is None and refused.refusal in NEVER_ASKED
            if self._ledger is not None and (before is None or is_left_over):
                self._ledger.give_back(query.account)
            raise
        handle.read(status)
        return handle

    def find(self, name: str) -> Handle:
        """A query that was asked before, by its id.

        Raises:
            Refused: There is no such query.
        """
        handle = self._found(self._client.status(name))
        if handle.query.id != name:
            raise BadReply(f"asked about {name!r}, the aggregation server speaks of {handle.query.id!r}")
        return handle

    def queries(self) -> list[Progress]:
        """How far all queries are, the latest first; also those that the key server has refused."""
        return [self._progress(status) for status in self._client.queries().queries]

    @staticmethod
    def _reserve(ledger: Ledger, query: Query) -> str | None:
        """Set apart what a query costs; how its account stood before."""
        before = next((entry.state for entry in ledger.entries() if entry.query == query.account), None)
        ledger.reserve(query.account, query.cost)
        return before

    def _is_decided(self, name: str) -> bool:
        try:
            return self._client.status(name).phase == wire.DECIDED
        except Refused as refusal:
            if refusal.refusal is Refusal.NOT_PERMITTED:
                raise
            return False  # it is unknown, or was refused, and so its id is free

    def _progress(self, status: wire.QueryStatus) -> Progress:
        if status.phase != wire.REFUSED:
            return self._found(status).progress
        query = _query(status)
        try:
            return self._found(self._client.status(query.id)).progress  # announced anew, meanwhile
        except Refused as refused:
            nothing = (None,) * query.cohorts
            return Progress(query, "refused", (0,) * query.cohorts, nothing, 0.0, refusal=str(refused))

    def _found(self, status: wire.QueryStatus) -> Handle:
        handle = self._handle(_query(status))
        handle.read(status)
        return handle

    def _handle(self, query: Query) -> Handle:
        return Handle(query, self._client, self._identity, ledger=self._ledger, watcher=self._watcher)


def _query(status: wire.QueryStatus) -> Query:
    try:
        return Query.from_bytes(status.query)
    except ValueError as error:
        raise BadReply(f"the aggregation server tells of a query that is none: {error}") from error
