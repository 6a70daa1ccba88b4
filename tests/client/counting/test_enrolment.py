"""Joining, staying and leaving."""

import datetime as dt
import json
from pathlib import Path

import pytest

from reticent.protocol import SigningKey, signed_by, statements
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.enrolment import MEMBERSHIP, Enrolment, Member, MembershipState
from reticent_client.errors import AlreadyJoined, BadMembership, FileError, NotJoined
from tests.client.counting.world import MEMBERSHIP as LENGTH
from tests.client.counting.world import PHONE, START, Device, Servers, device


def _enrolment(phone: Device) -> Enrolment:
    return phone.participant.enrolment


def test_the_keys_are_stored_before_the_first_request_and_the_request_never_changes(tmp_path: Path) -> None:
    with device(tmp_path, joined=False) as phone:
        invitation = phone.servers.invitation()
        first = _enrolment(phone).join(invitation).SerializeToString()
        assert _enrolment(phone).join(invitation).SerializeToString() == first
        phone.restart()
        assert _enrolment(phone).member is not None
        owed = _enrolment(phone).request()
        assert isinstance(owed, wire.JoinRequest)
        assert owed.SerializeToString() == first == _enrolment(phone).join(invitation).SerializeToString()


def test_a_membership_survives(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        phone.restart()
        member = _enrolment(phone).current
        assert member is not None
        assert member.phone == PHONE
        assert member.signing.public == phone.servers.phones[PHONE]
        assert member.expires == int((START + LENGTH).timestamp())


@pytest.mark.parametrize("wrong", ["signature", "identity", "phone", "expires", "key"])
def test_a_membership_is_taken_from_the_key_server_of_the_invitation_only(tmp_path: Path, wrong: str) -> None:
    with device(tmp_path, joined=False) as phone:
        request = _enrolment(phone).join(phone.servers.invitation())
        good = phone.servers.enrol(request, START + LENGTH)
        bad = wire.Membership.FromString(good.SerializeToString())
        match wrong:
            case "signature":
                bad.signature = bytes(64)
            case "identity":
                stranger = Servers(phones=phone.servers.phones)
                bad = stranger.membership(PHONE, START + LENGTH)
            case "phone":
                bad.phone = bytes(16)
            case "expires":
                bad.expires += 1
            case _:
                phone.servers.phones[PHONE] = SigningKey().public
                bad = phone.servers.membership(PHONE, START + LENGTH)
        with pytest.raises(BadMembership, match="not signed"):
            _enrolment(phone).joined(bad)
        phone.restart()
        assert _enrolment(phone).current is None
        _enrolment(phone).joined(good)
        assert _enrolment(phone).current is not None


@pytest.mark.parametrize("phone_id", [b"short", b"", bytes(17)])
def test_a_signed_membership_that_is_none_is_refused(tmp_path: Path, phone_id: bytes) -> None:
    with device(tmp_path, joined=False) as phone:
        request = _enrolment(phone).join(phone.servers.invitation())
        until = int(START.timestamp()) + 100
        signature = phone.servers.identity.sign(statements.membership(phone_id, request.verify_key, until))
        membership = wire.Membership(phone=phone_id, expires=until, signature=signature)
        with pytest.raises(BadMembership, match="names no phone"):
            _enrolment(phone).joined(membership)
        assert _enrolment(phone).current is None


def test_it_renews_when_less_than_a_third_is_left(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        phone.now = START + 2 * LENGTH / 3
        assert _enrolment(phone).request() is None
        phone.pass_time(seconds=1)
        request = _enrolment(phone).request()
        assert isinstance(request, wire.RenewRequest)
        member = _enrolment(phone).current
        assert member is not None
        assert signed_by(member.signing.public, statements.renewal(PHONE, request.expires), request.signature)
        assert request.expires == member.expires
        _enrolment(phone).joined(phone.servers.membership(PHONE, phone.now + LENGTH))
        assert _enrolment(phone).request() is None
        phone.restart()
        renewed = _enrolment(phone).current
        assert renewed is not None
        assert renewed.expires == int((phone.now + LENGTH).timestamp())
        same = phone.servers.membership(PHONE, phone.now + LENGTH)
        phone.pass_time(days=1)
        _enrolment(phone).joined(same)  # the same again, later: nothing begins anew
        assert _enrolment(phone).current == renewed
        _enrolment(phone).joined(phone.servers.membership(PHONE, START + LENGTH))  # an old one, come late
        assert _enrolment(phone).current == renewed


def test_another_phones_membership_is_not_taken_for_a_renewal(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        other = bytes(reversed(PHONE))
        phone.servers.phones[other] = phone.servers.phones[PHONE]
        with pytest.raises(BadMembership, match="another phone's"):
            _enrolment(phone).joined(phone.servers.membership(other, START + 2 * LENGTH))


def test_a_membership_ends(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        phone.now = START + LENGTH - dt.timedelta(seconds=1)
        assert _enrolment(phone).current is not None
        phone.pass_time(seconds=1)
        assert _enrolment(phone).current is None
        request = _enrolment(phone).join(phone.servers.invitation(bytes(15) + b"1"))  # so that it may join again
        _enrolment(phone).joined(phone.servers.enrol(request, phone.now + LENGTH, bytes(16)))
        assert _enrolment(phone).current is not None


def test_it_leaves_and_says_so_until_the_key_server_knows(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        first = _enrolment(phone).leave()
        assert _enrolment(phone).current is None
        phone.restart()
        assert _enrolment(phone).request() == first == _enrolment(phone).leave()
        assert signed_by(phone.servers.phones[PHONE], statements.leaving(PHONE), first.signature)
        with pytest.raises(NotJoined, match="is leaving"):
            _enrolment(phone).joined(phone.servers.membership(PHONE, START + 2 * LENGTH))
        _enrolment(phone).left()
        phone.restart()
        assert _enrolment(phone).request() is None
        member = _enrolment(phone).member
        assert member is not None
        assert member.state is MembershipState.LEFT


def test_who_owes_a_key_server_its_leaving_joins_nobody_else_before(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        owed = _enrolment(phone).leave()
        other = Servers().invitation(bytes(15) + b"1")
        for _ in range(2):
            with pytest.raises(AlreadyJoined, match="the key server has not confirmed the departure"):
                _enrolment(phone).join(other)
            assert _enrolment(phone).request() == owed
            phone.restart()
        _enrolment(phone).left()
        assert _enrolment(phone).join(other).invitation == other.token


def test_who_leaves_a_key_server_that_is_gone_joins_another_once_its_membership_is_over(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        _enrolment(phone).leave()
        phone.now = START + LENGTH
        other = Servers().invitation(bytes(15) + b"1")
        assert _enrolment(phone).join(other).invitation == other.token


@pytest.mark.parametrize("days", [200, 60, -200])
def test_a_phone_that_joined_by_a_wrong_clock_is_still_renewed(tmp_path: Path, days: int) -> None:
    with device(tmp_path, joined=False) as phone:
        phone.pass_time(days=days)
        request = _enrolment(phone).join(phone.servers.invitation())
        _enrolment(phone).joined(phone.servers.enrol(request, START + LENGTH))
        phone.now = START + dt.timedelta(days=1)  # and then its clock is set
        for _ in range(300):
            if _enrolment(phone).request() is not None:
                _enrolment(phone).joined(phone.servers.membership(PHONE, phone.now + LENGTH))
                assert _enrolment(phone).request() is None
            phone.pass_time(days=1)
            assert _enrolment(phone).current is not None


def test_who_is_no_member_has_nothing_to_leave(tmp_path: Path) -> None:
    with device(tmp_path, joined=False) as phone:
        for nothing in (_enrolment(phone).leave, _enrolment(phone).left, _enrolment(phone).expelled):
            with pytest.raises(NotJoined):
                nothing()
        assert _enrolment(phone).request() is None
        _enrolment(phone).join(phone.servers.invitation())
        with pytest.raises(NotJoined):
            _enrolment(phone).leave()


def test_one_invitation_at_a_time(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        before = _enrolment(phone).member
        with pytest.raises(AlreadyJoined):
            _enrolment(phone).join(phone.servers.invitation(bytes(15) + b"1"))
        assert _enrolment(phone).member == before
        _enrolment(phone).expelled()
        again = _enrolment(phone).join(phone.servers.invitation(bytes(15) + b"1"))
        assert before is not None
        assert again.verify_key != before.signing.public


def test_servers_that_have_moved_are_found_by_the_same_invitation(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        moved = type(phone.servers.invitation())(
            bytes(16), phone.servers.identity.public, "another", "elsewhere:1", "elsewhere:2"
        )
        _enrolment(phone).join(moved)
        member = _enrolment(phone).current
        assert member is not None
        assert (member.invitation, member.phone) == (moved, PHONE)


def test_nothing_that_it_prints_tells_a_secret(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        member = _enrolment(phone).current
        assert member is not None
        text = repr(member)
        secret = member.signing.to_bytes()
        assert secret.hex() not in text
        assert repr(secret)[2:-1] not in text


@pytest.mark.parametrize("part", ["signing", "state", "phone", "expires", None])
def test_a_damaged_membership_is_an_error_that_quotes_no_key(tmp_path: Path, part: str | None) -> None:
    with device(tmp_path) as phone:
        content = json.loads(phone.store.slot(MEMBERSHIP).read() or "")
        secret = content["signing"]
        text = json.dumps(content | {part: "?" + secret}) if part else secret
        with pytest.raises(FileError, match="damaged") as error:
            Member.from_text(text)
        assert secret not in str(error.value)
        assert error.value.__cause__ is None
