"""Queries, and the order of lists."""

from __future__ import annotations

from functools import partial

from reticent.protocol import Refusal, Refused
from reticent_agg.store import (
    AggregationStore,
    NewQuery,
    StoredQuery,
    WorkItem,
)
from tests.agg.store_conformance.values import (
    CLOSES,
    PHONES,
    ROUNDS,
    Opener,
    batch,
    closed,
    collecting,
    deal_of,
    known,
    lease,
    new_query,
    opened,
    phone,
    put,
    race,
    receipted,
    request_of,
)


def check_one_of_two_queries_of_a_name_stands(open_store: Opener) -> None:
    for each in range(ROUNDS):
        queries = [new_query(f"q{each}", content=bytes([each, content])) for content in range(2)]
        found = race(open_store, *(partial(_announce, query=query) for query in queries))
        assert found[0] == found[1]
        assert found[0].digest in {query.digest for query in queries}
        with opened(open_store) as store:
            assert store.query_named(f"q{each}") == found[0]


def _announce(store: AggregationStore, query: NewQuery) -> StoredQuery:
    return store.announce(query)


def check_a_rejected_query_gives_way_to_another_of_its_owner(open_store: Opener) -> None:
    with opened(open_store) as store:
        first = store.announce(new_query())
        store.reject(first.digest, Refused(Refusal.BAD_QUERY, "too dear"))
        rejected = known(store.query_named("q"))
        assert rejected.is_rejected
        assert str(rejected.refused) == "BAD_QUERY: too dear"
        assert store.to_countersign() == []
        assert store.claim(WorkItem(first.digest), lease()) is None
        assert store.announce(new_query(owner="bob", content=b"bob's")).digest == first.digest
        second = store.announce(new_query(content=b"cheaper"))
        assert (second.digest, second.refused) == (new_query(content=b"cheaper").digest, None)
        assert store.query(first.digest) is None
        assert store.countersign(second.digest, deal_of())
        store.reject(second.digest, Refused(Refusal.BAD_QUERY))  # too late
        assert known(store.query_named("q")).refused is None


def check_a_countersignature_counts_once(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store)
        put(store, digest, 0)
        assert not store.countersign(digest, deal_of(closes=CLOSES + 5))
        assert known(store.query(digest)).closes == CLOSES
        assert not store.countersign(b"another", deal_of())
        assert receipted(store, digest) == [0]


def check_lists_are_in_order(open_store: Opener) -> None:
    with opened(open_store) as store:
        names = ["b", "a", "d", "c"]
        digests = [store.announce(new_query(name, owner=None if name == "d" else "ann")).digest for name in names]
        assert store.query_ids() == names[::-1]
        assert (store.query_ids_of("ann"), store.query_ids_of(None)) == (["c", "a", "b"], ["d"])
        assert store.to_countersign() == [WorkItem(digest) for digest in digests]
        for digest, closes in zip(digests, (CLOSES, CLOSES + 2, CLOSES, CLOSES + 1), strict=True):
            store.countersign(digest, deal_of(2, closes=closes))
        put(store, digests[0], 0)
        order = [each.digest for each in store.dealt_to(phone(0), 0)]
        assert order == [digests[2], digests[3], digests[1], digests[0]]
        assert [each.digest for each in store.dealt_to(phone(0), CLOSES + 1)] == [digests[1]]
        assert store.dealt_to(phone(PHONES), 0) == []
        assert (store.due(CLOSES - 1), store.due(CLOSES + 1)) == ([], [digests[0], digests[2], digests[3]])
        assert store.next_due() == CLOSES
        for digest in reversed(digests):
            closed(store, digest)
        assert store.to_decide() == [WorkItem(digest, cohort) for digest in digests for cohort in (0, 1)]
        assert store.next_due() is None


def check_a_query_is_due_when_each_cohort_has_enough(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store, cohorts=2, enough=2)
        store.put_contributions([batch(digest, 0, 2), batch(digest, 1, cohort=1)], 0)
        assert store.due(0) == []
        store.put_contributions([batch(digest, 3, cohort=1)], 0)
        assert store.due(0) == [digest]
        closed(store, digest)
        assert store.due(CLOSES) == []
        assert not store.close_query(digest, partial(request_of, digest))


def check_receipts_come_in_pages_by_their_phones(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store)
        for number in (7, 3, 9, 0, 5):
            put(store, digest, number)
        found, after = [], b""
        while page := store.receipts(digest, 0, after, 2):
            assert len(page) <= 2
            found += page
            after = page[-1].phone
        assert found == [batch(digest, number).receipts[0] for number in (0, 3, 5, 7, 9)]
