"""A participant on the network: over TLS, with deadlines, and nothing that fails on the way is lost."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reticent.clock import first_of
from reticent.protocol import Refusal, Refused, Unreachable
from reticent.randomness import seeded
from reticent.retry import Backoff
from reticent.v1 import counting_pb2 as wire
from reticent_client import Situation
from reticent_client.counting.enrolment import MembershipState
from reticent_client.counting.records import ContributionState
from reticent_client.counting.servers import Servers as Channels
from reticent_client.counting.session import DEFAULT_INTERVAL, MAX_INTERVAL, MIN_INTERVAL, Round, enrol, run, take_part
from reticent_client.errors import Reason
from tests.client.counting.network import Network
from tests.client.counting.world import Device, Servers, device, query

DEADLINE = 60.0  # seconds for a test
NOW = Situation()


def _within(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, DEADLINE))


def _channels(network: Network, deadline: float = 10.0) -> Channels:
    return Channels(network.invitation, deadline=deadline)


async def _joined(phone: Device, network: Network) -> None:
    phone.now = dt.datetime.now(dt.UTC)
    phone.participant.enrolment.join(network.invitation)
    async with _channels(network) as servers:
        await enrol(phone.participant, servers)


def _states(phone: Device) -> dict[str, ContributionState]:
    return {record.id: record.state for record in phone.participant.records.all()}


def test_a_phone_joins_contributes_learns_and_leaves(tmp_path: Path) -> None:
    async def live() -> None:
        network = Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"), _channels_of(network) as servers:
                await _joined(phone, network)
                network.queries = [
                    query(),
                    query(id="unknown", counters=[("else", 0, 1), ("more", 0, 1)], l1=2, l2_squared=2),
                ]
                phone.counted = {"visits": 1}
                done = await take_part(phone.participant, servers, NOW)
                assert [record.state for record in done.contributions] == [ContributionState.ACKNOWLEDGED] * 2
                assert done.next_in == dt.timedelta(minutes=1)
                assert (done.failures, done.declined, done.decided) == ((), (), ())
                network.outcome = wire.BURNT
                done = await take_part(phone.participant, servers, NOW, announcements=False)
                assert {record.id for record in done.decided} == {"gym", "unknown"}
                assert phone.accounts() == {}
                assert network.calls["Announcements"] == 1
                done = await take_part(phone.participant, servers, NOW)
                assert network.calls["Announcements"] == 2
                assert network.calls["Contribute"] == 2
                assert network.calls["Key"] == 1
                phone.participant.enrolment.leave()
                done = await take_part(phone.participant, servers, NOW)
                assert phone.participant.enrolment.member is not None
                assert phone.participant.enrolment.member.state is MembershipState.LEFT
                assert network.calls["Announcements"] == 2

    _within(live())


def _channels_of(network: Network) -> Channels:
    """Made late: the port is known only once it listens."""

    class Late(Channels):
        def __init__(self) -> None:
            pass

        async def __aenter__(self) -> Channels:  # type: ignore[override]
            Channels.__init__(self, network.invitation, deadline=10.0)
            return await Channels.__aenter__(self)

    return Late()


@pytest.mark.parametrize(
    ("method", "refused"),
    [
        ("Contribute", Refused(Refusal.BUSY, retry_after=7.0)),
        ("Contribute", Refused(Refusal.UNAVAILABLE)),
        ("Announcements", Refused(Refusal.BUSY, retry_after=7.0)),
        ("Key", Refused(Refusal.UNAVAILABLE)),
        ("Decisions", Refused(Refusal.BUSY)),
    ],
)
def test_what_is_refused_for_now_comes_through_later_unchanged(tmp_path: Path, method: str, refused: Refused) -> None:
    async def live() -> None:
        network = Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"), _channels_of(network) as servers:
                await _joined(phone, network)
                network.queries, network.refusals = [query()], {method: refused}
                done = await take_part(phone.participant, servers, NOW)
                assert [trouble.error.refusal for trouble in done.failures if isinstance(trouble.error, Refused)] == [
                    refused.refusal
                ]
                assert done.retry_after.total_seconds() == pytest.approx(refused.retry_after or 0.0, abs=0.01)
                network.refusals, network.outcome = {}, wire.RELEASED
                phone.pass_time(hours=1)
                phone.restart()
                done = await take_part(phone.participant, servers, NOW)
                assert not done.failures
                assert _states(phone) == {"gym": ContributionState.RELEASED}
                assert phone.accounts() == {"gym": "spent"}
                assert len(set(network.taken[query().digest])) == 1

    _within(live())


def test_a_late_answer_keeps_its_budget_reserved_and_is_not_sent_again(tmp_path: Path) -> None:
    async def live() -> None:
        network = Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"), _channels_of(network) as servers:
                await _joined(phone, network)
                network.queries = [query()]
                network.refusals = {"Contribute": Refused(Refusal.LATE)}
                for _ in range(2):
                    done = await take_part(phone.participant, servers, NOW)
                    assert not done.failures
                    phone.pass_time(hours=2)
                done = await take_part(phone.participant, servers, NOW)
                assert [declined.reason for declined in done.declined] == [Reason.CONTRIBUTED]
                assert network.calls["Contribute"] == 1
                assert phone.accounts() == {"gym": "reserved"}

    _within(live())


@pytest.mark.slow
def test_a_server_that_says_nothing_is_left_by_the_deadline(tmp_path: Path) -> None:
    async def live() -> None:
        network = Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"):
                await _joined(phone, network)
                network.queries = [query()]
                network.silent = {"Contribute"}
                async with _channels(network, deadline=3.0) as servers:
                    done = await take_part(phone.participant, servers, NOW)
                assert [type(trouble.error) for trouble in done.failures] == [Unreachable]
                assert _states(phone) == {"gym": ContributionState.STORED}

    _within(live())


@pytest.mark.parametrize(
    ("milliseconds", "interval"), [(0, DEFAULT_INTERVAL), (1, MIN_INTERVAL), (2**32 - 1, MAX_INTERVAL)]
)
def test_the_interval_that_a_server_names_is_kept_within_bounds(
    tmp_path: Path, milliseconds: int, interval: dt.timedelta
) -> None:
    async def live() -> None:
        network = Network(Servers())
        network.again_in_ms = milliseconds
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"), _channels_of(network) as servers:
                await _joined(phone, network)
                assert (await take_part(phone.participant, servers, NOW)).next_in == interval

    _within(live())


def test_nobody_listens_and_later_somebody_does(tmp_path: Path) -> None:
    async def live() -> None:
        network = Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"):
                await _joined(phone, network)
            network.queries = [query()]
            async with _channels(network) as servers:
                done = await take_part(phone.participant, servers, NOW)
                assert [type(trouble.error) for trouble in done.failures] == [Unreachable]
                assert done.next_in == DEFAULT_INTERVAL
                async with network.listening(tmp_path / "certs"):
                    for _ in range(50):
                        done = await take_part(phone.participant, servers, NOW)
                        if not done.failures:
                            break
                        await asyncio.sleep(0.2)
                    assert _states(phone) == {"gym": ContributionState.ACKNOWLEDGED}

    _within(live())


def test_a_server_of_another_authority_is_not_spoken_to(tmp_path: Path) -> None:
    async def live() -> None:
        network, other = Network(Servers()), Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"), other.listening(tmp_path / "other"):
                invitation = replace(network.invitation, authority=other.authority)
                phone.participant.enrolment.join(invitation)
                async with Channels(invitation, deadline=2.0) as servers:
                    with pytest.raises(Unreachable):
                        await enrol(phone.participant, servers)
                assert network.calls == {}

    _within(live())


@pytest.mark.parametrize("refusal", [Refusal.REVOKED, Refusal.UNKNOWN_PHONE])
def test_a_phone_that_was_taken_off_the_list_knows_it(tmp_path: Path, refusal: Refusal) -> None:
    async def live() -> None:
        network = Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"), _channels_of(network) as servers:
                await _joined(phone, network)
                phone.pass_time(days=80)
                network.refusals = {"Renew": Refused(refusal)}
                done = await take_part(phone.participant, servers, NOW)
                assert "membership request" in [trouble.what for trouble in done.failures]
                member = phone.participant.enrolment.member
                assert member is not None
                assert member.state is MembershipState.EXPELLED
                assert network.calls["Announcements"] == 0

    _within(live())


def test_an_invitation_that_is_refused_is_not_used_again_unless_somebody_says_so(tmp_path: Path) -> None:
    async def live() -> None:
        network = Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"), _channels_of(network) as servers:
                network.refusals = {"Join": Refused(Refusal.INVITATION)}
                phone.participant.enrolment.join(network.invitation)
                with pytest.raises(Refused):
                    await enrol(phone.participant, servers)
                phone.restart()
                member = phone.participant.enrolment.member
                assert member is not None
                assert member.state is MembershipState.REFUSED
                await take_part(phone.participant, servers, NOW)
                assert network.calls["Join"] == 1
                network.refusals = {}
                await _joined(phone, network)
                assert phone.participant.enrolment.current is not None
                assert network.calls["Join"] == 2

    _within(live())


def test_a_key_server_whose_clock_is_ahead_expels_nobody(tmp_path: Path) -> None:
    """It says of a membership that is to be renewed that it is over; the phone's own clock knows better."""

    async def live() -> None:
        network = Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"), _channels_of(network) as servers:
                await _joined(phone, network)
                phone.pass_time(days=80)
                network.queries = [query()]
                network.refusals = {"Renew": Refused(Refusal.EXPIRED)}
                done = await take_part(phone.participant, servers, NOW)
                assert [trouble.what for trouble in done.failures] == ["membership request"]
                assert [record.state for record in done.contributions] == [ContributionState.ACKNOWLEDGED]
                phone.restart()
                network.refusals = {}  # its clock was set
                phone.now = dt.datetime.now(dt.UTC) + dt.timedelta(days=80)
                done = await take_part(phone.participant, servers, NOW)
                assert network.calls["Renew"] == 2
                assert not done.failures

    _within(live())


