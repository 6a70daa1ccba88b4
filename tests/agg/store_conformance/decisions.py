"""Decisions, aborts, and leases."""

from __future__ import annotations

from functools import partial

from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_agg.store import (
    AggregationStore,
    CohortState,
    PutResult,
    StoredRequest,
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
    head_of,
    known,
    lease,
    new_query,
    opened,
    phone,
    put,
    race,
    receipted,
)


def check_a_cohort_is_decided_once(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store, cohorts=2)
        assert store.decide(decision_of(digest), accept, 5) is None  # nothing was requested
        closed(store, digest)
        first, second = race(
            open_store,
            *(partial(_decide, decision=decision_of(digest, 0, each)) for each in (wire.RELEASED, wire.VOID)),
        )
        assert first == second == store.decision_for_phones(digest, 0)
        assert store.decide(decision_of(digest), accept, 6) == first
        assert known(store.query(digest)).phase == wire.CLOSING
        assert store.to_decide() == [WorkItem(digest, 1)]
        store.decide(decision_of(digest, 1), accept, 7)
        assert known(store.query(digest)).phase == wire.DECIDED
        assert store.cohorts(digest) == [CohortState(0, first), CohortState(0, decision_of(digest, 1))]


def _decide(store: AggregationStore, decision: wire.Decision) -> wire.Decision | None:
    return store.decide(decision, accept, 5)


def check_an_abort_burns_what_is_not_decided(open_store: Opener) -> None:
    with opened(open_store) as store:
        assert store.abort("q") is None
        digest = collecting(store, cohorts=2)
        put(store, digest, 0, 2)
        assert known(store.abort("q")).phase == wire.CLOSING
        assert store.to_decide() == [WorkItem(digest, 0, burn=True), WorkItem(digest, 1, burn=True)]
        assert (head_of(store, digest).ciphertexts, head_of(store, digest).contributors) == (b"", 2)
        store.decide(decision_of(digest, 0, wire.BURNT), accept, 5)
        assert store.decision_for_phones(digest, 0) is not None  # no ciphertexts were sent
        assert put(store, digest, 0, 1) == [PutResult.REPEATED, PutResult.LATE]


def check_phones_do_not_see_burnt_what_was_sent(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store)
        put(store, digest, 0, 1)
        closed(store, digest)
        sent = head_of(store, digest)
        assert sent.ciphertexts
        store.abort("q")
        assert head_of(store, digest) == wire.DecideHead(query=digest, cohort=0, contributors=2)
        store.withdraw_burn(digest, 0)
        assert head_of(store, digest) == sent
        requests: list[StoredRequest] = []
        store.decide(decision_of(digest, 0, wire.BURNT), requests.append, 5)
        assert requests == [StoredRequest(sent, burn=False)]
        assert store.decision_for_phones(digest, 0) is None
        assert [each.decision for each in store.cohorts(digest)] == [decision_of(digest, 0, wire.BURNT)]


def check_an_abort_before_the_countersignature_burns_then(open_store: Opener) -> None:
    with opened(open_store) as store:
        query = store.announce(new_query())
        assert known(store.abort("q")).phase == wire.ANNOUNCED
        assert store.countersign(query.digest, deal_of(2))
        assert known(store.query(query.digest)).phase == wire.CLOSING
        assert put(store, query.digest, 0) == [PutResult.LATE]
        assert [item.burn for item in store.to_decide()] == [True, True]
        rejected = store.announce(new_query("r"))
        store.reject(rejected.digest, Refused(Refusal.BAD_QUERY))
        assert known(store.abort("r")).is_rejected


def check_a_lost_query_may_still_be_decided(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store)
        store.lose(digest, Refused(Refusal.KEY_RETIRED))  # it collects: nothing is lost
        assert known(store.query(digest)).refused is None
        closed(store, digest)
        store.lose(digest, Refused(Refusal.KEY_RETIRED))
        assert str(known(store.query(digest)).refused).startswith("KEY_RETIRED")
        store.decide(decision_of(digest), accept, 5)
        assert (known(store.query(digest)).phase, known(store.query(digest)).refused) == (wire.DECIDED, None)


