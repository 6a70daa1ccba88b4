"""The end of a query: by this server's clock, with sums that nobody recognises, and requests that never change."""

from __future__ import annotations

import datetime as dt
import errno
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from reticent.privacy import Query
from reticent.protocol import Refusal, Refused
from reticent.protocol.layout import ciphertexts_from
from reticent.randomness import is_seeded, secure, seeded
from reticent.storage.database import Database
from reticent.v1 import counting_pb2 as wire
from reticent_agg import AggregationServer, BadKeyServerReply, SqlStore
from reticent_agg.administration import summaries
from reticent_agg.retention import prune
from reticent_agg.store import EncryptedSum, WorkItem
from tests.parties import aggregation
from tests.parties.aggregation import START, KeyServer, Phone, Time
from tests.parties.key_pairs import pair


def status_of(server: AggregationServer, query: Query) -> wire.QueryStatus:
    return server.replies.status(wire.StatusRequest(id=query.id))


def contribute(server: AggregationServer, query: Query, *numbers: int) -> list[wire.Contribution]:
    sent = [Phone(number).contribution(query) for number in numbers]
    assert aggregation.outcome_names(server.collection.contribute(sent)) == ["ok"] * len(sent)
    return sent


def test_a_query_closes_when_its_time_is_over_and_not_before(server: AggregationServer, time: Time) -> None:
    query = aggregation.collecting(server, aggregation.make_query())
    contribute(server, query, 0, 1)
    assert server.closing.next_due() == START + dt.timedelta(seconds=query.closes_after)
    time.pass_(query.closes_after - 0.001)
    assert (server.closing.close_due(), aggregation.requests(server)) == ([], [])
    time.pass_(0.001)
    assert server.closing.close_due() == [query.id]
    assert (server.closing.close_due(), server.closing.next_due()) == ([], None)
    assert (status_of(server, query).phase, status_of(server, query).closes_in_ms) == (wire.CLOSING, 0)


def test_a_query_closes_as_soon_as_every_cohort_has_enough(server: AggregationServer) -> None:
    early = aggregation.collecting(server, aggregation.make_query(population=8, cohorts=2, enough=3))
    whole = aggregation.collecting(server, aggregation.make_query(population=4))
    contribute(server, early, 0, 2, 4, 6, 1, 3)
    contribute(server, whole, 0, 1, 2)
    assert server.closing.close_due() == []
    contribute(server, early, 5)
    assert server.closing.close_due() == [early.id]
    contribute(server, whole, 3)
    assert server.closing.close_due() == [whole.id]


def test_a_closed_sum_is_none_that_anybody_has_seen(server: AggregationServer, time: Time) -> None:
    query = aggregation.collecting(server, aggregation.make_query())
    key = pair(aggregation.BITS).public
    sent = contribute(server, query, 1, 4)
    plain = [
        key.add(column) for column in zip(*(ciphertexts_from(each.ciphertexts, key) for each in sent), strict=True)
    ]
    (head,) = aggregation.closed(server, time, query)
    found = ciphertexts_from(head.ciphertexts, key)
    assert not set(found) & set(plain)
    assert pair(aggregation.BITS).decrypt(found) == pair(aggregation.BITS).decrypt(plain)
    assert (head.query, head.cohort, head.contributors) == (query.digest, 0, 2)


def test_the_server_is_given_a_generator_that_nobody_can_replay() -> None:
    assert not is_seeded(secure())
    assert is_seeded(seeded(1))  # as in these tests


def test_a_request_is_on_disk_before_it_is_known_and_the_same_bytes_for_ever(
    place: Path | str, server: AggregationServer, time: Time
) -> None:
    query = aggregation.collecting(server, aggregation.make_query(population=8, cohorts=2))
    contribute(server, query, 0, 2, 4, 6, 1, 3, 5)
    heads = aggregation.closed(server, time, query)
    sent = [[each.SerializeToString() for each in server.closing.messages(head)] for head in heads]
    server.close()
    for _ in range(2):
        again = aggregation.opened(place, time)
        assert aggregation.requests(again) == heads
        assert [[each.SerializeToString() for each in again.closing.messages(head)] for head in heads] == sent
        again.close()


