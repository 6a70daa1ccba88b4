"""A key server that is away, refuses, or will never decide: what the aggregation server makes of it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path

import pytest

from reticent.privacy import Query
from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_agg import SqlStore
from reticent_sim.engine.addresses import free_address
from tests.agg.network import ANN, Deciding, network, phase, refusal_of, run
from tests.parties import aggregation
from tests.parties.aggregation import KeyServer, Phone
from tests.parties.waiting import until

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


def test_a_key_server_that_is_away_is_waited_for(tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait() -> None:
        keys = Deciding(certs)
        address = free_address()
        query = aggregation.make_query(enough=2)
        async with network(tmp_path, certs, address) as net:
            analyst, phones = await net.analyst(), await net.phones()
            announce = wire.AnnounceRequest(query=query.to_bytes())
            assert (await refusal_of(analyst.GetTerms(wire.TermsRequest()))).refusal is Refusal.UNAVAILABLE
            assert (await refusal_of(analyst.Announce(announce))).refusal is Refusal.UNAVAILABLE
            net.server.queries.learn(KeyServer().terms())
            assert (await analyst.Announce(announce)).phase == wire.ANNOUNCED
            async with keys.listener(address):
                await until(lambda: not aggregation.uncountersigned(net.server))
            wanted = wire.StatusRequest(id=query.id)
            with monkeypatch.context() as patch:
                # If no poll is due, only the end of the decision's wait for a connection shows that it is away again.
                patch.setattr("reticent_agg.driver.CALLER_TIMEOUT", 0.2)
                for number in range(2):
                    await phones.Contribute(Phone(number).contribution(query))
                await until(lambda: len(aggregation.requests(net.server)) == 1)
                await until(lambda: net.service._driver.is_key_server_unavailable)
            status = await analyst.Status(wanted)
            assert (status.phase, status.key_server_unavailable) == (wire.CLOSING, True)
            assert list((await analyst.List(wire.ListRequest())).queries) == [status]
        async with keys.listener(address), network(tmp_path, certs, address) as net:  # after a restart as well
            await until(lambda: not aggregation.requests(net.server))
            assert not (await (await net.analyst()).Status(wanted)).key_server_unavailable
            assert aggregation.phones_in(keys.heads[-1]) == {0, 1}

    run(wait())


def log_lines(caplog: pytest.LogCaptureFixture, words: str) -> int:
    """The number of log lines with these words."""
    return sum(words in record.getMessage() for record in caplog.records)


def test_a_key_server_that_is_away_is_logged_once_and_once_when_it_is_back(
    tmp_path: Path, certs: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent_agg.driver.POLL_INTERVAL", 0.2)
    caplog.set_level("DEBUG", "reticent_agg.driver")

    async def wait() -> None:
        keys = Deciding(certs)
        address = free_address()
        async with network(tmp_path, certs, address) as net:
            await until(lambda: log_lines(caplog, "the key server is unavailable") == 1)
            net.server.queries.learn(KeyServer().terms())
            query = aggregation.make_query()
            aggregation.announce(net.server, query)
            before = log_lines(caplog, "the key server's terms are unknown")
            await until(lambda: log_lines(caplog, "the key server's terms are unknown") >= before + 3)
            async with keys.listener(address):
                await until(lambda: log_lines(caplog, "the key server is back") == 1)
            await until(lambda: log_lines(caplog, "the key server is unavailable") == 2)

    run(wait())


def test_a_key_server_that_replies_again_is_noticed_without_any_other_call(
    tmp_path: Path, certs: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An analyst's call finds it away; long before the next usual look, the log names both changes."""
    monkeypatch.setattr("reticent_agg.driver.POLL_INTERVAL", 3600.0)
    monkeypatch.setattr("reticent_agg.driver.RETRY_INTERVAL", 0.2)
    caplog.set_level("INFO", "reticent_agg.driver")

    async def wait() -> None:
        keys = Deciding(certs)
        async with contextlib.AsyncExitStack() as stack:
            address = free_address()
            await stack.enter_async_context(keys.listener(address))
            async with network(tmp_path, certs, address) as net:
                analyst = await net.analyst()
                await analyst.GetTerms(wire.TermsRequest())
                await stack.aclose()
                assert (await refusal_of(analyst.GetTerms(wire.TermsRequest()))).refusal is Refusal.UNAVAILABLE
                assert log_lines(caplog, "the key server is unavailable") == 1
                async with keys.listener(address):
                    await until(lambda: log_lines(caplog, "the key server is back") == 1)

    run(wait())


