"""Queries: written down before the key server is asked, the same again is safe, and phones hear of nothing else."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reticent.protocol import Refusal, Refused
from reticent.protocol.layout import contribution_bytes
from reticent.randomness import seeded
from reticent.v1 import counting_pb2 as wire
from reticent_agg import AggregationServer, BadKeyServerReply, BadStore, SqlStore
from reticent_agg import sql_schema as sql
from reticent_agg.counting.replies import ANONYMOUS_REPLY_BYTES, OPEN_QUERIES_AT_ONCE
from tests.parties import aggregation
from tests.parties.aggregation import KeyServer, Phone, Time
from tests.parties.key_pairs import pair


def announce(server: AggregationServer, query: Any) -> wire.QueryStatus:
    return aggregation.announce(server, query)


def announcements_to(server: AggregationServer, number: int) -> list[wire.Announcement]:
    return list(server.replies.announcements(wire.AnnouncementsRequest(phone=Phone(number).id)).announcements)


def test_an_announced_query_is_written_down_before_anybody_else_hears_of_it(
    server: AggregationServer, place: Path | str, time: Time
) -> None:
    query = aggregation.make_query()
    status = announce(server, query)
    assert (status.phase, status.query, list(status.cohorts)) == (wire.ANNOUNCED, query.to_bytes(), [])
    assert status.closes_in_ms == query.closes_after * 1000
    assert announcements_to(server, 0) == []
    again = aggregation.opened(place, time)
    assert aggregation.uncountersigned(again) == [query]
    assert announce(again, query) == status
    assert aggregation.uncountersigned(again) == [query]
    again.close()


def test_phones_hear_of_what_was_dealt_to_them_until_it_closes(server: AggregationServer, time: Time) -> None:
    query = aggregation.collecting(server, aggregation.make_query(cohorts=2))
    (announcement,) = announcements_to(server, 3)
    head = KeyServer().deals(query)[0]
    assert (announcement.query, announcement.agreement_key, announcement.cohort) == (
        query.digest,
        head.agreement_key,
        1,
    )
    assert announcement.countersignature == head.countersignature
    assert announcement.closes_in_ms == query.closes_after * 1000
    assert announcements_to(server, 6) == []  # enrolled or not, it was not dealt
    time.pass_(query.closes_after - 1)
    assert announcements_to(server, 3)[0].closes_in_ms == 1000
    time.pass_(1)
    assert announcements_to(server, 3) == []


def test_time_counts_from_when_phones_can_hear_of_it(server: AggregationServer, time: Time) -> None:
    query = aggregation.make_query()
    announce(server, query)
    time.pass_(10 * query.closes_after)  # the key server cannot be reached
    assert server.closing.close_due() == []
    server.queries.countersign(query, KeyServer().deals(query))
    assert announcements_to(server, 0)[0].closes_in_ms == query.closes_after * 1000


def test_announcements_are_paged_by_open_queries(server: AggregationServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent_agg.counting.replies.OPEN_QUERIES_AT_ONCE", 2)
    queries = [aggregation.collecting(server, aggregation.make_query(population=size)) for size in (6, 3, 3, 3, 6, 6)]
    pages: list[list[bytes]] = []
    after = 0
    while not pages or after:
        reply = server.replies.announcements(wire.AnnouncementsRequest(phone=Phone(4).id, after=after))
        pages.append([each.query for each in reply.announcements])
        assert reply.again_in_ms
        after = reply.next
    dealt = [queries[place].digest for place in (0, 4, 5)]
    assert pages == [dealt[:1], [], dealt[1:], []]
    assert not server.replies.announcements(wire.AnnouncementsRequest(phone=Phone(4).id, after=1 << 62)).next


def test_a_full_page_of_announcements_fits_a_reply(server: AggregationServer) -> None:
    aggregation.collecting(server, aggregation.make_query(closes_after=366 * 86400))
    (announcement,) = announcements_to(server, 0)
    announcement.cohort = (1 << 32) - 1
    page = wire.AnnouncementsReply(announcements=[announcement] * OPEN_QUERIES_AT_ONCE)
    assert page.ByteSize() <= ANONYMOUS_REPLY_BYTES


def test_an_analyst_gets_the_list_in_pages(server: AggregationServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent_agg.counting.replies.LISTED_AT_ONCE", 3)
    queries = [aggregation.make_query() for _ in range(7)]
    for number, query in enumerate(queries):
        aggregation.announce(server, query, "bob" if number == 5 else "ann")
    size = server.replies.list_queries("bob").queries[0].ByteSize()
    for most, lengths in ((1 << 20, [3, 3, 0]), (2 * size + 8, [2, 2, 2]), (1, [1] * 6)):
        monkeypatch.setattr("reticent_agg.counting.replies.REPLY_BYTES", most)
        pages = [server.replies.list_queries("ann")]
        while pages[-1].next:
            pages.append(server.replies.list_queries("ann", pages[-1].next))
        assert [len(page.queries) for page in pages] == lengths
        listed = [each.query for page in pages for each in page.queries]
        assert listed == [queries[number].to_bytes() for number in (6, 4, 3, 2, 1, 0)]


@pytest.mark.parametrize("place", ["SQLite"], indirect=True)
def test_pages_are_read_by_an_index(server: AggregationServer) -> None:
    """However many queries are decided, and whoever has announced them."""
    with aggregation.database_of(server).reading() as run:
        for statement, values in (
            (sql.ANNOUNCED_TO, (2, 5, 256, b"phone")),
            (sql.QUERIES_OF.format("= ?"), ("ann", 5, 100)),
            (sql.QUERIES_OF.format("IS NULL"), (5, 100)),
        ):
            steps = [row[-1] for row in run(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()]
            assert any("SEARCH queries USING" in step and "number" in step for step in steps), steps
            assert not any("SCAN queries" in step for step in steps), steps


def test_the_same_announcement_again_gets_the_status_and_another_of_that_name_a_conflict(
    server: AggregationServer, time: Time
) -> None:
    query = aggregation.collecting(server, aggregation.make_query())
    assert announce(server, query).phase == wire.COLLECTING
    with pytest.raises(Refused) as caught:
        announce(server, aggregation.make_query(id=query.id, min_contributions=3))
    assert caught.value.refusal is Refusal.CONFLICT
    aggregation.closed(server, time, query)
    assert announce(server, query).phase == wire.CLOSING
    assert [each.query for each in server.replies.list_queries().queries] == [query.to_bytes()]


BAD = {
    "no query": b"x",
    "half a query": aggregation.make_query().to_bytes()[:-1],
    "too long": aggregation.make_query(closes_after=366 * 86400 + 1).to_bytes(),
    "an unknown key": aggregation.make_query(key_id="00" * 32).to_bytes(),
    "a key that is none": aggregation.make_query(key_id="the key").to_bytes(),
}


@pytest.mark.parametrize("kind", ["no query", "half a query", "too long", "an unknown key", "a key that is none"])
def test_a_bad_query_is_refused_and_not_written_down(server: AggregationServer, kind: str) -> None:
    with pytest.raises(Refused) as caught:
        server.queries.announce(BAD[kind])
    assert caught.value.refusal is (Refusal.KEY_RETIRED if "key" in kind else Refusal.BAD_QUERY)
    assert aggregation.uncountersigned(server) == []
    assert len(server.replies.list_queries().queries) == 0


def test_a_contribution_must_fit_a_message(server: AggregationServer) -> None:
    counters = [(f"counter {number}", 0, 1) for number in range(1000)]
    smaller = aggregation.make_query(counters=counters[:100])
    with pytest.MonkeyPatch.context() as patch:
        largest = contribution_bytes(smaller, pair(aggregation.BITS).public.bits)
        patch.setattr("reticent_agg.counting.queries.MAX_CONTRIBUTION_BYTES", largest)
        announce(server, smaller)
        with pytest.raises(Refused, match="does not fit a message"):
            announce(server, aggregation.make_query(counters=counters))


def other_deals(kind: str, query: Any) -> list[wire.Deal]:
    (first, rest), keys = KeyServer().deals(query), KeyServer()
    dealt = [*first.phones, *rest.phones]
    if kind == "another's countersignature":
        return keys.deals(query, countersignature=keys.deals(aggregation.make_query())[0].countersignature)
    if kind == "a phone twice":
        return keys.deals(query, phones=[*dealt[:-1], dealt[0]])
    if kind == "a phone too few":
        return keys.deals(query, phones=dealt[:-1])
    if kind == "all in one cohort":
        return keys.deals(query, phones=[wire.Dealt(phone=each.phone, verify_key=each.verify_key) for each in dealt])
    if kind == "a key too short":
        dealt[0].verify_key = b"key"
        return keys.deals(query, phones=dealt)
    return {"nothing": [], "no countersignature": [wire.Deal(phones=dealt)]}[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "another's countersignature",
        "a phone twice",
        "a phone too few",
        "all in one cohort",
        "a key too short",
        "nothing",
        "no countersignature",
    ],
)
def test_a_deal_that_the_key_server_cannot_mean_changes_nothing(server: AggregationServer, kind: str) -> None:
    query = aggregation.make_query(cohorts=2)
    announce(server, query)
    with pytest.raises(BadKeyServerReply):
        server.queries.countersign(query, other_deals(kind, query))
    assert aggregation.uncountersigned(server) == [query]
    server.queries.countersign(query, KeyServer().deals(query))
    assert aggregation.uncountersigned(server) == []


def test_a_countersignature_that_comes_again_changes_nothing(server: AggregationServer, time: Time) -> None:
    query = aggregation.collecting(server, aggregation.make_query())
    server.collection.contribute([Phone(0).contribution(query), Phone(1).contribution(query)])
    time.pass_(10)
    server.queries.countersign(query, KeyServer().deals(query))
    assert announcements_to(server, 0)[0].closes_in_ms == (query.closes_after - 10) * 1000
    (head,) = aggregation.closed(server, time, query)
    assert aggregation.phones_in(head) == {0, 1}


def test_why_the_key_server_refuses_is_told_until_it_is_asked_again(server: AggregationServer) -> None:
    query = aggregation.make_query()
    announce(server, query)
    server.store.reject(query.digest, Refused(Refusal.TOO_FEW_ENROLLED, "there are 3"))
    assert aggregation.uncountersigned(server) == []
    with pytest.raises(Refused, match="there are 3") as caught:
        server.replies.status(wire.StatusRequest(id=query.id))
    assert caught.value.refusal is Refusal.TOO_FEW_ENROLLED
    (listed,) = server.replies.list_queries().queries
    assert (listed.phase, listed.query, len(listed.cohorts)) == (wire.REFUSED, query.to_bytes(), 0)
    announce(server, query)
    assert aggregation.uncountersigned(server) == [query]
    server.store.reject(query.digest, Refused(Refusal.BAD_QUERY))
    other = aggregation.make_query(
        id=query.id, min_contributions=3
    )  # the name is free: that query has never been asked
    announce(server, other)
    assert aggregation.uncountersigned(server) == [other]


def test_what_was_written_down_and_is_no_query_any_more_is_refused_and_keeps_no_other_waiting(
    server: AggregationServer, place: Path | str
) -> None:
    """After an update whose checks are stricter."""
    strange, later = aggregation.make_query(), aggregation.make_query()
    for query in (strange, later):
        announce(server, query)
    with closing(SqlStore(place)) as store, store.database.transaction() as run:
        run("UPDATE queries SET content = ? WHERE digest = ?", (b"{}", strange.digest))
    assert aggregation.uncountersigned(server) == [later]
    assert [each.phase for each in server.replies.list_queries().queries] == [wire.ANNOUNCED, wire.REFUSED]
    with pytest.raises(Refused) as caught:
        server.replies.status(wire.StatusRequest(id=strange.id))
    assert caught.value.refusal is Refusal.BAD_QUERY
    assert caught.value.detail
    assert aggregation.uncountersigned(server) == [later]


def test_a_refusal_that_comes_after_the_countersignature_means_nothing(server: AggregationServer) -> None:
    query = aggregation.collecting(server, aggregation.make_query())
    server.store.reject(query.digest, Refused(Refusal.BAD_QUERY))
    assert server.replies.status(wire.StatusRequest(id=query.id)).phase == wire.COLLECTING


def test_queries_are_listed_the_latest_first(server: AggregationServer) -> None:
    queries = [aggregation.collecting(server, aggregation.make_query()) for _ in range(3)]
    server.collection.contribute([Phone(number).contribution(queries[1]) for number in range(2)])
    found = server.replies.list_queries().queries
    assert [each.query for each in found] == [each.to_bytes() for each in reversed(queries)]
    assert [[cohort.contributors for cohort in each.cohorts] for each in found] == [[0], [2], [0]]


def test_keys_are_kept_and_strange_ones_refused(server: AggregationServer, time: Time) -> None:
    key = pair(aggregation.BITS).public
    assert server.replies.key(wire.KeyRequest(key_id=key.key_id)).public_key == key.to_bytes()
    other = pair(aggregation.BITS, 1).public
    with pytest.raises(Refused):
        server.replies.key(wire.KeyRequest(key_id=other.key_id))
    server.queries.learn(wire.Terms(population=9, public_key=other.to_bytes()))
    for each in (other, key):  # which drains
        assert server.queries.can_judge(aggregation.make_query(population=9, key_id=each.key_id.hex()))
        assert not server.queries.can_judge(aggregation.make_query(population=10, key_id=each.key_id.hex()))
    with pytest.raises(BadKeyServerReply):
        server.queries.learn(wire.Terms(population=9, public_key=other.to_bytes()[:-1]))
    strict = AggregationServer(SqlStore(None), identity=KeyServer.identity.public, now=time, rng=seeded(1))
    with pytest.raises(BadKeyServerReply, match="bits"):
        strict.queries.learn(KeyServer().terms())  # 2048 bits are for simulation
    strict.close()


def test_malformed_questions_are_refused(server: AggregationServer) -> None:
    with pytest.raises(Refused) as caught:
        server.replies.announcements(wire.AnnouncementsRequest(phone=b"short"))
    assert caught.value.refusal is Refusal.MALFORMED
    with pytest.raises(Refused) as caught:
        server.replies.status(wire.StatusRequest(id="nothing"))
    assert caught.value.refusal is Refusal.UNKNOWN_QUERY
    with pytest.raises(Refused) as caught:
        aggregation.abort(server, "nothing")
    assert caught.value.refusal is Refusal.UNKNOWN_QUERY
    with pytest.raises(Refused) as caught:
        server.replies.decisions(wire.DecisionsRequest(wanted=[wire.DecisionWanted()] * 1001))
    assert caught.value.refusal is Refusal.OVERSIZED


def test_a_query_is_told_to_a_phone_that_was_asked_and_proves_it(server: AggregationServer) -> None:
    query = aggregation.collecting(server, aggregation.make_query())
    uncountersigned = aggregation.make_query()
    announce(server, uncountersigned)
    asked_for = Phone(3).fetching(query)
    assert server.replies.query(asked_for).query == query.to_bytes()
    for refusal, changes in {
        Refusal.BAD_SIGNATURE: {"phone": Phone(2).id},
        Refusal.NOT_DEALT: {"phone": Phone(6).id},
        Refusal.MALFORMED: {"phone": b"short"},
        Refusal.UNKNOWN_QUERY: {"query": uncountersigned.digest},
    }.items():
        wrong = wire.QueryRequest.FromString(asked_for.SerializeToString())
        for name, value in changes.items():
            setattr(wrong, name, value)
        with pytest.raises(Refused) as caught:
            server.replies.query(wrong)
        assert caught.value.refusal is refusal
    asked_for.signature = bytes(64)
    with pytest.raises(Refused, match="BAD_SIGNATURE"):
        server.replies.query(asked_for)


def test_a_foreign_file_is_refused(path: Path, time: Time) -> None:
    path.write_bytes(b"this is no database, " * 1000)
    with pytest.raises(BadStore):
        aggregation.opened(path, time)
    with pytest.raises(ValueError, match="32 bytes: got 3"):
        AggregationServer(SqlStore(None), identity=b"key", now=time, rng=seeded(1))


def test_no_more_phones_are_asked_than_the_key_server_has_said(server: AggregationServer, place: Path | str) -> None:
    """Before anything is made for them: a hundred thousand cohorts of no phones cost nothing."""
    server.queries.learn(KeyServer().terms(population=8))
    for query in (aggregation.make_query(population=9), aggregation.make_query(population=2_000_000, cohorts=100_000)):
        assert not server.queries.can_judge(query)
        with pytest.raises(Refused, match=f"8 phones are enrolled, of {query.population}") as caught:
            announce(server, query)
        assert caught.value.refusal is Refusal.TOO_FEW_ENROLLED
    assert len(server.replies.list_queries().queries) == 0
    known = aggregation.collecting(server, aggregation.make_query(population=8))
    server.queries.learn(KeyServer().terms(population=2))
    assert server.queries.can_judge(known)
    assert announce(server, known).phase == wire.COLLECTING  # what was announced before is
    again = AggregationServer(
        SqlStore(place), identity=KeyServer.identity.public, now=Time(), rng=seeded(1), simulation=True
    )
    with pytest.raises(Refused, match="UNAVAILABLE: the key server cannot be reached"):
        announce(again, aggregation.make_query())
    again.close()
