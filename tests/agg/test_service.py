"""The aggregation server on the network: over TLS, with analysts, phones and strangers."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import reply_of
from reticent.retry import Backoff
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_agg import BadStore, SqlStore
from tests.agg.network import Deciding, network, refusal_of, run
from tests.parties import aggregation
from tests.parties.aggregation import START, KeyServer, Phone
from tests.parties.calls import all_replies
from tests.parties.key_pairs import pair
from tests.parties.waiting import until

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


def test_a_query_lives_from_the_analyst_to_the_phones_and_back(tmp_path: Path, certs: Path) -> None:
    async def live() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, phones = await net.analyst(), await net.phones()
            assert await analyst.GetTerms(wire.TermsRequest()) == KeyServer().terms()
            query = aggregation.make_query(population=8, cohorts=2, enough=3, min_contributions=2)
            status = await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            assert (status.phase, len(status.cohorts)) == (wire.COLLECTING, 2)
            (announcement,) = (await phones.Announcements(wire.AnnouncementsRequest(phone=Phone(3).id))).announcements
            assert (announcement.query, announcement.cohort) == (query.digest, 1)
            wanted_query = Phone(3).fetching(query)
            assert (await phones.Query(wanted_query)).query == query.to_bytes()
            wanted_query.phone = Phone(2).id  # somebody else's signature
            assert (await refusal_of(phones.Query(wanted_query))).refusal is Refusal.BAD_SIGNATURE
            key = await phones.Key(wire.KeyRequest(key_id=bytes.fromhex(query.key_id)))
            assert key.public_key == pair(aggregation.BITS).public.to_bytes()
            sent = [Phone(number).contribution(query) for number in range(6)]
            await asyncio.gather(*(phones.Contribute(each) for each in [*sent, *sent]))  # enough, and each twice
            await until(lambda: not aggregation.requests(net.server) and bool(keys.heads))
            status = await analyst.Status(wire.StatusRequest(id=query.id))
            assert status.phase == wire.DECIDED
            wanted = wire.DecisionsRequest(wanted=[wire.DecisionWanted(query=query.digest, cohort=0)])
            assert list((await phones.Decisions(wanted)).decisions) == [status.cohorts[0].decision]
            assert [aggregation.phones_in(head) for head in keys.heads] == [{0, 2, 4}, {1, 3, 5}]
            assert (await refusal_of(phones.Contribute(Phone(6).contribution(query)))).refusal is Refusal.LATE
            assert list((await analyst.List(wire.ListRequest())).queries) == [status]

    run(live())


def test_queries_are_closed_by_the_clock(tmp_path: Path, certs: Path) -> None:
    async def close() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, phones = await net.analyst(), await net.phones()
            first, second = aggregation.make_query(), aggregation.make_query(closes_after=60)
            for query in (first, second):
                await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
                for number in range(2):
                    await phones.Contribute(Phone(number).contribution(query))
            await asyncio.sleep(0.05)  # the server goes to wait for its clock
            await net.clock.move_to(START + dt.timedelta(seconds=60))
            await until(lambda: bool(keys.heads))
            assert [head.query for head in keys.heads] == [second.digest]
            await analyst.Abort(wire.AbortRequest(id=first.id))
            await until(lambda: len(keys.heads) == 2)
            await until(lambda: not aggregation.requests(net.server))
            assert not keys.heads[1].ciphertexts
            assert (await analyst.Status(wire.StatusRequest(id=first.id))).cohorts[0].decision.outcome == wire.BURNT

    run(close())


class Faulty(SqlStore):
    """A store in which searches for queries to close, and to prune, fail once each."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.faults: dict[str, Exception] = {"due": KeyError("of ours"), "prune": KeyError("of ours")}
        self.prunings = 0

    def due(self, now: int) -> list[bytes]:
        if "due" in self.faults:
            raise self.faults.pop("due")
        return super().due(now)

    def prune(self, before: int, rows: int) -> list[str] | None:
        if "prune" in self.faults:
            raise self.faults.pop("prune")
        self.prunings += 1
        return super().prune(before, rows)