def test_a_busy_key_server_is_called_again_after_the_stated_delay(
    tmp_path: Path, certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst = await net.analyst()
            for seconds, delay in ((20.0, "20.0"), (3600.0, "30.0")):  # a server does not silence the driver for ever
                query = aggregation.make_query()
                keys.faults[query.digest] = Refused(Refusal.BUSY, retry_after=seconds)
                announced = await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
                assert announced.phase == wire.ANNOUNCED
                assert f"{query.id!r} is not countersigned; retry in {delay} s: BUSY" in caplog.text

    run(refuse())


def test_what_the_key_server_refuses_the_analyst_is_told(tmp_path: Path, certs: Path) -> None:
    async def refuse() -> None:
        keys = Deciding(certs, refuses=Refusal.TOO_FEW_ENROLLED)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, query = await net.analyst(), aggregation.make_query()
            announce = wire.AnnounceRequest(query=query.to_bytes())
            assert (await refusal_of(analyst.Announce(announce))).refusal is Refusal.TOO_FEW_ENROLLED
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
            analyst, phones, query = (
                await net.analyst(),
                await net.phones(),
                aggregation.make_query(cohorts=2, enough=2),
            )
            await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            keys.refuses = Refusal.BAD_RECEIPTS
            await asyncio.gather(*(phones.Contribute(Phone(number).contribution(query)) for number in range(4)))
            await until(lambda: len(keys.heads) >= 4)
            first, again = (sorted(heads, key=lambda head: head.cohort) for heads in (keys.heads[:2], keys.heads[2:4]))
            assert [head.cohort for head in first] == [0, 1]
            assert first == again
            keys.refuses = None
            await until(lambda: not aggregation.requests(net.server))

    run(refuse())


WRONG = {
    "fault": RuntimeError("the pair of an older key cannot be opened"),
    "refusal": Refused(Refusal.UNAVAILABLE, "not this one"),
    "forgery": None,
}


def spoil(keys: Deciding, query: Query, wrong: str) -> None:
    """Have the key server fail with one query."""
    fault = WRONG[wrong]
    if fault is None:
        keys.forges.add(query.digest)
    else:
        keys.faults[query.digest] = fault


def mend(keys: Deciding) -> None:
    keys.faults.clear()
    keys.forges.clear()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_cohort_that_cannot_be_decided_keeps_no_other_waiting(tmp_path: Path, certs: Path, wrong: str) -> None:
    async def decide() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, phones = await net.analyst(), await net.phones()
            first, second = aggregation.make_query(enough=2), aggregation.make_query(enough=2)
            spoil(keys, first, wrong)
            keys.forges, forged = set(), keys.forges  # it is countersigned rightly
            faults, keys.faults = keys.faults, {}
            for query in (first, second):
                await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            keys.forges, keys.faults = forged, faults
            for query in (first, second):
                await asyncio.gather(*(phones.Contribute(Phone(number).contribution(query)) for number in range(2)))
            await until(lambda: phase(net, second) == wire.DECIDED)
            assert phase(net, first) == wire.CLOSING
            mend(keys)
            await until(lambda: phase(net, first) == wire.DECIDED)

    run(decide())


@pytest.mark.parametrize("wrong", WRONG)
def test_a_query_that_cannot_be_countersigned_keeps_no_other_waiting(tmp_path: Path, certs: Path, wrong: str) -> None:
    async def countersign() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst = await net.analyst()
            first, second = aggregation.make_query(), aggregation.make_query()
            spoil(keys, first, wrong)
            assert (await analyst.Announce(wire.AnnounceRequest(query=first.to_bytes()))).phase == wire.ANNOUNCED
            assert (await analyst.Announce(wire.AnnounceRequest(query=second.to_bytes()))).phase == wire.COLLECTING
            mend(keys)
            await until(lambda: phase(net, first) == wire.COLLECTING)

    run(countersign())


def test_a_key_server_that_hangs_over_one_query_delays_no_other(
    tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never answers about one query; the others are countersigned and decided meanwhile, a few at a time."""
    monkeypatch.setattr("reticent_agg.driver.CALLER_TIMEOUT", 0.5)
    monkeypatch.setattr("reticent_agg.driver.MAX_CALLS", 3)

    async def hang() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, phones = await net.analyst(), await net.phones()
            first, *others = (aggregation.make_query(enough=2) for _ in range(11))
            keys.hangs.add(first.digest)
            net.server.queries.learn(keys.keys.terms())
            for query in (first, *others):
                aggregation.announce(net.server, query, ANN)
            assert (await analyst.Announce(wire.AnnounceRequest(query=first.to_bytes()))).phase == wire.ANNOUNCED
            await until(lambda: all(phase(net, query) == wire.COLLECTING for query in others))
            assert phase(net, first) == wire.ANNOUNCED
            net.server.queries.countersign(first, keys.keys.deals(first))
            for query in (first, *others):
                await asyncio.gather(*(phones.Contribute(Phone(number).contribution(query)) for number in range(2)))
            await until(lambda: all(phase(net, query) == wire.DECIDED for query in others))
            assert phase(net, first) == wire.CLOSING
            assert [head.query for head in keys.heads].count(first.digest) == 1
            assert keys.most_at_a_time <= 3

    run(hang())


def test_calls_that_hang_end_and_what_failed_comes_last(
    tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many calls as run at a time hang: the others wait until these time out, and come before they are repeated."""
    monkeypatch.setattr("reticent_agg.driver.REPLY_TIMEOUT", 0.5)
    monkeypatch.setattr("reticent_agg.driver.MAX_CALLS", 2)

    async def hang() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            net.server.queries.learn(keys.keys.terms())
            queries = [aggregation.make_query(enough=2) for _ in range(4)]
            keys.hangs.update(query.digest for query in queries[:2])
            for query in queries:
                aggregation.announce(net.server, query, ANN)
                net.server.queries.countersign(query, keys.keys.deals(query))
                net.server.collection.contribute([Phone(number).contribution(query) for number in range(2)])
            net.service._must_close.set()
            await until(lambda: all(phase(net, query) == wire.DECIDED for query in queries[2:]))
            assert {head.query for head in keys.heads[:2]} == keys.hangs
            assert keys.most_at_a_time == 2
            keys.hangs.clear()
            await until(lambda: all(phase(net, query) == wire.DECIDED for query in queries[:2]))

    run(hang())


class FailsOnce(SqlStore):
    """A store whose disk fails once, while a request is read from it."""

    has_failed = False

    def receipts(self, digest: bytes, cohort: int, after: bytes, limit: int) -> list[wire.Receipt]:
        if not self.has_failed:
            self.has_failed = True
            raise OSError("the disk fails")
        return super().receipts(digest, cohort, after, limit)


def test_a_request_that_cannot_be_read_is_read_again(tmp_path: Path, certs: Path) -> None:
    async def decide() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address, FailsOnce) as net:
            analyst, phones, query = await net.analyst(), await net.phones(), aggregation.make_query(enough=2)
            await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            await asyncio.gather(*(phones.Contribute(Phone(number).contribution(query)) for number in range(2)))
            await until(lambda: phase(net, query) == wire.DECIDED)

    run(decide())


@pytest.mark.parametrize("refusal", [Refusal.KEY_RETIRED, Refusal.UNKNOWN_QUERY])
def test_what_will_never_be_decided_is_asked_rarely_and_named(
    tmp_path: Path,
    certs: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
) -> None:
    monkeypatch.setattr("reticent_agg.driver.POLL_INTERVAL", 0.1)

    async def refuse() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, phones = await net.analyst(), await net.phones()
            lost, other = aggregation.make_query(enough=2), aggregation.make_query(enough=2)
            for query in (lost, other):
                await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            keys.refuses = refusal
            for number in range(2):
                await phones.Contribute(Phone(number).contribution(lost))
            await until(lambda: phase(net, lost) == wire.LOST)
            assert len(keys.heads) == 1
            warning = rf"cohort 0 of {lost.id!r} is not decided; retry in (\d+\.\d) s: {refusal.name}"
            await until(lambda: re.search(warning, caplog.text) is not None)
            [pause] = re.findall(warning, caplog.text)
            assert 1800.0 <= float(pause) <= 3600.0
            keys.refuses = None
            for number in range(2):
                await phones.Contribute(Phone(number).contribution(other))
            await until(lambda: phase(net, other) == wire.DECIDED)  # the others are not kept waiting
            assert [head.query for head in keys.heads] == [lost.digest, other.digest]

    run(refuse())
