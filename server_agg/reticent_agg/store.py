"""The aggregation server's store, as an interface: all that is kept, and what is atomic.

Each method that writes is one transaction, unless it says otherwise. It takes effect as a whole and is durable when
the method returns, or it raises and nothing has changed. If the connection to a database is lost while it commits, a
method raises `OSError` and may have taken effect; called again, it has the same effect as once. Transactions are
serialisable: of two calls that race, from any threads or processes, one sees all that the other did. Methods that read
see what was committed last.

A store decides nothing about the protocol. Where a transaction needs arithmetic or a check in its middle, the caller
passes a function; what the function raises rolls the transaction back.

Times are milliseconds of Unix time. `tests/agg/store_conformance` is the suite that every implementation must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire

__all__ = [
    "PATIENCE",
    "AggregationStore",
    "CohortBatch",
    "CohortState",
    "Contents",
    "CountersignedDeal",
    "DealtPhone",
    "DealtQuery",
    "EncryptedSum",
    "Lease",
    "MakeRequest",
    "NewQuery",
    "PutResult",
    "QueryLocked",
    "StoredQuery",
    "StoredRequest",
    "WorkItem",
]

PATIENCE = 0.2
"""Seconds to wait until a query can be closed: no contributions to it begin meanwhile, so that the others soon end."""


class NewQuery(NamedTuple):
    """A query to be announced."""

    digest: bytes
    id: str
    content: bytes
    owner: str | None
    announced: int


@dataclass(frozen=True)
class StoredQuery:
    """The state of a query.

    Args:
        digest: The digest of its content.
        id: Its name.
        owner: The analyst who announced it; None where analysts have no names.
        phase: ANNOUNCED, COLLECTING, CLOSING or DECIDED.
        announced: When it was announced.
        closes: When collecting ends, or ended; of an aborted query, at the latest. None before the countersignature.
        refused: Why the key server refuses to countersign it, or to decide it.
        pruned: Whether its phones and receipts are deleted.
    """

    digest: bytes
    id: str
    owner: str | None
    phase: wire.Phase.ValueType
    announced: int
    closes: int | None
    refused: Refused | None
    pruned: bool

    @property
    def is_rejected(self) -> bool:
        """Whether the key server has refused to countersign it: no phone has heard of it."""
        return self.phase == wire.ANNOUNCED and self.refused is not None

    @property
    def may_be_replaced(self) -> bool:
        """Whether its owner may announce a query of this id again. After CONFLICT, another query may have the id."""
        return self.is_rejected and self.refused is not None and self.refused.refusal is not Refusal.CONFLICT


class CountersignedDeal(NamedTuple):
    """The countersignature of a query, and the phones to which the key server has dealt it.

    Args:
        agreement_key: The key server's public key for this query.
        countersignature: Its signature.
        phones: All phones, each once.
        closes: When collecting ends.
        enough: For each cohort, the number of contributions that are enough.
        zero: Ciphertexts of a sum of nothing.
    """

    agreement_key: bytes
    countersignature: bytes
    phones: Sequence[wire.Dealt]
    closes: int
    enough: Sequence[int]
    zero: bytes


class DealtQuery(NamedTuple):
    """A query that collects, as dealt to one phone."""

    digest: bytes
    agreement_key: bytes
    countersignature: bytes
    cohort: int
    closes: int


class Contents(NamedTuple):
    """The parts of a receipt that distinguish contributions of one phone."""

    agreement_key: bytes
    ciphertexts_hash: bytes
    seeded: bool


class DealtPhone(NamedTuple):
    """A phone to which a query was dealt, with its contribution if there is one."""

    verify_key: bytes
    cohort: int
    contents: Contents | None


class EncryptedSum(NamedTuple):
    """The encrypted sum of a cohort, as partial sums to be added, with the number of its contributors in all."""

    cohort: int
    contributors: int
    partial_sums: tuple[bytes, ...]


MakeRequest = Callable[[EncryptedSum], wire.DecideHead]
"""Makes the request to decide a cohort from its sum."""


class CohortState(NamedTuple):
    """The number of contributors to a cohort, and its decision."""

    contributors: int
    decision: wire.Decision | None


@dataclass(frozen=True)
class CohortBatch:
    """Contributions to one cohort, all of them valid; a phone may be in a batch twice.

    Args:
        query: The digest of the query.
        cohort: The number of the cohort.
        receipts: One receipt a contribution.
        add: Returns a sum with the contributions at these places added to it.
    """

    query: bytes
    cohort: int
    receipts: Sequence[wire.Receipt]
    add: Callable[[bytes, Sequence[int]], bytes]


class PutResult(Enum):
    """The result of putting a contribution."""

    COUNTED = "it is in the sum, and has a receipt"
    REPEATED = "the same one was counted before"
    CONFLICT = "another one of this phone was counted before, and stands"
    LATE = "the query does not collect any more"
    BUSY = "the query is being closed"


class QueryLocked(OSError):
    """A query cannot be closed now: another process has locked it."""


class StoredRequest(NamedTuple):
    """A request to decide a cohort.

    Args:
        head: The head of the request, as it was when the query closed.
        burn: Whether it is sent without ciphertexts, because the query was aborted.
    """

    head: wire.DecideHead
    burn: bool


class WorkItem(NamedTuple):
    """Something to ask of the key server: the countersignature of a query, or the decision of a cohort.

    Args:
        query: The digest of the query.
        cohort: The cohort to decide; None to countersign the query.
        burn: Whether the cohort is burnt in any case.
    """

    query: bytes
    cohort: int | None = None
    burn: bool = False


class Lease(NamedTuple):
    """The right of one owner to work on an item, from `now` until it expires."""

    owner: str
    now: int
    expires: int


class AggregationStore(Protocol):
    """The storage of an aggregation server."""

    # Public keys.

    def put_key(self, key_id: bytes, content: bytes) -> None:
        """Keep a public key. The same one again changes nothing."""

    def key(self, key_id: bytes) -> bytes | None:
        """A public key, by its id."""

    # Queries.

    def announce(self, query: NewQuery) -> StoredQuery:
        """Insert a query, unless another one has its id; returns the one that has it afterwards.

        A rejected query of the same owner is replaced.
        """

    def query(self, digest: bytes) -> StoredQuery | None:
        """A query, by its digest."""

    def query_named(self, query_id: str) -> StoredQuery | None:
        """A query, by its id."""

    def content(self, digest: bytes) -> bytes | None:
        """The canonical bytes of a query."""

    def query_ids(self) -> list[str]:
        """The ids of all queries, the latest first."""

    def queries_of(self, owner: str | None, below: int, limit: int) -> list[tuple[int, str]]:
        """So many of an analyst's queries below a number: their numbers and ids, the latest first.

        Queries are numbered from 1 on, in the order of their announcements.
        """

    def open_queries(self, limit: int) -> list[StoredQuery]:
        """So many queries that are neither decided nor rejected, the latest first."""

    def countersign(self, digest: bytes, deal: CountersignedDeal) -> bool:
        """Begin to collect, or, if the query was aborted, close it at once with all cohorts to be burnt.

        Changes nothing and returns False unless the query is ANNOUNCED.
        """

    def reject(self, digest: bytes, refused: Refused) -> None:
        """Keep why the key server does not countersign a query. Changes nothing unless it is ANNOUNCED."""

    def prune(self, before: int, rows: int) -> list[str] | None:
        """Delete so many rows at most of phones and receipts of queries decided before then, or rejected queries.

        The same goes for lost queries whose collecting ended before then: nobody asks for their decisions any more.
        Returns the ids of the queries that are done with this, or None if there is nothing to delete. Rejected queries
        go as a whole if they were announced before then. A query is pruned from its first deleted row on, and its
        decisions stay.
        """

    # Phones and their contributions.

    def dealt_to(self, phone: bytes, now: int, after: int, limit: int) -> tuple[list[DealtQuery], int | None]:
        """A phone's queries among the next so many that collect, above a number, by their numbers.

        Returns them, and the number after which to continue; None if no other queries collect.
        """

    def dealt(self, digest: bytes, phones: Sequence[bytes]) -> dict[bytes, DealtPhone]:
        """Those of the phones to which a query was dealt."""

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        """Add contributions to the sums of their cohorts and keep their receipts, in one transaction for all batches.

        A phone is counted once a query: the first contribution stands. Returns a result for each receipt of each batch.
        Batches of a query that another transaction has locked are not put: the others do not wait for it.
        """

    # Closing, and decisions.

    def due(self, now: int) -> list[bytes]:
        """The digests of the queries to close: their time is over, or each cohort has enough contributions."""

    def next_due(self) -> int | None:
        """The next time at which collecting ends."""

    def close_query(self, digest: bytes, make_request: MakeRequest, now: int, *, patience: float = PATIENCE) -> bool:
        """Close a query that collects, and keep the request to decide of each cohort; False if it does not collect.

        Collecting has ended now, unless its time was over before. The sums are deleted: what is still needed of them is
        in the requests.

        Raises:
            QueryLocked: Another process closes it, or has not let go of it within so many seconds.
        """

    def abort(self, query_id: str) -> StoredQuery | None:
        """Close a query, and have all cohorts burnt that are not decided; returns the query as it is afterwards.

        An uncountersigned query closes when it is countersigned. A rejected one does not change.
        """

    def abort_restored(self) -> list[str]:
        """Abort all open queries of a store that was restored from a copy; returns their ids.

        Their sums may have been sent after the copy was made, so no burnt cohort of theirs is ever reported to phones.
        """

    def cohorts(self, digest: bytes) -> list[CohortState]:
        """The cohorts of a query, in order; none before the countersignature."""

    def receipts(self, digest: bytes, cohort: int, after: bytes, limit: int) -> list[wire.Receipt]:
        """So many receipts of a cohort, by their phones, after a phone."""

    def decide(self, decision: wire.Decision, check: Callable[[StoredRequest], None], now: int) -> wire.Decision | None:
        """Keep a decision, unless there is one; returns the one that stands, or None where there was no request.

        `check` gets the request, and raises if the decision does not answer it. With its last cohort, a
        query is decided. Phones never see that a cohort was burnt whose ciphertexts were sent.
        """

    def decision_for_phones(self, digest: bytes, cohort: int) -> wire.Decision | None:
        """The decision about a cohort, unless it is kept from phones."""

    def withdraw_burn(self, digest: bytes, cohort: int) -> None:
        """Have a request sent as it was before an abort."""

    def lose(self, digest: bytes, refused: Refused) -> None:
        """Keep why the key server will never decide a query that is closing. Until it is pruned, it may still do."""

    # Work for the link to the key server.

    def to_countersign(self) -> list[WorkItem]:
        """The queries to countersign, in the order of their announcements."""

    def to_decide(self) -> list[WorkItem]:
        """The cohorts to decide, in the order of their queries."""

    def claim(self, item: WorkItem, lease: Lease) -> wire.CountersignRequest | wire.DecideHead | None:
        """Lease an item, and return what is to be sent; None where it is done, or leased to another owner.

        An expired lease counts for nothing, and neither does one of the same owner. Each claim is an attempt, and is
        counted. If ciphertexts are about to be sent, that is durable when this returns.
        """

    def renew(self, item: WorkItem, lease: Lease) -> bool:
        """Prolong the owner's lease of an item; False if the item is done, or leased to another owner now."""

    def release(self, item: WorkItem, owner: str) -> None:
        """End the owner's lease of an item. The countersignature, rejection or decision ends every lease of it."""

    def attempts(self, digest: bytes) -> int:
        """The most attempts at one item of a query that is not done; failures and restarts do not reset the number."""

    def check_claim(self) -> None:
        """Make sure that this process may still serve; claim the right again if the connection that held it is lost.

        Raises:
            OSError: The database is away, or too many processes serve from it.
            BadStore: It was upgraded meanwhile, or restored from a copy.
        """

    def clock(self) -> int | None:
        """The time of the machine with the database, in milliseconds; None if that is this machine."""

    def close(self) -> None:
        """Close the store."""
