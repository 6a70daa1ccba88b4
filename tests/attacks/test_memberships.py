"""Memberships that are over: phones that go on as if they were not, and an aggregation server that helps them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from reticent.protocol import Refusal, Refused, statements
from reticent.protocol.calls import failure_of
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import EnrolmentStub
from reticent_sim.engine import ServerPair, launched
from tests.attacks.lying_aggregation import LyingAggregation, TargetQuery
from tests.attacks.target import TIMEOUT, Target
from tests.parties.key_server import START
from tests.parties.phone import Phone, joined

pytestmark = pytest.mark.slow  # a real process, some seconds

PHONES = 4
DAY = dt.timedelta(days=1)
OPTIONS = ("--min-honest", "2", "--min-liars-share", "0", "--membership-days", "10")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ServerPair]:
    with launched(ServerPair(tmp_path, clock=START, keys_options=OPTIONS)) as made:
        yield made


def join(servers: ServerPair, count: int) -> list[Phone]:
    with servers.enrolment.blocking_channel() as channel:
        return joined(channel, servers.invitations(count))


def said(asked: TargetQuery, phone: Phone) -> wire.Contribution:
    """What a phone contributes, whether or not it was asked."""
    return phone.message(asked.query, asked.key, asked.deal.agreement_key, 0, (1,))


def renewal(servers: ServerPair, request: wire.RenewRequest) -> Refusal | None:
    """Why a renewal is refused, if it is."""
    with servers.enrolment.blocking_channel() as channel:
        try:
            EnrolmentStub(channel).Renew(request, timeout=TIMEOUT)
        except grpc.RpcError as error:
            refused = failure_of(error)
            assert isinstance(refused, Refused)
            return refused.refusal
    return None


def test_a_phone_whose_membership_is_over_is_counted_in_nothing_new(servers: ServerPair) -> None:
    """Not even with an aggregation server that hands its receipt in."""
    [expired], server = join(servers, 1), LyingAggregation(Target.of(servers))
    servers.move_clocks(START + 11 * DAY)
    others = join(servers, PHONES)
    asked = server.ask(others)
    assert expired.id not in {each.phone for each in asked.deal.phones}
    contributions = [said(asked, phone) for phone in [*others[1:], expired]]
    total = asked.product(*map(asked.opened, contributions))
    with pytest.raises(Refused, match="not dealt") as refused:
        server.decide(asked, total, contributions)
    assert refused.value.refusal is Refusal.BAD_RECEIPTS


def test_a_membership_that_is_over_cannot_be_renewed_whatever_the_phone_signs(servers: ServerPair) -> None:
    [phone, other] = join(servers, 2)
    before = phone.renewing()
    servers.move_clocks(START + 11 * DAY)
    assert renewal(servers, before) is Refusal.EXPIRED
    for days in (-1, 9, 20, 21, 22, 100_000):
        expires = int((START + days * DAY).timestamp())
        signature = phone.signing.sign(statements.renewal(phone.id, expires))
        request = wire.RenewRequest(phone=phone.id, expires=expires, signature=signature)
        assert renewal(servers, request) is Refusal.EXPIRED
    request = wire.RenewRequest(phone=other.id, expires=before.expires, signature=before.signature)
    assert renewal(servers, request) is Refusal.BAD_SIGNATURE


def test_a_renewal_that_is_replayed_lengthens_a_membership_once(servers: ServerPair) -> None:
    """Whoever has copied what a phone once sent cannot keep it a member for ever."""
    [phone] = join(servers, 1)
    copied = phone.renewing()
    servers.move_clocks(START + 8 * DAY)
    assert renewal(servers, copied) is None  # as the phone wanted, until day 18
    servers.move_clocks(START + 17 * DAY)
    assert renewal(servers, copied) is None  # it is told how it stands, and no more
    servers.move_clocks(START + 19 * DAY)
    assert renewal(servers, copied) is Refusal.EXPIRED


def test_what_was_dealt_before_the_end_of_a_membership_is_still_counted(servers: ServerPair) -> None:
    """Or the phones that others hide among would be fewer than was said when the query was countersigned."""
    phones, server = join(servers, PHONES), LyingAggregation(Target.of(servers))
    asked = server.ask(phones)
    servers.move_clocks(START + 11 * DAY)
    contributions = [said(asked, phone) for phone in phones]
    decision = server.decide(asked, asked.product(*map(asked.opened, contributions)), contributions)
    assert decision.outcome == wire.RELEASED
    assert [statements.integer_from(each) for each in decision.sums] == [PHONES]