def test_a_membership_that_is_over_by_both_clocks_is_over(tmp_path: Path) -> None:
    """It ends while the phone asks for a longer one."""

    async def live() -> None:
        network = Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"), _channels_of(network) as servers:
                await _joined(phone, network)
                phone.pass_time(days=80)

                class Slow(Channels):
                    async def renew(self, request: wire.RenewRequest) -> wire.Membership:
                        phone.pass_time(days=11)
                        return await servers.renew(request)

                network.refusals = {"Renew": Refused(Refusal.EXPIRED)}
                with pytest.raises(Refused):
                    await enrol(phone.participant, Slow(network.invitation))
                member = phone.participant.enrolment.member
                assert member is not None
                assert member.state is MembershipState.EXPELLED

    _within(live())


@pytest.mark.parametrize("lost", [False, True])
def test_a_membership_is_renewed_also_where_answers_were_lost(tmp_path: Path, lost: bool) -> None:
    async def live() -> None:
        network = Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"), _channels_of(network) as servers:
                await _joined(phone, network)
                before = phone.participant.enrolment.member
                network.membership += dt.timedelta(seconds=1)  # memberships end at a whole second
                phone.pass_time(days=61)
                if lost:
                    network.refusals = {"Renew": Refused(Refusal.CONFLICT)}
                done = await take_part(phone.participant, servers, NOW)
                assert not done.failures
                after = phone.participant.enrolment.member
                assert before is not None
                assert after is not None
                assert after.expires > before.expires
                assert network.calls["Join"] == 1 + lost

    _within(live())