def check_a_lost_query_is_pruned_by_its_end_and_asked_for_no_more(open_store: Opener) -> None:
    with opened(open_store) as store:
        lost, closing = collecting(store, "lost", cohorts=2), collecting(store, "closing")
        for digest in (lost, closing):
            put(store, digest, 0)
            closed(store, digest)
        store.decide(decision_of(lost), accept, CLOSES)
        store.lose(lost, Refused(Refusal.KEY_RETIRED))
        assert store.prune(CLOSES, 100) is None
        assert [item.query for item in store.to_decide()] == [lost, closing]
        assert store.prune(CLOSES + 1, 1) == []  # others follow
        assert known(store.query(lost)).pruned
        assert [item.query for item in store.to_decide()] == [closing]
        assert store.claim(WorkItem(lost, 1), lease()) is None
        assert store.prune(CLOSES + 1, 100) == ["lost"]
        assert (store.dealt(lost, [phone(0)]), receipted(store, lost)) == ({}, [])
        assert store.prune(CLOSES + 1, 100) is None
        assert str(known(store.query(lost)).refused).startswith("KEY_RETIRED")
        assert receipted(store, closing) == [0]


def check_pruning_deletes_phones_and_keeps_decisions(open_store: Opener) -> None:
    with opened(open_store) as store:
        decided, open_still = collecting(store, "decided"), collecting(store, "open")
        for digest in (decided, open_still):
            put(store, digest, 0)
        closed(store, decided)
        store.decide(decision_of(decided), accept, 50)
        rejected = store.announce(new_query("rejected", announced=20))
        store.reject(rejected.digest, Refused(Refusal.BAD_QUERY))
        assert store.prune(20, 100) is None
        assert store.prune(50, 100) == ["rejected"]
        assert store.prune(51, 100) == ["decided"]
        assert store.prune(1000, 100) is None
        assert store.query_ids() == ["open", "decided"]
        assert known(store.query(decided)).pruned
        assert (store.dealt(decided, [phone(0)]), receipted(store, decided)) == ({}, [])
        assert store.decision_for_phones(decided, 0) == decision_of(decided)
        assert put(store, decided, 0) == [PutResult.LATE]
        assert (list(store.dealt(open_still, [phone(0)])), receipted(store, open_still)) == ([phone(0)], [0])


def check_pruning_deletes_some_rows_at_a_time_and_continues_after_a_kill(open_store: Opener) -> None:
    """Of 12 phones, 4 receipts in 2 cohorts and 2 requests; the server is killed after each step."""
    with opened(open_store) as store:
        digest = collecting(store, cohorts=2)
        store.put_contributions([batch(digest, 0, 2), batch(digest, 1, 3, cohort=1)], 0)
        closed(store, digest)
        for cohort in (0, 1):
            store.decide(decision_of(digest, cohort), accept, 50)
        for number in range(3):
            store.reject(store.announce(new_query(f"rejected {number}")).digest, Refused(Refusal.BAD_QUERY))
    steps: list[list[str] | None] = []
    left = []
    for _ in range(7):
        with opened(open_store) as store:
            steps.append(store.prune(51, 5))
            phones = store.dealt(digest, [phone(number) for number in range(PHONES)])
            left.append((len(phones), len(receipted(store, digest)) + len(receipted(store, digest, 1))))
            assert known(store.query(digest)).pruned
            assert put(store, digest, 0, attempt=1)[0] is not PutResult.COUNTED
    assert left[:5] == [(7, 4), (2, 4), (0, 1), (0, 0), (0, 0)]
    assert steps == [[], [], [], ["q"], ["rejected 0", "rejected 1", "rejected 2"], None, None]
    with opened(open_store) as store:
        assert [each.decision for each in store.cohorts(digest)] == [decision_of(digest, cohort) for cohort in (0, 1)]


