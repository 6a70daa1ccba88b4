"""A failure in the middle leaves nothing, and what is finished is there after a restart."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from hashlib import sha256

import pytest

from reticent.v1 import counting_pb2 as wire
from reticent_agg.store import (
    AggregationStore,
    CohortBatch,
    CohortState,
    Contents,
    DealtPhone,
    EncryptedSum,
    PutResult,
    WorkItem,
)
from tests.agg.store_conformance.values import (
    CLOSES,
    DEADLINE,
    PHONES,
    Broken,
    Opener,
    accept,
    batch,
    closed,
    collecting,
    deal_of,
    decision_of,
    fail,
    head_of,
    known,
    lease,
    new_query,
    opened,
    phone,
    phones_in,
    put,
    receipted,
    request_of,
)


def check_a_batch_that_fails_leaves_nothing_of_any_batch(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store, cohorts=2)
        good, bad = batch(digest, 0, 2, 4), batch(digest, 1, 3, cohort=1)
        with pytest.raises(Broken):
            store.put_contributions([good, CohortBatch(bad.query, bad.cohort, bad.receipts, fail)], 0)
        assert [each.contributors for each in store.cohorts(digest)] == [0, 0]
        assert (receipted(store, digest, 0), receipted(store, digest, 1)) == ([], [])
        assert store.put_contributions([good, bad], 0) == [[PutResult.COUNTED] * 3, [PutResult.COUNTED] * 2]
        closed(store, digest)
        assert (phones_in(head_of(store, digest, 0)), phones_in(head_of(store, digest, 1))) == ({0, 2, 4}, {1, 3})


def check_a_close_that_fails_leaves_the_query_collecting(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store, cohorts=2)
        put(store, digest, 0, 2)

        def fail_at_the_second(cohort: EncryptedSum) -> wire.DecideHead:
            if cohort.cohort == 1:
                raise Broken
            return request_of(digest, cohort)

        with pytest.raises(Broken):
            store.close_query(digest, fail_at_the_second, CLOSES)
        assert known(store.query(digest)).phase == wire.COLLECTING
        assert store.to_decide() == []
        assert put(store, digest, 4) == [PutResult.COUNTED]
        closed(store, digest)
        assert phones_in(head_of(store, digest)) == {0, 2, 4}


def check_a_decision_that_is_refused_leaves_nothing(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store)
        closed(store, digest)
        with pytest.raises(Broken):
            store.decide(decision_of(digest), fail, 5)
        assert store.to_decide() == [WorkItem(digest, 0)]
        assert store.cohorts(digest) == [CohortState(0, None)]
        assert known(store.query(digest)).phase == wire.CLOSING


def check_a_deal_that_fails_leaves_the_query_announced(open_store: Opener) -> None:
    with opened(open_store) as store:
        query, deal = store.announce(new_query()), deal_of()
        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
            store.countersign(query.digest, deal._replace(phones=[*deal.phones, deal.phones[0]]))
        assert store.to_countersign() == [WorkItem(query.digest)]
        assert store.dealt(query.digest, [phone(0)]) == {}
        assert store.cohorts(query.digest) == []
        assert store.countersign(query.digest, deal)


def _killed_in_a_transaction(open_store: Opener, digest: bytes) -> None:
    """Run in a process of its own: one contribution is kept, and another one is being kept when the process dies."""
    store = open_store()
    put(store, digest, 0)
    store.put_contributions([CohortBatch(digest, 0, batch(digest, 1).receipts, _die)], 0)


def _die(_ciphertexts: bytes, _places: Sequence[int]) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def check_a_process_that_is_killed_leaves_what_it_has_finished_and_nothing_else(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store)
    process = multiprocessing.get_context("spawn").Process(target=_killed_in_a_transaction, args=(open_store, digest))
    process.start()
    process.join(DEADLINE)
    assert process.exitcode == -signal.SIGKILL
    with opened(open_store) as store:
        assert receipted(store, digest) == [0]
        assert put(store, digest, 0, 1) == [PutResult.REPEATED, PutResult.COUNTED]
        closed(store, digest)
        assert phones_in(head_of(store, digest)) == {0, 1}


def check_all_is_there_after_opening_the_store_again(open_store: Opener) -> None:
    with opened(open_store) as store:
        store.put_key(b"id", b"key")
        store.put_key(b"id", b"another")
        waiting = store.announce(new_query("waiting"))
        store.claim(WorkItem(waiting.digest), lease("one"))
        digest = collecting(store, cohorts=2)
        store.put_contributions([batch(digest, 0, 2), batch(digest, 1, cohort=1)], 0)
        before = _seen(store, digest)
    with opened(open_store) as store:
        assert _seen(store, digest) == before
        assert before["key"] == b"key"
        assert before["dealt"] == {
            phone(0): DealtPhone(phone(0) * 2, 0, Contents(bytes(32), sha256(bytes(2)).digest(), seeded=False)),
            phone(4): DealtPhone(phone(4) * 2, 0, None),
        }
        assert store.claim(WorkItem(waiting.digest), lease("two")) is None
        assert put(store, digest, 0) == [PutResult.REPEATED]
        closed(store, digest)
        head = head_of(store, digest)
        assert phones_in(head) == {0, 2}
    with opened(open_store) as store:
        assert head_of(store, digest) == head
        store.decide(decision_of(digest), accept, 5)
    with opened(open_store) as store:
        assert store.decision_for_phones(digest, 0) == decision_of(digest)
        assert store.to_decide() == [WorkItem(digest, 1)]


def _seen(store: AggregationStore, digest: bytes) -> dict[str, object]:
    return {
        "key": store.key(b"id"),
        "query": store.query(digest),
        "content": store.content(digest),
        "ids": store.query_ids(),
        "to countersign": store.to_countersign(),
        "dealt to": store.dealt_to(phone(0), 0, 0, 100),
        "dealt": store.dealt(digest, [phone(0), phone(4), phone(PHONES)]),
        "cohorts": store.cohorts(digest),
        "receipts": store.receipts(digest, 0, b"", 10),
    }