class Hurried:
    """A clock that is always where it is waited for."""

    def __init__(self, start: dt.datetime) -> None:
        self._now = start
        self.waits: list[float] = []

    def now(self) -> dt.datetime:
        return self._now

    async def wait_until(self, instant: dt.datetime) -> None:
        self.waits.append((instant - self._now).total_seconds())
        self._now = instant
        await asyncio.sleep(0)


def test_it_runs_until_it_is_told_to_stop_and_comes_back_when_it_was_told(tmp_path: Path) -> None:
    """First as the servers say, then as they ask to be left alone, then ever later while nobody is there."""

    async def live() -> None:
        network = Network(Servers())
        with device(tmp_path, servers=network.servers, joined=False) as phone:
            async with network.listening(tmp_path / "certs"), _channels_of(network) as servers:
                await _joined(phone, network)
                network.queries = [query()]
                clock, stop = Hurried(phone.now), asyncio.Event()
                rounds: list[Round] = []

                def note(done: Round) -> None:
                    rounds.append(done)
                    network.refusals = {}
                    if len(rounds) == 2:
                        network.refusals = {"Decisions": Refused(Refusal.BUSY, retry_after=500.0)}
                    if len(rounds) >= 4:
                        network.refusals = {"Decisions": Refused(Refusal.UNAVAILABLE)}
                    if len(rounds) == 16:
                        stop.set()

                work = run(
                    partial(take_part, phone.participant, servers, NOW),
                    clock=clock,
                    backoff=Backoff(first=2.0, random=seeded(1).random),
                    on_round=note,
                )
                await first_of(work, stop.wait())
                assert _states(phone) == {"gym": ContributionState.ACKNOWLEDGED}
                assert network.calls["Contribute"] == 1
                usual = [clock.waits[number] for number in (0, 1, 3)]
                assert all(60 <= wait <= 66 for wait in usual)
                assert len(set(usual)) == 3  # or all phones come back at once
                assert 500 <= clock.waits[2] <= 550
                troubled = clock.waits[4:15]
                assert all(
                    min(60, 2.0**attempt / 2) <= wait <= 1.1 * min(60, 2.0**attempt)
                    for attempt, wait in enumerate(troubled, start=1)
                )

    _within(live())
