"""What the aggregation server does, without any network: messages in, messages out, everything else on disk."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from reticent.privacy import Query
from reticent.protocol import Refused
from reticent.protocol.keys import KEY_BYTES
from reticent.storage.database import Reader
from reticent.times import Now
from reticent.v1 import counting_pb2 as wire
from reticent_agg.counting.closing import Closing, Undecided
from reticent_agg.counting.collection import Collection, Outcome
from reticent_agg.counting.queries import Queries
from reticent_agg.counting.replies import Telling
from reticent_agg.database import opened

__all__ = ["AggregationServer"]

ASK_AGAIN = dt.timedelta(seconds=60)
"""How long phones wait before they ask again for what they are asked."""


class AggregationServer:
    """Announces queries, collects what phones contribute, and has it decided.

    What a method returns is on disk. Methods may be called from several threads, and several servers may share a file:
    those that tell do not wait for those that change.

    Args:
        path: The file of its state; None keeps it in memory.
        identity: The key server's public Ed25519 key, by which its signatures are known.
        now: The time, in UTC.
        rng: What makes a sum look like any other: `reticent.randomness.secure()`.
        simulation: Accept keys that are only good for simulation as well.
        ask_again: How long phones wait before they ask again.

    Raises:
        BadStore: The file is another one's.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        identity: bytes,
        now: Now,
        rng: np.random.Generator,
        simulation: bool = False,
        ask_again: dt.timedelta = ASK_AGAIN,
    ) -> None:
        if len(identity) != KEY_BYTES:
            raise ValueError(f"the key server's identity has {KEY_BYTES} bytes: got {len(identity)}")
        self._changed = opened(path)
        self._read = self._changed if path is None else Reader(path)
        self._queries = Queries(self._changed, identity, now, simulation=simulation)
        self._collection = Collection(self._changed, self._queries, now)
        self._closing = Closing(self._changed, self._queries, identity, now, rng)
        self._telling = Telling(self._read, now, ask_again)

    # For phones.

    def announcements(self, asked: wire.AnnouncementsRequest) -> wire.AnnouncementsReply:
        """What a phone is asked at present."""
        return self._telling.announcements(asked.phone)

    def query(self, asked: wire.QueryRequest) -> wire.QueryReply:
        """A query that was dealt to the phone that asks for it."""
        return self._telling.query(asked)

    def key(self, asked: wire.KeyRequest) -> wire.KeyReply:
        """A public key, by its id; KEY_RETIRED if it is not known."""
        return wire.KeyReply(public_key=self._queries.key(asked.key_id).to_bytes())

    def contribute(self, contributions: Sequence[wire.Contribution]) -> list[Outcome]:
        """What becomes of each contribution: an acknowledgement, or the reason why there is none.

        Raises:
            OSError: The disk is full, or fails: none of these is acknowledged, and each may be sent again.
        """
        return self._collection.contribute(contributions)

    def decisions(self, asked: wire.DecisionsRequest) -> wire.DecisionsReply:
        """Those of the wanted decisions that are made."""
        return self._telling.decisions(asked.wanted)

    # For analysts, by their names; None where they have none.

    def announce(self, asked: wire.AnnounceRequest, analyst: str | None = None) -> wire.QueryStatus:
        """Write a query down; the key server is to be asked for its countersignature then. The same again is safe.

        Raises:
            Refused: BAD_QUERY, KEY_RETIRED or NOT_ENROLLED_ENOUGH (see `learned`), or CONFLICT with another one of this
                id.
        """
        return self._telling.status(self._queries.announce(asked.query, analyst).id)

    def status(self, asked: wire.StatusRequest, analyst: str | None = None) -> wire.QueryStatus:
        """Where a query is; refused for the key server's reason if it would not countersign it."""
        self._telling.refuse_others(asked.id, analyst)
        return self._telling.status(asked.id)

    def abort(self, asked: wire.AbortRequest, analyst: str | None = None) -> wire.QueryStatus:
        """Close a query now, and have every cohort burnt that is not decided yet."""
        self._telling.refuse_others(asked.id, analyst)
        self._closing.abort(asked.id)
        return self._telling.status(asked.id)

    def queries(self, analyst: str | None = None) -> wire.ListReply:
        """The analyst's queries, the latest first."""
        return self._telling.queries(analyst)

    # For the link to the key server.

    def learned(self, terms: wire.Terms) -> None:
        """Take in who could be asked now, and the key that queries may name from now on."""
        self._queries.learned(terms)

    def can_judge(self, query: Query) -> bool:
        """Whether its announcement can be answered by what the key server has said so far."""
        return self._queries.can_judge(query)

    def uncountersigned(self) -> list[Query]:
        """What the key server must be asked to countersign; what is no query any more is refused."""
        return self._queries.uncountersigned()

    def countersigned(self, query: Query, deals: Iterable[wire.Deal]) -> None:
        """Begin to collect: the key server has countersigned a query, and dealt phones to it.

        Raises:
            BadAnswer: The countersignature is wrong, or these are not the phones of the query.
        """
        with self._changed.transaction() as run:
            if self._queries.countersigned(run, query, deals):
                self._closing.countersigned_late(run, query.digest)

    def refused(self, query: Query, refused: Refused) -> None:
        """The key server will not countersign a query."""
        self._queries.refused(query, refused)

    def close_due(self) -> list[str]:
        """Close the queries whose time is over, and those with enough contributions; their ids."""
        return self._closing.close_due()

    def next_due(self) -> dt.datetime | None:
        """When the time of a query is over next."""
        return self._closing.next_due()

    def undecided(self) -> list[Undecided]:
        """The cohorts that the key server must be asked to decide."""
        return self._closing.undecided()

    def request(self, digest: bytes, cohort: int) -> wire.DecideHead | None:
        """What is sent to the key server about a cohort, as of now: an abort changes it. None once it is decided."""
        return self._closing.request(digest, cohort)

    def requests(self) -> list[wire.DecideHead]:
        """All that the key server must be asked to decide."""
        return self._closing.requests()

    def asking(self, head: wire.DecideHead) -> Iterator[wire.DecideRequest]:
        """The messages of a request to decide: the head, then its receipts."""
        return self._closing.asking(head)

    def decided(self, decision: wire.Decision) -> None:
        """Keep a decision.

        Raises:
            BadAnswer: It is not signed by the key server's identity, or about nothing that it was asked.
        """
        self._closing.decided(decision)

    def not_decided(self, head: wire.DecideHead, refused: Refused) -> None:
        """The key server refuses to decide; what it is asked next time may be what it was asked before an abort."""
        self._closing.not_decided(head, refused)

    def name(self, digest: bytes) -> str:
        """The id of a query of which a cohort is to be decided."""
        return self._closing.name(digest)

    # For its operator.

    def abort_any(self, query_id: str) -> wire.QueryStatus:
        """Abort a query, whoever owns it.

        Raises:
            Refused: There is no such query, or the key server has not countersigned it.
        """
        self._closing.abort(query_id)
        return self._telling.status(query_id)

    def claim(self) -> AbstractContextManager[None]:
        """Be the one process that serves from the file; others may still look at it, and prune it.

        Raises:
            InUse: Another one does.
        """
        return self._changed.claim()

    def close(self) -> None:
        """Let go of the file."""
        self._changed.close()
        self._read.close()