def test_a_fault_ends_neither_closing_nor_pruning_and_a_damaged_database_ends_the_service(
    tmp_path: Path, certs: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent_agg.service.CLOSE_AGAIN", Backoff(first=0.01))

    async def close() -> None:
        keys = Deciding(certs)
        keep = dt.timedelta(days=1)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address, Faulty, keep=keep) as net:
            store = net.server.store
            assert isinstance(store, Faulty)
            await until(lambda: not store.faults)
            analyst, query = await net.analyst(), aggregation.make_query(closes_after=60)
            await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            await until(lambda: "cannot be pruned" in caplog.text)
            await asyncio.sleep(0.1)  # the server goes to wait for its clock
            assert store.prunings == 0
            await net.clock.move_to(START + dt.timedelta(seconds=60))
            await until(lambda: bool(keys.heads) and store.prunings == 1)
            store.faults["due"] = BadStore("it is damaged")
            await analyst.Announce(wire.AnnounceRequest(query=aggregation.make_query().to_bytes()))
            with pytest.raises(BadStore, match="it is damaged"):
                await net.service.wait()

    run(close())


def test_more_phones_are_asked_as_soon_as_they_are_there(tmp_path: Path, certs: Path) -> None:
    async def call() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst = await net.analyst()
            await analyst.GetTerms(wire.TermsRequest())
            net.server.queries.learn(KeyServer().terms(population=5))
            query = aggregation.make_query(population=6)  # one has joined since
            assert (await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))).phase == wire.COLLECTING
            huge = wire.AnnounceRequest(query=aggregation.make_query(population=2_000_000, cohorts=100_000).to_bytes())
            assert (await refusal_of(analyst.Announce(huge))).refusal is Refusal.TOO_FEW_ENROLLED

    run(call())


def test_only_analysts_may_ask(tmp_path: Path, certs: Path) -> None:
    async def call() -> None:
        async with network(tmp_path, certs, "127.0.0.1:1") as net:
            for name in ("keys", "aggregation"):
                stub = await net.analyst(name)
                assert (await refusal_of(stub.List(wire.ListRequest()))).refusal is Refusal.NOT_PERMITTED
            with pytest.raises(Unreachable):
                await reply_of((await net.analyst(None)).List(wire.ListRequest()))
            other = counting_pb2_grpc.CountingStub(await net.way(net.service.phones_address, "ann"))
            with pytest.raises(Unreachable, match="UNIMPLEMENTED"):
                await reply_of(other.List(wire.ListRequest()))
            assert not (await (await net.analyst()).List(wire.ListRequest())).queries

    run(call())


METHODS = {
    "Collecting/Announcements": "phones",
    "Collecting/Query": "phones",
    "Collecting/Key": "phones",
    "Collecting/Contribute": "phones",
    "Collecting/Decisions": "phones",
    "Counting/Announce": "analysts",
    "Counting/Status": "analysts",
    "Counting/Abort": "analysts",
    "Counting/List": "analysts",
}
"""All methods whose requests have content."""


def test_every_method_with_content_gets_malformed_messages() -> None:
    services = wire.DESCRIPTOR.services_by_name
    declared = {
        f"{service}/{method.name}"
        for service in ("Collecting", "Counting")
        for method in services[service].methods
        if method.input_type.fields
    }
    assert declared == METHODS.keys()


def test_strangers_get_typed_errors_and_change_nothing(tmp_path: Path, certs: Path) -> None:
    async def disturb() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            query = aggregation.make_query()
            analyst, phones = await net.analyst(), await net.phones()
            status = await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            ways = {
                "phones": await net.way(net.service.phones_address, None),
                "analysts": await net.way(net.service.analysts_address, "ann"),
            }
            for name, way in METHODS.items():
                call: Any = ways[way].unary_unary(f"/reticent.v1.{name}")
                for content in (b"\xff", b"\x0a\x05ab", bytes(100)):
                    assert (await refusal_of(call(content))).refusal is Refusal.MALFORMED, name
                assert (await refusal_of(call(bytes(2 << 20)))).refusal is Refusal.OVERSIZED, name
            long = Phone(0).contribution(query, ciphertexts=bytes(200_000))
            assert (await refusal_of(phones.Contribute(long))).refusal is Refusal.BAD_CIPHERTEXTS
            assert (await refusal_of(phones.Contribute(wire.Contribution()))).refusal is Refusal.MALFORMED
            assert await analyst.Status(wire.StatusRequest(id=query.id)) == status
            await phones.Contribute(Phone(0).contribution(query))

    run(disturb())


