"""What the conformance suite puts into a store: sums are numbers here, and each phone has a digit of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from typing import NoReturn, TypeVar

from reticent.v1 import counting_pb2 as wire
from reticent_agg.store import (
    AggregationStore,
    CohortBatch,
    CountersignedDeal,
    EncryptedSum,
    Lease,
    NewQuery,
    PutResult,
    StoredQuery,
    StoredRequest,
    WorkItem,
)

Opener = Callable[[], AggregationStore]
Result = TypeVar("Result")

DIGIT = 8  # bits of the sum for each phone: whoever is counted twice can be seen
CLOSES = 1000
PHONES = 12
DEADLINE = 60.0
ROUNDS = 8


def phone(number: int) -> bytes:
    return number.to_bytes(16, "big")


def new_query(query_id: str = "q", *, owner: str | None = "ann", announced: int = 1, content: bytes = b"") -> NewQuery:
    content = content or query_id.encode()
    return NewQuery(sha256(content).digest(), query_id, content, owner, announced)


def deal_of(cohorts: int = 1, enough: int = PHONES, closes: int = CLOSES) -> CountersignedDeal:
    phones = [
        wire.Dealt(phone=phone(each), verify_key=phone(each) * 2, cohort=each % cohorts) for each in range(PHONES)
    ]
    return CountersignedDeal(b"agreement", b"signature", phones, closes, [enough] * cohorts, bytes(PHONES))


def collecting(
    store: AggregationStore, query_id: str = "q", *, cohorts: int = 1, enough: int = PHONES, closes: int = CLOSES
) -> bytes:
    """A query that was announced and dealt: its digest."""
    query = store.announce(new_query(query_id))
    assert store.countersign(query.digest, deal_of(cohorts, enough, closes))
    return query.digest


def batch(digest: bytes, *numbers: int, cohort: int = 0, attempt: int = 0) -> CohortBatch:
    """Contributions of these phones; another attempt has other contents."""
    receipts = [
        wire.Receipt(
            phone=phone(number),
            agreement_key=bytes([attempt]) * 32,
            ciphertexts_hash=sha256(bytes([number, attempt])).digest(),
            seeded=bool(attempt),
            signature=b"signature",
        )
        for number in numbers
    ]

    def add(ciphertexts: bytes, places: Sequence[int]) -> bytes:
        total = int.from_bytes(ciphertexts, "big") + sum(1 << DIGIT * numbers[place] for place in places)
        return total.to_bytes(PHONES, "big")

    return CohortBatch(digest, cohort, receipts, add)


def put(store: AggregationStore, digest: bytes, *numbers: int, attempt: int = 0, now: int = 0) -> list[PutResult]:
    """The results of one batch."""
    (results,) = store.put_contributions([batch(digest, *numbers, attempt=attempt)], now)
    return results


def request_of(digest: bytes, cohort: EncryptedSum) -> wire.DecideHead:
    total = sum(int.from_bytes(each, "big") for each in cohort.partial_sums).to_bytes(PHONES, "big")
    return wire.DecideHead(query=digest, cohort=cohort.cohort, contributors=cohort.contributors, ciphertexts=total)


def closed(store: AggregationStore, digest: bytes) -> None:
    assert store.close_query(digest, partial(request_of, digest), CLOSES)


def lease(owner: str = "one", now: int = 0, length: int = 100) -> Lease:
    return Lease(owner, now, now + length)


def head_of(store: AggregationStore, digest: bytes, cohort: int = 0) -> wire.DecideHead:
    """What is sent about a cohort."""
    head = store.claim(WorkItem(digest, cohort), lease("head_of"))
    assert isinstance(head, wire.DecideHead)
    store.release(WorkItem(digest, cohort), "head_of")
    return head


def phones_in(head: wire.DecideHead) -> set[int]:
    """The phones in a sum, each of them once."""
    digits = list(reversed(head.ciphertexts))
    assert set(digits) <= {0, 1}, f"some phones are counted more than once: {digits}"
    assert sum(digits) == head.contributors
    return {number for number, digit in enumerate(digits) if digit}


def receipted(store: AggregationStore, digest: bytes, cohort: int = 0) -> list[int]:
    return [int.from_bytes(each.phone, "big") for each in store.receipts(digest, cohort, b"", 1000)]


def decision_of(digest: bytes, cohort: int = 0, outcome: wire.Outcome.ValueType = wire.RELEASED) -> wire.Decision:
    return wire.Decision(query=digest, cohort=cohort, outcome=outcome, contributors=3)


def accept(_: StoredRequest) -> None:
    """The check of a decision that answers its request."""


def known(query: StoredQuery | None) -> StoredQuery:
    assert query is not None
    return query


@contextlib.contextmanager
def opened(open_store: Opener) -> Iterator[AggregationStore]:
    with contextlib.closing(open_store()) as store:
        yield store


def race(open_store: Opener, *works: Callable[[AggregationStore], Result]) -> list[Result]:
    """Run each piece of work in a thread of its own, with a store of its own, all at the same moment."""
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[AggregationStore], Result]) -> Result:
        with opened(open_store) as store:
            barrier.wait(DEADLINE)
            return work(store)

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(run, works))


class Broken(Exception):  # what a test raises within a transaction
    """The caller's function fails."""


def fail(*_: object) -> NoReturn:
    raise Broken