def check_an_item_has_one_owner_while_its_lease_is_valid(open_store: Opener) -> None:
    with opened(open_store) as store:
        countersign = WorkItem(store.announce(new_query("announced")).digest)
        digest = collecting(store)
        put(store, digest, 0)
        closed(store, digest)
        for item in (countersign, WorkItem(digest, 0)):
            message = store.claim(item, lease("one", now=0))
            assert message is not None
            assert store.claim(item, lease("two", now=99)) is None
            assert not store.renew(item, lease("two", now=50))
            assert store.renew(item, lease("one", now=50))  # until 150
            assert store.claim(item, lease("two", now=149)) is None
            store.release(item, "two")  # which has none
            assert store.claim(item, lease("two", now=149)) is None
            assert store.claim(item, lease("two", now=150)) == message  # it has expired: the same bytes
            assert store.claim(item, lease("one", now=151)) is None
            assert not store.renew(item, lease("one", now=151))
            store.release(item, "one")  # which has lost it
            assert store.claim(item, lease("one", now=151)) is None
            store.release(item, "two")
            assert store.claim(item, lease("one", now=151)) == message
            assert store.claim(item, lease("one", now=151)) == message  # its owner was killed, and starts again


def check_attempts_are_counted_until_an_item_is_done(open_store: Opener) -> None:
    with opened(open_store) as store:
        query = store.announce(new_query())
        assert store.attempts(query.digest) == 0
        _attempt(store, WorkItem(query.digest), "one", "one", "two")
        assert store.claim(WorkItem(query.digest), lease("three")) is not None
        assert store.claim(WorkItem(query.digest), lease("one")) is None
        assert store.renew(WorkItem(query.digest), lease("three"))
    with opened(open_store) as store:
        assert store.attempts(query.digest) == 4
        store.countersign(query.digest, deal_of(2))
        assert store.attempts(query.digest) == 0
        closed(store, query.digest)
        for cohort, owners in ((0, ["one"]), (1, ["one", "two"])):
            _attempt(store, WorkItem(query.digest, cohort), *owners)
        assert store.attempts(query.digest) == 2
        store.decide(decision_of(query.digest, 1), accept, 5)
        assert not store.renew(WorkItem(query.digest, 1), lease("two"))
        assert store.attempts(query.digest) == 1


def _attempt(store: AggregationStore, item: WorkItem, *owners: str) -> None:
    for owner in owners:
        assert store.claim(item, lease(owner)) is not None
        store.release(item, owner)


def check_one_of_two_that_claim_an_item_gets_it(open_store: Opener) -> None:
    with opened(open_store) as store:
        digest = collecting(store, cohorts=ROUNDS)
        closed(store, digest)
    for cohort in range(ROUNDS):
        item = WorkItem(digest, cohort)
        found = race(open_store, *(partial(_claim, item=item, owner=owner) for owner in ("one", "two")))
        assert sum(each is not None for each in found) == 1


def _claim(store: AggregationStore, item: WorkItem, owner: str) -> object:
    return store.claim(item, lease(owner))


def check_what_is_done_cannot_be_claimed(open_store: Opener) -> None:
    with opened(open_store) as store:
        query = store.announce(new_query())
        assert store.claim(WorkItem(query.digest, 0), lease()) is None  # nothing to decide yet
        request = store.claim(WorkItem(query.digest), lease())
        assert request == wire.CountersignRequest(query=new_query().content)
        assert store.countersign(query.digest, deal_of())
        assert store.claim(WorkItem(query.digest), lease()) is None
        assert store.claim(WorkItem(query.digest, 0), lease()) is None
        closed(store, query.digest)
        assert store.claim(WorkItem(query.digest, 0), lease()) is not None
        store.decide(decision_of(query.digest), accept, 5)
        assert store.claim(WorkItem(query.digest, 0), lease()) is None
        assert store.claim(WorkItem(b"unknown"), lease()) is None


def check_a_restored_store_aborts_what_is_open_and_reports_no_burnt_cohort(open_store: Opener) -> None:
    """The original may have sent the sums: a key server that calls a cohort burnt now is not believed."""
    with opened(open_store) as store:
        decided = collecting(store, "decided")
        closed(store, decided)
        store.decide(decision_of(decided), accept, 5)
        is_open = collecting(store, "open")
        put(store, is_open, 1)
        store.announce(new_query("announced"))
        assert store.abort_restored() == ["open", "announced"]
        burnt = decision_of(is_open, outcome=wire.BURNT)
        assert store.decide(burnt, accept, 5) == burnt
        assert store.decision_for_phones(is_open, 0) is None
        assert store.decision_for_phones(decided, 0) is not None
        assert [known(store.query_named(name)).is_rejected for name in ("decided", "open", "announced")] == [
            False,
            False,
            True,
        ]
        assert store.abort_restored() == []
