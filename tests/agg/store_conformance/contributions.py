"""Each phone is counted once."""

from __future__ import annotations

import contextlib
import threading
from functools import partial

from reticent.v1 import counting_pb2 as wire
from reticent_agg.store import (
    AggregationStore,
    EncryptedSum,
    PutResult,
    QueryLocked,
)
from tests.agg.store_conformance.values import (
    CLOSES,
    DEADLINE,
    PHONES,
    ROUNDS,
    Opener,
    batch,
    closed,
    collecting,
    head_of,
    opened,
    phones_in,
    put,
    race,
    receipted,
    request_of,
)


def check_the_first_contribution_of_a_phone_stands(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store)
        assert put(store, digest, 1, 2) == [PutResult.COUNTED] * 2
        assert put(store, digest, 1, 3) == [PutResult.REPEATED, PutResult.COUNTED]
        assert put(store, digest, 1, 4, attempt=1) == [PutResult.CONFLICT, PutResult.COUNTED]
        assert put(store, digest, 5, 5) == [PutResult.COUNTED, PutResult.REPEATED]  # twice in one batch
        closed(store, digest)
        assert put(store, digest, 1, 6) == [PutResult.REPEATED, PutResult.LATE]
        assert put(store, digest, 1, attempt=1) == [PutResult.CONFLICT]
        assert phones_in(head_of(store, digest)) == {1, 2, 3, 4, 5}
        assert receipted(store, digest) == [1, 2, 3, 4, 5]


def check_one_of_two_that_race_for_a_phone_is_counted(open_store: Opener) -> None:
    with opened(open_store) as store:
        same, other = (collecting(store, query_id) for query_id in ("same", "other"))

        for number in range(ROUNDS):
            once = partial(_put, digest=same, number=number)
            (first,), (second,) = race(open_store, once, once)
            assert {first, second} == {PutResult.COUNTED, PutResult.REPEATED}
            works = (partial(_put, digest=other, number=number, attempt=attempt) for attempt in (0, 1))
            (first,), (second,) = race(open_store, *works)
            assert {first, second} == {PutResult.COUNTED, PutResult.CONFLICT}
        for digest in (same, other):
            closed(store, digest)
            assert phones_in(head_of(store, digest)) == set(range(ROUNDS))


def _put(store: AggregationStore, digest: bytes, number: int, attempt: int = 0) -> list[PutResult]:
    return put(store, digest, number, attempt=attempt)


def check_what_races_with_the_close_is_counted_once_or_late(open_store: Opener) -> None:
    with opened(open_store) as store:
        for each in range(ROUNDS):
            digest = collecting(store, f"q{each}")
            inside = threading.Event()

            results, _ = race(
                open_store,
                partial(_contribute, digest=digest, inside=inside),
                partial(_close, digest=digest, inside=inside),
            )
            counted = {number for number, result in enumerate(results) if result is PutResult.COUNTED}
            assert set(results) <= {PutResult.COUNTED, PutResult.BUSY, PutResult.LATE}
            assert phones_in(head_of(store, digest)) == counted
            assert receipted(store, digest) == sorted(counted)


def _contribute(store: AggregationStore, digest: bytes, inside: threading.Event) -> list[PutResult]:
    """All phones, the later half when the other thread is closing."""
    results = put(store, digest, 0, 1)
    for number in range(2, PHONES):
        if number == PHONES // 2:
            assert inside.wait(DEADLINE)
        results += put(store, digest, number)
    return results


def _close(store: AggregationStore, digest: bytes, inside: threading.Event) -> list[PutResult]:
    def make_request(cohort: EncryptedSum) -> wire.DecideHead:
        inside.set()
        return request_of(digest, cohort)

    assert store.close_query(digest, make_request, CLOSES)
    return []


def check_one_of_two_that_close_a_query_closes_it(open_store: Opener) -> None:
    with opened(open_store) as store:
        for each in range(ROUNDS):
            digest = collecting(store, f"q{each}", cohorts=2)
            store.put_contributions([batch(digest, 0, 2), batch(digest, 1, cohort=1)], 0)
            results = race(open_store, partial(_closes, digest=digest), partial(_closes, digest=digest))
            assert sorted(results) == [False, True]
            assert [phones_in(head_of(store, digest, cohort)) for cohort in (0, 1)] == [{0, 2}, {1}]


def _closes(store: AggregationStore, digest: bytes) -> bool:
    with contextlib.suppress(QueryLocked):  # the other one has it
        return store.close_query(digest, partial(request_of, digest), CLOSES)
    return False


def check_time_is_over_at_the_end_whether_or_not_the_query_was_closed(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store)
        assert put(store, digest, 0, now=CLOSES - 1) == [PutResult.COUNTED]
        assert put(store, digest, 1, now=CLOSES) == [PutResult.LATE]