def test_receipts_come_in_pages_of_which_none_is_lost(
    server: AggregationServer, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent_agg.counting.closing.RECEIPTS_AT_ONCE", 3)
    query = aggregation.collecting(server, aggregation.make_query(population=20, cohorts=2))
    sent = contribute(server, query, *range(20))
    for head in aggregation.closed(server, time, query):
        messages = list(server.closing.messages(head))
        assert [len(each.receipts.receipts) for each in messages[1:]] == [3, 3, 3, 1]
        found = [receipt for each in messages[1:] for receipt in each.receipts.receipts]
        assert [(each.phone, each.signature) for each in found] == [
            (each.phone, each.signature) for each in sent if each.cohort == head.cohort
        ]


def test_a_cohort_with_too_few_is_sent_to_be_burnt_and_the_others_are_not(
    server: AggregationServer, time: Time
) -> None:
    query = aggregation.collecting(server, aggregation.make_query(population=8, cohorts=2, min_contributions=3))
    contribute(server, query, 0, 2, 4, 1, 3)
    full, short = aggregation.closed(server, time, query)
    assert aggregation.phones_in(full) == {0, 2, 4}
    assert (short.ciphertexts, short.contributors) == (b"", 2)
    assert len(aggregation.receipts_of(server, short)) == 2


def decide(server: AggregationServer, head: wire.DecideHead) -> wire.Decision:
    decision = KeyServer().decision(head, aggregation.receipts_of(server, head))
    server.closing.decide(decision)
    return decision


def test_a_query_is_decided_when_all_its_cohorts_are(server: AggregationServer, time: Time) -> None:
    query = aggregation.collecting(server, aggregation.make_query(population=8, cohorts=2, min_contributions=3))
    contribute(server, query, 0, 2, 4, 1, 3)
    heads = aggregation.closed(server, time, query)
    first = decide(server, heads[0])
    assert aggregation.requests(server) == heads[1:]
    assert status_of(server, query).phase == wire.CLOSING
    second = decide(server, heads[1])
    assert aggregation.requests(server) == []
    status = status_of(server, query)
    assert status.phase == wire.DECIDED
    assert [(each.contributors, each.decision) for each in status.cohorts] == [(3, first), (2, second)]
    wanted = [wire.DecisionWanted(query=query.digest, cohort=cohort) for cohort in (1, 5, 0)]
    assert list(server.replies.decisions(wire.DecisionsRequest(wanted=wanted)).decisions) == [second, first]
    assert not server.replies.decisions(wire.DecisionsRequest(wanted=[wire.DecisionWanted(query=b"x")])).decisions


def test_only_decisions_that_the_key_server_has_signed_and_was_asked_for_are_believed(
    server: AggregationServer, time: Time
) -> None:
    query = aggregation.collecting(server, aggregation.make_query())
    contribute(server, query, 0, 1)
    keys = KeyServer()
    early = wire.DecideHead(query=query.digest, cohort=0, contributors=2)
    with pytest.raises(BadKeyServerReply):
        server.closing.decide(keys.decision(early))  # nothing was asked yet
    (head,) = aggregation.closed(server, time, query)
    forged = keys.decision(head)
    forged.outcome = wire.VOID
    elsewhere = wire.DecideHead(query=aggregation.make_query().digest, cohort=0)
    for wrong in (
        forged,
        keys.decision(elsewhere),
        keys.decision(head, cohort=1),
        keys.decision(head, outcome=wire.OUTCOME_UNSPECIFIED),
        wire.Decision(),
    ):
        with pytest.raises(BadKeyServerReply):
            server.closing.decide(wrong)
    assert aggregation.requests(server) == [head]
    decision = decide(server, head)
    server.closing.decide(decision)  # again
    with pytest.raises(BadKeyServerReply, match="before"):
        server.closing.decide(keys.decision(head, outcome=wire.VOID))
    assert status_of(server, query).cohorts[0].decision == decision


def test_an_abort_closes_and_burns(server: AggregationServer) -> None:
    query = aggregation.collecting(server, aggregation.make_query(population=8, cohorts=2))
    sent = contribute(server, query, *range(8))
    assert aggregation.abort(server, query.id).phase == wire.CLOSING
    heads = aggregation.requests(server)
    assert [(each.cohort, each.contributors, each.ciphertexts) for each in heads] == [(0, 4, b""), (1, 4, b"")]
    assert aggregation.outcome_names(server.collection.contribute(sent[:1])) == ["ok"]
    aggregation.abort(server, query.id)
    assert aggregation.requests(server) == heads
    for head in heads:
        decide(server, head)
    assert status_of(server, query).phase == wire.DECIDED
    assert aggregation.abort(server, query.id).phase == wire.DECIDED


def test_an_abort_before_the_countersignature_burns_as_soon_as_it_is_there(
    place: Path | str, server: AggregationServer, time: Time
) -> None:
    query = aggregation.make_query()
    aggregation.announce(server, query)
    aggregation.abort(server, query.id)
    server.close()
    server = aggregation.opened(place, time)
    assert aggregation.uncountersigned(server) == [query]
    server.queries.countersign(query, KeyServer().deals(query))
    assert aggregation.outcome_names(server.collection.contribute([Phone(0).contribution(query)])) == ["LATE"]
    assert [each.contributors for each in aggregation.requests(server)] == [0]
    server.close()


def test_an_abort_of_what_was_not_countersigned_is_refused_and_changes_nothing(
    place: Path | str, server: AggregationServer
) -> None:
    query = aggregation.make_query()
    aggregation.announce(server, query)
    server.store.reject(query.digest, Refused(Refusal.TOO_FEW_ENROLLED, "there are 3"))

    def rows() -> list[object]:
        with closing(SqlStore(place)) as store, store.database.reading() as run:
            return run("SELECT * FROM queries").fetchall()

    before = rows()
    with pytest.raises(Refused, match="TOO_FEW_ENROLLED: there are 3"):
        aggregation.abort(server, query.id)
    assert rows() == before


def test_an_abort_after_closing_burns_what_is_not_decided_and_gives_way_to_what_is(
    server: AggregationServer, time: Time
) -> None:
    query = aggregation.collecting(server, aggregation.make_query(population=8, cohorts=2))
    contribute(server, query, *range(8))
    heads = aggregation.closed(server, time, query)
    aggregation.abort(server, query.id)
    burns = aggregation.requests(server)
    assert [each.ciphertexts for each in burns] == [b"", b""]
    decide(server, burns[1])
    server.closing.refuse(burns[0], Refused(Refusal.ALREADY_DECIDED))  # its answer was lost
    assert aggregation.requests(server) == heads[:1]
    server.closing.refuse(heads[0], Refused(Refusal.BAD_RECEIPTS))
    assert aggregation.requests(server) == heads[:1]
    decide(server, heads[0])
    outcomes = [each.decision.outcome for each in status_of(server, query).cohorts]
    assert outcomes == [wire.RELEASED, wire.BURNT]


def test_what_is_asked_of_a_cohort_is_true_at_that_moment(server: AggregationServer, time: Time) -> None:
    """Also where the cohort was listed before an abort, or before it was decided."""
    query = aggregation.collecting(server, aggregation.make_query(population=8, cohorts=2))
    contribute(server, query, *range(8))
    heads = aggregation.closed(server, time, query)
    listed = server.store.to_decide()
    assert listed == [(query.digest, 0, False), (query.digest, 1, False)]
    decide(server, heads[0])
    aggregation.abort(server, query.id)
    burnt = wire.DecideHead(query=query.digest, cohort=1, contributors=4)
    assert [aggregation.claimed(server, each) for each in listed] == [None, burnt]
    assert server.store.to_decide() == [(query.digest, 1, True)]


def test_burnt_is_no_answer_to_a_sum(server: AggregationServer, time: Time) -> None:
    """A key server that has had the sum could keep it: phones would take their budget back, and be asked again."""
    query = aggregation.collecting(server, aggregation.make_query())
    contribute(server, query, 0, 1, 2)
    (head,) = aggregation.closed(server, time, query)
    keys = KeyServer()
    with pytest.raises(BadKeyServerReply, match="was to be decrypted, and the key server reports it as burnt"):
        server.closing.decide(keys.decision(head, outcome=wire.BURNT))
    for contributors in (2, 4):
        with pytest.raises(BadKeyServerReply, match=f"has 3 contributions, and the key server reports {contributors}"):
            server.closing.decide(keys.decision(head, contributors=contributors))
    assert not decisions_for_phones(server, query)
    released = decide(server, head)
    assert decisions_for_phones(server, query) == [released]


def test_that_an_aborted_cohort_was_burnt_is_told_to_phones_only_if_the_key_server_never_had_its_sum(
    server: AggregationServer, time: Time
) -> None:
    query = aggregation.collecting(server, aggregation.make_query(population=8, cohorts=2))
    contribute(server, query, *range(8))
    aggregation.closed(server, time, query)
    sent = aggregation.claimed(server, WorkItem(query.digest, 0))
    assert sent is not None
    assert sent.ciphertexts
    aggregation.abort(server, query.id)
    burnt = [decide(server, head) for head in aggregation.requests(server)]
    assert [each.outcome for each in burnt] == [wire.BURNT] * 2
    assert decisions_for_phones(server, query) == burnt[1:]
    assert [each.decision for each in status_of(server, query).cohorts] == burnt  # its analyst knows both
    prune_all(server, time)
    assert decisions_for_phones(server, query) == burnt[1:]


def decisions_for_phones(server: AggregationServer, query: Query) -> list[wire.Decision]:
    """What phones get."""
    wanted = [wire.DecisionWanted(query=query.digest, cohort=cohort) for cohort in range(query.cohorts)]
    return list(server.replies.decisions(wire.DecisionsRequest(wanted=wanted)).decisions)


def prune_all(server: AggregationServer, time: Time) -> None:
    list(prune(server.store, time() + dt.timedelta(seconds=1)))


def test_pruning_forgets_who_took_part_and_keeps_what_was_decided(
    place: Path | str, server: AggregationServer, time: Time
) -> None:
    query, late = (aggregation.collecting(server, aggregation.make_query()) for _ in range(2))
    sent = contribute(server, query, 0, 1)
    contribute(server, late, 0, 1)
    decision = decide(server, aggregation.closed(server, time, query)[0])
    when = time()
    store = SqlStore(place)
    assert list(prune(store, when)) == []
    assert list(prune(store, when + dt.timedelta(seconds=1))) == [query.id]
    assert list(prune(store, when + dt.timedelta(days=1))) == []
    assert [(each.id, each.pruned) for each in summaries(store)] == [(late.id, False), (query.id, True)]
    with store.database.reading() as run:
        assert (
            run("SELECT phone FROM receipts WHERE query = 1 UNION SELECT phone FROM dealt WHERE query = 1").fetchall()
            == []
        )
    store.close()
    assert status_of(server, query).cohorts[0].decision == decision
    assert aggregation.outcome_names(server.collection.contribute(sent)) == ["LATE", "LATE"]
    assert len(aggregation.requests(server)) == 1  # the other one is still to be decided
    assert len(aggregation.receipts_of(server, aggregation.requests(server)[0])) == 2


@pytest.mark.parametrize("place", ["SQLite"], indirect=True)
def test_nothing_is_closed_by_a_commit_that_fails(
    server: AggregationServer, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = aggregation.collecting(server, aggregation.make_query())
    contribute(server, query, 0, 1)
    time.pass_(query.closes_after)
    honest = Database._execute

    def full(database: Database, sql: str, values: object = ()) -> sqlite3.Cursor:
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return honest(database, sql, values)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Database, "_execute", full)
        with pytest.raises(OSError, match="disk"):
            server.closing.close_due()
    assert (aggregation.requests(server), status_of(server, query).phase) == ([], wire.COLLECTING)
    assert server.closing.close_due() == [query.id]
    assert aggregation.phones_in(aggregation.requests(server)[0]) == {0, 1}


@pytest.mark.parametrize("fault", [OSError(errno.EBUSY, "lock timeout"), ZeroDivisionError("lock timeout")])
def test_a_query_that_cannot_be_closed_now_does_not_keep_others_from_closing(
    server: AggregationServer, time: Time, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    locked, other = (aggregation.collecting(server, aggregation.make_query()) for _ in range(2))
    time.pass_(other.closes_after)
    close = server.store.close_query

    def close_query(
        digest: bytes, make_request: Callable[[EncryptedSum], wire.DecideHead], now: int, *, patience: float
    ) -> bool:
        if digest == locked.digest:
            raise fault
        return close(digest, make_request, now, patience=patience)

    with monkeypatch.context() as patch:
        patch.setattr(server.store, "close_query", close_query)
        with pytest.raises(type(fault), match="lock timeout"):
            server.closing.close_due()
    assert [status_of(server, query).phase for query in (locked, other)] == [wire.COLLECTING, wire.CLOSING]
    assert server.closing.close_due() == [locked.id]


@pytest.mark.parametrize("refusal", [Refusal.KEY_RETIRED, Refusal.UNKNOWN_QUERY])
def test_what_will_never_be_decided_is_told_and_its_name_is_not_free(
    server: AggregationServer, time: Time, refusal: Refusal
) -> None:
    """After the key server was restored from a backup."""
    query = aggregation.collecting(server, aggregation.make_query(population=8, cohorts=2))
    contribute(server, query, *range(8))
    first, second = aggregation.closed(server, time, query)
    decide(server, first)
    server.closing.refuse(second, Refused(refusal, "as the copy of the journal says"))
    status = status_of(server, query)
    assert (status.phase, [each.HasField("decision") for each in status.cohorts]) == (wire.LOST, [True, False])
    assert server.replies.list_queries().queries[0] == status
    assert aggregation.announce(server, query) == status
    with pytest.raises(Refused, match="CONFLICT"):
        aggregation.announce(server, aggregation.make_query(id=query.id, min_contributions=3))
    assert aggregation.abort(server, query.id).phase == wire.LOST
    (last,) = aggregation.requests(server)  # it is asked again all the same, rarely: the copy may be replaced
    assert server.queries.announced(last.query).query.id == query.id
    decide(server, last)
    assert status_of(server, query).phase == wire.DECIDED


def test_pruning_forgets_what_was_refused(place: Path | str, server: AggregationServer, time: Time) -> None:
    refused, waiting = aggregation.make_query(), aggregation.make_query()
    for query in (refused, waiting):
        aggregation.announce(server, query)
    server.store.reject(refused.digest, Refused(Refusal.BAD_QUERY, "too dear"))
    store = SqlStore(place)
    assert list(prune(store, time())) == []
    assert list(prune(store, time() + dt.timedelta(seconds=1))) == [refused.id]
    assert [each.id for each in summaries(store)] == [waiting.id]
    store.close()
