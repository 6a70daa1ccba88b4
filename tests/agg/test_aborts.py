"""Aborts by analysts, whatever the key server does meanwhile: what it has not decided is burnt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reticent.protocol import Refusal
from reticent.v1 import counting_pb2 as wire
from tests.agg.network import ANN, DEADLINE, Deciding, network, phase, run
from tests.parties import aggregation
from tests.parties.aggregation import Phone
from tests.parties.waiting import until

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


def test_what_is_aborted_before_it_is_countersigned_is_burnt_then(
    tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent_agg.driver.CALLER_TIMEOUT", 0.2)

    async def abort() -> None:
        keys = Deciding(certs, gate=asyncio.Event())
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, query = await net.analyst(), aggregation.make_query()
            assert keys.gate is not None
            assert (await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))).phase == wire.ANNOUNCED
            assert (await analyst.Abort(wire.AbortRequest(id=query.id))).phase == wire.ANNOUNCED
            keys.gate.set()
            await until(lambda: phase(net, query) == wire.DECIDED)

    run(abort())


def test_an_abort_is_not_kept_waiting_by_what_was_refused_before(
    tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent_agg.work_pool.MIN_PAUSE", 2 * DEADLINE)
    monkeypatch.setattr("reticent_agg.work_pool.MAX_PAUSE", 2 * DEADLINE)

    async def abort() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, phones, query = await net.analyst(), await net.phones(), aggregation.make_query(enough=2)
            await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            keys.refuses = Refusal.BAD_RECEIPTS
            await asyncio.gather(*(phones.Contribute(Phone(number).contribution(query)) for number in range(2)))
            await until(lambda: len(keys.heads) == 1)
            keys.refuses = None
            await analyst.Abort(wire.AbortRequest(id=query.id))
            await until(lambda: phase(net, query) == wire.DECIDED)

    run(abort())


def test_what_was_not_asked_before_an_abort_is_burnt(
    tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the key server was about to be asked for it, and has another cohort in hand."""
    monkeypatch.setattr("reticent_agg.driver.MAX_CALLS", 1)

    async def abort() -> None:
        keys = Deciding(certs, decides=asyncio.Event())
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            analyst, phones, query = (
                await net.analyst(),
                await net.phones(),
                aggregation.make_query(cohorts=3, enough=2),
            )
            assert keys.decides is not None
            await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            await asyncio.gather(*(phones.Contribute(Phone(number).contribution(query)) for number in range(6)))
            await until(lambda: len(keys.heads) == 1)
            assert (await analyst.Abort(wire.AbortRequest(id=query.id))).phase == wire.CLOSING
            keys.decides.set()
            await until(lambda: phase(net, query) == wire.DECIDED)
            assert [(head.cohort, bool(head.ciphertexts)) for head in keys.heads] == [(0, True), (1, False), (2, False)]
            cohorts = net.server.replies.status(wire.StatusRequest(id=query.id), ANN).cohorts
            assert [each.decision.outcome for each in cohorts] == [wire.RELEASED, wire.BURNT, wire.BURNT]

    run(abort())


def test_what_is_aborted_while_the_key_server_is_away_costs_phones_nothing(tmp_path: Path, certs: Path) -> None:
    """Its request was never sent, so *burnt* is believed and passed on to phones."""

    async def abort() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener:
            address, query = listener.address, aggregation.make_query(enough=2)
            async with network(tmp_path, certs, address) as net:
                analyst, phones = await net.analyst(), await net.phones()
                await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
                await listener.__aexit__(None, None, None)
                for number in range(2):
                    await phones.Contribute(Phone(number).contribution(query))
                await until(lambda: phase(net, query) == wire.CLOSING)
                await asyncio.sleep(0.5)  # the driver tries
                await analyst.Abort(wire.AbortRequest(id=query.id))
                async with keys.listener(address):
                    await until(lambda: phase(net, query) == wire.DECIDED)
                wanted = wire.DecisionsRequest(wanted=[wire.DecisionWanted(query=query.digest, cohort=0)])
                [decision] = (await phones.Decisions(wanted)).decisions
                assert decision.outcome == wire.BURNT

    run(abort())
