"""The aggregation server on the network: over TLS, with a key server that may be away, and with strangers."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.clock import ManualClock
from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import answered
from reticent.randomness import secure
from reticent.server import Caller, Door, Listener
from reticent.server.certificates import AGGREGATION_SERVER, Certificate, channel, channel_credentials, create
from reticent.server.door import stream_in, stream_out, unary
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_agg import AggregationServer
from reticent_agg.batches import Batches
from reticent_agg.collection import Outcome
from reticent_agg.service import AggregationService
from tests.agg import parties
from tests.agg.parties import START, KeyServer, Phone

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all

LOCAL = "127.0.0.1:0"
DEADLINE = 30.0
DECIDING = "reticent.v1.Deciding"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs") / "certs"
    create(folder, hosts=["127.0.0.1"], analysts=["ann"], days=2)
    return folder


@dataclass
class Deciding:
    """A key server on the network, with what it was asked."""

    certs: Path
    refuses: Refusal | None = None
    heads: list[wire.DecideHead] = field(default_factory=list)
    keys: KeyServer = field(default_factory=KeyServer)

    def listener(self, address: str = LOCAL) -> Listener:
        door = Door((AGGREGATION_SERVER,))
        methods = {
            "Standing": unary(door, wire.StandingRequest, self.standing),
            "Countersign": stream_out(door, wire.CountersignRequest, self.countersign),
            "Decide": stream_in(door, wire.DecideRequest, self.decide),
        }
        credentials = Certificate.load(self.certs, "keys").server_credentials(callers_show_theirs=True)
        return Listener(address, {DECIDING: methods}, credentials=credentials)

    async def standing(self, _: wire.StandingRequest, _caller: Caller) -> wire.Terms:
        return self.keys.terms()

    async def countersign(self, asked: wire.CountersignRequest, _: Caller) -> AsyncIterator[wire.Deal]:
        if self.refuses is not None:
            raise Refused(self.refuses, "as the test says")
        for deal in self.keys.deals(Query.from_bytes(asked.query)):
            yield deal

    async def decide(self, messages: AsyncIterator[wire.DecideRequest], _: Caller) -> wire.Decision:
        found = [message async for message in messages]
        self.heads.append(found[0].head)
        if self.refuses is not None:
            raise Refused(self.refuses, "as the test says")
        return self.keys.decision(found[0].head, [each for more in found[1:] for each in more.receipts.receipts])


@dataclass
class Network:
    """A server that serves, with ways to it."""

    server: AggregationServer
    service: AggregationService
    clock: ManualClock
    certs: Path
    stack: contextlib.AsyncExitStack

    async def way(self, address: str, name: str | None) -> grpc.aio.Channel:
        if name is None:
            credentials = channel_credentials(Certificate.load(self.certs, "ann").authority)
        else:
            credentials = Certificate.load(self.certs, name).channel_credentials()
        return await self.stack.enter_async_context(channel(address, credentials))

    async def phones(self) -> counting_pb2_grpc.CollectingAsyncStub:
        return counting_pb2_grpc.CollectingStub(await self.way(self.service.phones_address, None))

    async def analyst(self, name: str | None = "ann") -> counting_pb2_grpc.CountingAsyncStub:
        return counting_pb2_grpc.CountingStub(await self.way(self.service.analysts_address, name))


@contextlib.asynccontextmanager
async def network(folder: Path, certs: Path, key_server: str) -> AsyncIterator[Network]:
    clock = ManualClock(START)
    server = AggregationServer(
        folder / "aggregation.db", identity=KeyServer.identity.public, now=clock.now, rng=secure(), simulation=True
    )
    mine = Certificate.load(certs, "aggregation")
    with contextlib.closing(server):
        async with (
            channel(key_server, mine.channel_credentials()) as way,
            AggregationService(
                server,
                clock=clock,
                key_server=way,
                phones=LOCAL,
                analysts=LOCAL,
                phones_credentials=mine.server_credentials(callers_show_theirs=False),
                analysts_credentials=mine.server_credentials(callers_show_theirs=True),
            ) as service,
            contextlib.AsyncExitStack() as stack,
        ):
            yield Network(server, service, clock, certs, stack)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, DEADLINE))


async def until(true: Callable[[], bool]) -> None:
    """Wait for what happens in a moment."""
    while not true():  # noqa: ASYNC110  # nobody tells a test
        await asyncio.sleep(0.01)


async def refusal_of(call: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await answered(call)
    return caught.value


def test_a_query_lives_from_the_analyst_to_the_phones_and_back(tmp_path: Path, certs: Path) -> None:
    async def live() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, phones = await net.analyst(), await net.phones()
            assert await analyst.Standing(wire.StandingRequest()) == KeyServer().terms()
            query = parties.ask(population=8, cohorts=2, enough=3, fewest=2)
            status = await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            assert (status.phase, len(status.cohorts)) == (wire.COLLECTING, 2)
            (heard,) = (await phones.Announcements(wire.AnnouncementsRequest(phone=Phone(3).id))).announcements
            assert (heard.query, heard.cohort) == (query.to_bytes(), 1)
            key = await phones.Key(wire.KeyRequest(key_id=bytes.fromhex(query.key_id)))
            assert key.public_key == parties.pair().public.to_bytes()
            sent = [Phone(number).contribution(query) for number in range(6)]
            await asyncio.gather(*(phones.Contribute(each) for each in [*sent, *sent]))  # enough, and each twice
            await until(lambda: not net.server.requests() and bool(keys.heads))
            status = await analyst.Status(wire.StatusRequest(id=query.id))
            assert status.phase == wire.DECIDED
            wanted = wire.DecisionsRequest(wanted=[wire.DecisionWanted(query=query.digest, cohort=0)])
            assert list((await phones.Decisions(wanted)).decisions) == [status.cohorts[0].decision]
            assert [parties.phones_in(head) for head in keys.heads] == [{0, 2, 4}, {1, 3, 5}]
            assert (await refusal_of(phones.Contribute(Phone(6).contribution(query)))).refusal is Refusal.LATE
            assert list((await analyst.List(wire.ListRequest())).queries) == [status]

    run(live())


def test_queries_are_closed_by_the_clock(tmp_path: Path, certs: Path) -> None:
    async def close() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, phones = await net.analyst(), await net.phones()
            first, second = parties.ask(), parties.ask(closes_after=60)
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
            await until(lambda: not net.server.requests())
            assert not keys.heads[1].ciphertexts
            assert (await analyst.Status(wire.StatusRequest(id=first.id))).cohorts[0].decision.outcome == wire.BURNT

    run(close())


def test_a_key_server_that_is_away_is_waited_for(tmp_path: Path, certs: Path) -> None:
    async def wait() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener:
            address = listener.address
        query = parties.ask(enough=2)
        async with network(tmp_path, certs, address) as net:
            analyst, phones = await net.analyst(), await net.phones()
            announce = wire.AnnounceRequest(query=query.to_bytes())
            assert (await refusal_of(analyst.Standing(wire.StandingRequest()))).refusal is Refusal.UNAVAILABLE
            assert (await refusal_of(analyst.Announce(announce))).refusal is Refusal.UNAVAILABLE
            net.server.learned(KeyServer().terms())
            assert (await analyst.Announce(announce)).phase == wire.ANNOUNCED
            async with keys.listener(address):
                await until(lambda: not net.server.uncountersigned())
            for number in range(2):
                await phones.Contribute(Phone(number).contribution(query))
            assert len(net.server.requests()) == 1  # and the key server is away again
        async with keys.listener(address), network(tmp_path, certs, address) as net:  # after a restart as well
            await until(lambda: not net.server.requests())
            assert parties.phones_in(keys.heads[-1]) == {0, 1}

    run(wait())


def test_what_the_key_server_refuses_the_analyst_is_told(tmp_path: Path, certs: Path) -> None:
    async def refuse() -> None:
        keys = Deciding(certs, refuses=Refusal.NOT_ENROLLED_ENOUGH)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, query = await net.analyst(), parties.ask()
            announce = wire.AnnounceRequest(query=query.to_bytes())
            assert (await refusal_of(analyst.Announce(announce))).refusal is Refusal.NOT_ENROLLED_ENOUGH
            status = analyst.Status(wire.StatusRequest(id=query.id))
            assert (await refusal_of(status)).detail == "as the test says"
            keys.refuses = None
            assert (await analyst.Announce(announce)).phase == wire.COLLECTING

    run(refuse())


def test_a_key_server_that_refuses_to_decide_is_asked_again_and_keeps_nobody_else_waiting(
    tmp_path: Path, certs: Path
) -> None:
    async def refuse() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, phones, query = await net.analyst(), await net.phones(), parties.ask(cohorts=2, enough=2)
            await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            keys.refuses = Refusal.BAD_RECEIPTS
            await asyncio.gather(*(phones.Contribute(Phone(number).contribution(query)) for number in range(4)))
            await until(lambda: len(keys.heads) >= 4)
            assert [head.cohort for head in keys.heads[:4]] == [0, 1, 0, 1]
            assert keys.heads[:2] == keys.heads[2:4]
            keys.refuses = None
            await until(lambda: not net.server.requests())

    run(refuse())


def test_only_analysts_may_ask(tmp_path: Path, certs: Path) -> None:
    async def ask() -> None:
        async with network(tmp_path, certs, "127.0.0.1:1") as net:
            for name in ("keys", "aggregation"):
                stub = await net.analyst(name)
                assert (await refusal_of(stub.List(wire.ListRequest()))).refusal is Refusal.NOT_PERMITTED
            with pytest.raises(Unreachable):
                await answered((await net.analyst(None)).List(wire.ListRequest()))
            other = counting_pb2_grpc.CountingStub(await net.way(net.service.phones_address, "ann"))
            with pytest.raises(Unreachable, match="UNIMPLEMENTED"):
                await answered(other.List(wire.ListRequest()))
            assert not (await (await net.analyst()).List(wire.ListRequest())).queries

    run(ask())


METHODS = {
    "Collecting/Announcements": "phones",
    "Collecting/Key": "phones",
    "Collecting/Contribute": "phones",
    "Collecting/Decisions": "phones",
    "Counting/Announce": "analysts",
    "Counting/Status": "analysts",
    "Counting/Abort": "analysts",
}


def test_strangers_get_typed_errors_and_change_nothing(tmp_path: Path, certs: Path) -> None:
    async def disturb() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            query = parties.ask()
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
            query = parties.ask()
            await (await net.analyst()).Announce(wire.AnnounceRequest(query=query.to_bytes()))
            phones, message = await net.phones(), Phone(0).contribution(query)
            outcomes = await asyncio.gather(
                *(answered(phones.Contribute(message)) for _ in range(250)), return_exceptions=True
            )
            busy = [each for each in outcomes if isinstance(each, Refused)]
            assert len(outcomes) - len(busy) >= 100
            assert {each.refusal for each in busy} == {Refusal.BUSY}
            assert all(each.retry_after for each in busy)
            await phones.Contribute(Phone(1).contribution(query))

    run(flood())


def test_what_finds_no_room_is_told_when_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent_agg.batches.MOST_WAITING", 5)
    monkeypatch.setattr("reticent_agg.batches.MOST_BYTES_WAITING", 100)
    monkeypatch.setattr("reticent_agg.batches.MOST_AT_ONCE", 3)
    taken: list[int] = []

    async def fill() -> None:
        go = asyncio.Event()

        async def take(contributions: Any) -> list[Outcome]:
            await go.wait()
            taken.append(len(contributions))
            return [wire.Acknowledgement(contribution=each.phone) for each in contributions]

        batches = Batches(take)
        small, large = wire.Contribution(phone=b"p"), wire.Contribution(ciphertexts=bytes(100))
        waiting = [asyncio.create_task(batches.add(small)) for _ in range(8)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        full = [each for each in waiting if each.done()]
        assert len(full) == 3
        for each in full:
            error = each.exception()
            assert isinstance(error, Refused)
            assert (error.refusal, error.retry_after) == (Refusal.BUSY, 1.0)
        go.set()
        assert [await each for each in waiting if each not in full] == [wire.Acknowledgement(contribution=b"p")] * 5
        go.clear()
        more = [asyncio.create_task(batches.add(large)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert isinstance(more[1].exception(), Refused)  # by its bytes
        go.set()
        await more[0]

    run(fill())
    assert taken == [3, 2, 1]


def test_a_disk_that_fails_is_told_and_the_next_ones_are_served() -> None:
    faults: Iterator[Exception | None] = iter([OSError("full"), ZeroDivisionError(), None])

    async def fail() -> None:
        async def take(contributions: Any) -> list[Outcome]:
            if (fault := next(faults)) is not None:
                raise fault
            return [wire.Acknowledgement()] * len(contributions)

        batches = Batches(take)
        with pytest.raises(Refused) as caught:
            await batches.add(wire.Contribution())
        assert (caught.value.refusal, caught.value.retry_after) == (Refusal.UNAVAILABLE, 1.0)
        with pytest.raises(ZeroDivisionError):
            await batches.add(wire.Contribution())
        assert await batches.add(wire.Contribution()) == wire.Acknowledgement()

    run(fail())


def test_who_has_gone_does_not_keep_the_others_from_their_answers() -> None:
    async def leave() -> None:
        async def take(contributions: Any) -> list[Outcome]:
            await asyncio.sleep(0.01)
            return [wire.Acknowledgement()] * len(contributions)

        batches = Batches(take)
        gone, stays = (asyncio.create_task(batches.add(wire.Contribution())) for _ in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == wire.Acknowledgement()

    run(leave())


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
    time = parties.Time()
    server = parties.opened(None, time)
    query = parties.collecting(server, parties.ask())
    right = Phone(0).contribution(query)

    @given(st.lists(junk(query), min_size=1, max_size=4))
    @settings(max_examples=300, deadline=None)
    def check(sent: list[wire.Contribution]) -> None:
        for message, outcome in zip(sent, server.contribute(sent), strict=True):
            assert (
                isinstance(outcome, Refused)
                or message == right
                or ((message.ciphertexts, message.seeded) == (right.ciphertexts, right.seeded))
            )

    check()
    assert parties.said_to(server.contribute([right, Phone(1).contribution(query)])) == ["ok", "ok"]
    (head,) = parties.closed(server, time, query)
    assert parties.phones_in(head) == {0, 1}
    server.close()


def test_a_key_server_that_is_away_is_logged_once_and_once_when_it_is_back(
    tmp_path: Path, certs: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent_agg.link.LONGEST", 0.2)
    caplog.set_level("INFO", "reticent_agg.link")

    def logged(what: str) -> int:
        return sum(what in record.getMessage() for record in caplog.records)

    async def wait() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener:
            address = listener.address
        async with network(tmp_path, certs, address) as net:
            await until(lambda: logged("the key server is away") == 1)
            net.server.learned(KeyServer().terms())
            query = parties.ask()
            net.server.announce(wire.AnnounceRequest(query=query.to_bytes()))
            await asyncio.sleep(1)
            async with keys.listener(address):
                await until(lambda: logged("the key server is back") == 1)
            await until(lambda: logged("the key server is away") == 2)

    run(wait())


def test_what_will_never_be_decided_is_asked_rarely_and_named(
    tmp_path: Path, certs: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent_agg.link.LONGEST", 0.1)

    async def refuse() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, phones = await net.analyst(), await net.phones()
            lost, other = parties.ask(enough=2), parties.ask(enough=2)
            for query in (lost, other):
                await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            keys.refuses = Refusal.KEY_RETIRED
            for number in range(2):
                await phones.Contribute(Phone(number).contribution(lost))
            await until(lambda: net.server.status(wire.StatusRequest(id=lost.id)).phase == wire.LOST)
            await asyncio.sleep(1)
            assert len(keys.heads) == 1
            assert f"cohort 0 of {lost.id!r} is not decided, asked again in 3600.0 s: KEY_RETIRED" in caplog.text
            keys.refuses = None
            for number in range(2):
                await phones.Contribute(Phone(number).contribution(other))
            await until(lambda: len(keys.heads) == 2)  # the others are not kept waiting
            await until(lambda: len(net.server.requests()) == 1)

    run(refuse())


def test_more_phones_are_asked_as_soon_as_they_are_there(tmp_path: Path, certs: Path) -> None:
    async def ask() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst = await net.analyst()
            await analyst.Standing(wire.StandingRequest())
            net.server.learned(KeyServer().terms(population=5))
            query = parties.ask(population=6)  # one has joined since
            assert (await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))).phase == wire.COLLECTING
            huge = wire.AnnounceRequest(query=parties.ask(population=2_000_000, cohorts=100_000).to_bytes())
            assert (await refusal_of(analyst.Announce(huge))).refusal is Refusal.NOT_ENROLLED_ENOUGH

    run(ask())