def test_a_phone_that_calls_too_often_waits_and_no_other_does(tmp_path: Path, certs: Path) -> None:
    async def flood() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            query = aggregation.make_query()
            await (await net.analyst()).Announce(wire.AnnounceRequest(query=query.to_bytes()))
            phones, message = await net.phones(), Phone(0).contribution(query)
            outcomes = await all_replies(reply_of(phones.Contribute(message)) for _ in range(250))
            busy = [each for each in outcomes if isinstance(each, Refused)]
            assert len(outcomes) - len(busy) >= 100
            assert {each.refusal for each in busy} == {Refusal.BUSY}
            assert all(each.retry_after for each in busy)
            await phones.Contribute(Phone(1).contribution(query))

    run(flood())


class Counted(SqlStore):
    """A store that counts how often a decision is looked for."""

    looked = 0

    def decision_for_phones(self, digest: bytes, cohort: int) -> wire.Decision | None:
        self.looked += 1
        return super().decision_for_phones(digest, cohort)


def test_a_stranger_who_wants_everything_keeps_no_phone_waiting(tmp_path: Path, certs: Path) -> None:
    """A message may hold very many empty questions: it is refused before anybody waits behind it."""

    async def want() -> None:
        async with network(tmp_path, certs, "127.0.0.1:1", Counted) as net:
            way = await net.way(net.service.phones_address, None)
            call: Any = way.unary_unary("/reticent.v1.Collecting/Decisions")
            for many in (1001, 100_000):
                assert (await refusal_of(call(b"\x0a\x00" * many))).refusal is Refusal.OVERSIZED
            await call(b"\x0a\x00" * 1000)
            assert isinstance(net.server.store, Counted)
            assert net.server.store.looked == 1000
            for name in ("Announcements", "Key", "Decisions"):
                call = way.unary_unary(f"/reticent.v1.Collecting/{name}")
                long = wire.KeyRequest(key_id=bytes(1 << 16)).SerializeToString()  # the others say no more
                assert (await refusal_of(call(long))).refusal is Refusal.OVERSIZED, name

    run(want())


def test_nothing_is_remembered_of_who_cannot_be_a_phone(tmp_path: Path, certs: Path) -> None:
    async def flood() -> None:
        async with network(tmp_path, certs, "127.0.0.1:1") as net:
            phones = await net.phones()
            calls = (phones.Contribute(wire.Contribution(phone=bytes(200_000))) for _ in range(110))
            refused = await all_replies(map(refusal_of, calls))
            assert {each.refusal for each in refused if isinstance(each, Refused)} == {Refusal.MALFORMED}
            assert len(refused) == 110  # BUSY would be from memory

    run(flood())


def junk(query: Query) -> st.SearchStrategy[wire.Contribution]:
    """Contributions in which some parts are right."""
    right = Phone(0).contribution(query)

    def either(good: bytes) -> st.SearchStrategy[bytes]:
        return st.just(good) | st.binary(max_size=80) | st.binary(min_size=len(good), max_size=len(good))

    parts: Mapping[str, st.SearchStrategy[Any]] = {
        "query": either(right.query),
        "phone": either(right.phone),
        "cohort": st.just(0) | st.integers(0, 2**32 - 1),
        "ciphertexts": either(right.ciphertexts),
        "seeded": st.booleans(),
        "signature": either(right.signature),
    }
    return st.builds(wire.Contribution, **parts)


def test_no_contribution_but_the_right_one_is_taken_in() -> None:
    time = aggregation.Time()
    server = aggregation.opened(None, time)
    query = aggregation.collecting(server, aggregation.make_query())
    right = Phone(0).contribution(query)

    @given(st.lists(junk(query), min_size=1, max_size=4))
    @settings(max_examples=300, deadline=None)
    def check(sent: list[wire.Contribution]) -> None:
        for message, outcome in zip(sent, server.collection.contribute(sent), strict=True):
            assert (
                isinstance(outcome, Refused)
                or message == right
                or ((message.ciphertexts, message.seeded) == (right.ciphertexts, right.seeded))
            )

    check()
    assert aggregation.outcome_names(server.collection.contribute([right, Phone(1).contribution(query)])) == [
        "ok",
        "ok",
    ]
    (head,) = aggregation.closed(server, time, query)
    assert aggregation.phones_in(head) == {0, 1}
    server.close()
