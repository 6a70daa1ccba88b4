"""Phones that take part while they run: one, or many of one process over one store and one channel."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reticent.privacy import Cost
from reticent.protocol import Unreachable
from reticent.protocol.channels import channel
from reticent.retry import Backoff
from reticent.storage.sql import InUse
from reticent.v1 import counting_pb2 as wire
from reticent_client import Participation, Phone, PhoneStore, Situation
from reticent_client.counting import runner, servers, session
from reticent_client.counting.enrolment import MembershipState
from reticent_client.counting.records import ContributionState, Records
from reticent_client.counting.session import Round
from tests.client.counting.network import Context, Network
from tests.client.counting.world import Servers, query

LIMIT = 30.0  # seconds
PHONES = 12


def _within(work: Awaitable[None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(LIMIT):
            await work

    asyncio.run(run())


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # what is waited for has no event
        await asyncio.sleep(0.01)


class NumberedPhones(Network):
    """Servers that give each phone that joins an id of its own."""

    async def Join(self, request: wire.JoinRequest, context: Context) -> wire.Membership:  # noqa: N802
        await self._called("Join", context)
        number = len(self.servers.phones)
        return self.servers.enrol(request, dt.datetime.now(dt.UTC) + dt.timedelta(days=9), bytes(15) + bytes([number]))


def _phone(store: PhoneStore, **options: object) -> Phone:
    more: dict[str, object] = {"counters": lambda _: {"visits": 1.0}, "simulation": True} | options
    return Phone(store=store, **more)  # type: ignore[arg-type]


def test_a_phone_contributes_from_its_joining_on_and_goes_on_when_it_is_run_again(tmp_path: Path) -> None:
    async def live() -> None:
        network = Network(Servers())
        network.again_in_ms = 1000
        network.queries = [query()]
        with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
            async with network.listening(tmp_path / "certs"):
                async with _phone(store) as phone:
                    await phone.counting.join(network.invitation)
                    await _until(lambda: network.calls["Contribute"] == 1)
                    records = Records(store)
                    await _until(lambda: records.all()[0].state is ContributionState.ACKNOWLEDGED)
                network.outcome = wire.RELEASED
                rounds: list[Round] = []
                async with _phone(store, on_round=rounds.append) as phone:
                    await _until(lambda: bool(rounds))
                    assert [record.state for record in rounds[0].decided] == [ContributionState.RELEASED]
                    await phone.counting.leave()
                    participant = phone.counting.participant
                    assert participant is not None
                    assert participant.enrolment.member is not None
                    assert participant.enrolment.member.state is MembershipState.LEFT
        assert network.calls["Contribute"] == 1

    _within(live())


def test_what_it_declined_for_now_it_contributes_when_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query was fetched before, and is not fetched again."""
    monkeypatch.setattr(session, "MIN_INTERVAL", dt.timedelta(milliseconds=100))

    async def live() -> None:
        network = Network(Servers())
        network.again_in_ms = 1
        network.queries = [query(id="charging")]
        situation = Situation()
        policy = Participation(only_charging=True)
        rounds: list[Round] = []
        with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
            phone = _phone(store, participation=policy, situation=lambda: situation, on_round=rounds.append)
            async with network.listening(tmp_path / "certs"), phone:
                await phone.counting.join(network.invitation)
                await _until(lambda: bool(rounds))
                assert [declined.reason.name for declined in rounds[0].declined] == ["NOT_CHARGING"]
                situation = Situation(charging=True)
                await _until(lambda: network.calls["Contribute"] == 1)
        assert network.calls["Query"] == 1

    _within(live())


def test_many_phones_share_a_store_a_claim_and_the_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def counted(address: str, *rest: Any) -> Any:
        opened.append(address)
        return channel(address, *rest)

    monkeypatch.setattr(servers, "channel", counted)

    async def live() -> None:
        network = NumberedPhones(Servers())
        network.queries = [query(id="many")]
        with contextlib.closing(PhoneStore(tmp_path / "phones.db")) as store:
            async with network.listening(tmp_path / "certs"), contextlib.AsyncExitStack() as stack:
                phones = [_phone(store.of(f"phone {number}")) for number in range(PHONES)]
                for phone in phones:
                    await stack.enter_async_context(phone)
                await phones[0].counting.join(network.invitation)  # one channel, while any of them needs it
                await asyncio.gather(*(phone.counting.join(network.invitation) for phone in phones[1:]))
                await _until(lambda: network.calls["Contribute"] == PHONES)
                with pytest.raises(InUse), store.of("phone 0").claim():
                    pass
            states = [store.of(f"phone {number}").ledger(Cost(4.0, 1e-5)) for number in range(PHONES)]
            assert [[each.state for each in ledger.entries(subject=ledger.subject)] for ledger in states] == [
                ["reserved"]
            ] * PHONES
            with store.of("phone 0").claim(), store.of("phone 0").claim("counting"):
                pass
        assert sorted(set(opened)) == sorted({network.address, network.collecting})
        assert len(opened) <= 4  # joining the first one may have closed its channels before others came
        assert network.calls["Key"] == 1
        assert len({message for messages in network.taken.values() for message in messages}) == PHONES

    _within(live())


def test_joining_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "Backoff", partial(Backoff, first=0.1))

    async def live() -> None:
        network = Network(Servers())
        async with network.listening(tmp_path / "certs"):
            invitation = network.invitation
        with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
            async with _phone(store) as phone:
                with pytest.raises(Unreachable):
                    await phone.counting.join(invitation)
                async with network.listening(tmp_path / "certs"):
                    await _until(lambda: network.calls["Join"] == 1)

    _within(live())


def test_a_phone_that_does_not_poll_makes_a_round_only_when_it_is_told_to(tmp_path: Path) -> None:
    """It requests announcements unless it only waits for decisions."""

    async def live() -> None:
        network = Network(Servers())
        network.again_in_ms = 1
        network.queries = [query()]
        with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
            async with network.listening(tmp_path / "certs"), _phone(store, polling=False) as phone:
                assert await phone.counting.round() is None
                await phone.counting.join(network.invitation)
                await asyncio.sleep(0.05)
                assert dict(network.calls) == {"Join": 1}
                done = await phone.counting.round()
                assert done is not None
                assert [each.state for each in done.contributions] == [ContributionState.ACKNOWLEDGED]
                network.outcome = wire.RELEASED
                done = await phone.counting.round(announcements=False)
                assert done is not None
                assert [each.state for each in done.decided] == [ContributionState.RELEASED]
        assert (network.calls["Announcements"], network.calls["Contribute"]) == (1, 1)

    _within(live())
