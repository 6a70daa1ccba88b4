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
    accept,
    batch,
    closed,
    collecting,
    deal_of,
    decision_of,
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


def check_open_queries_are_listed_until_they_are_decided_or_rejected(open_store: Opener) -> None:
    with opened(open_store) as store:
        announced, rejected = (store.announce(new_query(name)) for name in "ab")
        store.reject(rejected.digest, Refused(Refusal.BAD_QUERY))
        first, second, third = (collecting(store, name) for name in "cde")
        for each in (second, third):
            closed(store, each)
        store.decide(decision_of(third), accept, 0)
        assert [query.digest for query in store.open_queries(9)] == [second, first, announced.digest]
        assert [query.id for query in store.open_queries(2)] == ["d", "c"]
        assert store.open_queries(1) == [store.query(second)]


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
        assert store.queries_of("ann", 10, 10) == [(4, "c"), (2, "a"), (1, "b")]
        assert (store.queries_of("ann", 10, 2), store.queries_of("ann", 2, 2)) == ([(4, "c"), (2, "a")], [(1, "b")])
        assert (store.queries_of(None, 10, 10), store.queries_of("bob", 10, 10)) == ([(3, "d")], [])
        assert store.to_countersign() == [WorkItem(digest) for digest in digests]
        for digest, closes in zip(digests, (CLOSES, CLOSES + 2, CLOSES, CLOSES + 1), strict=True):
            store.countersign(digest, deal_of(2, closes=closes))
        assert dealt_in_pages(store, phone(0), 0) == [[digests[0], digests[1], digests[2]], [digests[3]]]
        assert dealt_in_pages(store, phone(0), CLOSES + 1) == [[digests[1]], []]
        assert dealt_in_pages(store, phone(PHONES), 0) == [[], []]  # other phones' queries
        assert (store.due(CLOSES - 1), store.due(CLOSES + 1)) == ([], [digests[0], digests[2], digests[3]])
        assert store.next_due() == CLOSES
        for digest in reversed(digests):
            closed(store, digest)
        assert store.to_decide() == [WorkItem(digest, cohort) for digest in digests for cohort in (0, 1)]
        assert store.next_due() is None
        assert dealt_in_pages(store, phone(0), 0) == [[]]


def dealt_in_pages(store: AggregationStore, phone: bytes, now: int) -> list[list[bytes]]:
    """The digests of a phone's queries, in pages that cover three open queries each."""
    pages: list[list[bytes]] = []
    after: int | None = 0
    while after is not None:
        dealt, after = store.dealt_to(phone, now, after, 3)
        pages.append([each.digest for each in dealt])
    return pages


def check_a_query_is_due_when_each_cohort_has_enough(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store, cohorts=2, enough=2)
        store.put_contributions([batch(digest, 0, 2), batch(digest, 1, cohort=1)], 0)
        assert store.due(0) == []
        store.put_contributions([batch(digest, 3, cohort=1)], 0)
        assert store.due(0) == [digest]
        closed(store, digest)
        assert store.due(CLOSES) == []
        assert not store.close_query(digest, partial(request_of, digest), CLOSES)


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
