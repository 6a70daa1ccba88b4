import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent.protocol import Refusal, Refused, SigningKey, signed_by, statements
from reticent.v1 import counting_pb2 as wire
from reticent_keys import administration, metrics
from reticent_keys.membership import Members
from tests.parties.key_server import DAY, START, LocalKeyServer, refused
from tests.parties.phone import Phone

SECOND = dt.timedelta(seconds=1)


@pytest.fixture
def local() -> Iterator[LocalKeyServer]:
    with LocalKeyServer() as local:
        yield local


def signed_membership(local: LocalKeyServer, phone: Phone, membership: wire.Membership) -> bool:
    statement = statements.membership(membership.phone, phone.signing.public, membership.expires)
    return signed_by(local.server.identity, statement, membership.signature)


def test_who_is_invited_becomes_a_member_and_can_check_it(local: LocalKeyServer) -> None:
    phone = local.invited()
    assert local.server.terms().population == 0
    membership = local.server.members.join(phone.joining())
    assert signed_membership(local, phone, membership)
    assert len(membership.phone) == 16
    assert membership.expires == int((START + 90 * DAY).timestamp())
    assert local.server.terms().population == 1


def test_the_same_request_gets_the_same_membership_also_after_a_restart(tmp_path: Path) -> None:
    with LocalKeyServer(tmp_path / "journal.db") as local:
        phone = local.invited()
        membership = local.server.members.join(phone.joining())
        local.restart()
        assert local.server.members.join(phone.joining()) == membership
        local.advance(dt.timedelta(days=89))
        assert local.server.members.join(phone.joining()) == membership
        assert local.server.terms().population == 1


def test_an_invitation_is_good_for_one_phone(local: LocalKeyServer) -> None:
    phone = local.invited()
    local.server.members.join(phone.joining())
    refused(Refusal.INVITATION, lambda: local.server.members.join(Phone(phone.token).joining()))
    assert local.server.terms().population == 1


def test_an_invitation_is_over_when_it_says_so_but_not_for_who_took_it(local: LocalKeyServer) -> None:
    took, late = (Phone(token) for token in local.tokens(2, DAY))
    membership = local.server.members.join(took.joining())
    local.advance(DAY)
    refused(Refusal.INVITATION, lambda: local.server.members.join(late.joining()))
    assert local.server.members.join(took.joining()) == membership


def test_who_was_not_invited_is_refused(local: LocalKeyServer) -> None:
    refused(Refusal.INVITATION, lambda: local.server.members.join(Phone(bytes(16)).joining()))


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("invitation", b""),
        ("invitation", bytes(17)),
        ("verify_key", bytes(31)),
        ("signature", bytes(63)),
    ],
)
def test_a_request_to_join_with_a_bad_part_is_malformed(local: LocalKeyServer, part: str, content: bytes) -> None:
    request = local.invited().joining()
    setattr(request, part, content)
    refused(Refusal.MALFORMED, lambda: local.server.members.join(request))
    assert local.server.terms().population == 0


@pytest.mark.parametrize("y", [0, 1, 2**255 - 20, 2**255 - 18, 1 + 2**255])
def test_a_key_under_which_anybody_can_sign_is_no_phones(local: LocalKeyServer, y: int) -> None:
    """With the zero signature, which says nothing of a private key: there is none."""
    request = local.invited().joining()
    request.verify_key = y.to_bytes(32, "little")
    request.signature = b"\1" + bytes(63)
    refused(Refusal.MALFORMED, lambda: local.server.members.join(request), "anybody can sign")
    assert local.server.terms().population == 0


def test_who_joins_proves_to_hold_the_key(local: LocalKeyServer) -> None:
    phone = local.invited()
    request = phone.joining()
    request.verify_key = SigningKey().public
    refused(Refusal.BAD_SIGNATURE, lambda: local.server.members.join(request))
    local.server.members.join(phone.joining())  # what was refused took nothing


def test_who_renews_stays_longer_and_may_repeat_it(local: LocalKeyServer) -> None:
    (phone,) = local.enrolled(1)
    local.advance(30 * DAY)
    request = phone.renewing()
    longer = local.server.members.renew(request)
    assert longer.expires == int((START + 120 * DAY).timestamp())
    assert signed_membership(local, phone, longer)
    local.advance(5 * DAY)
    assert local.server.members.renew(request) == longer
    assert local.server.members.join(phone.joining()) == longer
    phone.membership = longer
    assert local.server.members.renew(phone.renewing()).expires == longer.expires + 5 * 86400


@pytest.mark.parametrize("ahead", [-20, 0, 20], ids=lambda days: f"{days} days ahead")
def test_the_skew_of_a_phones_clock_shows_in_the_time_of_its_renewal(local: LocalKeyServer, ahead: int) -> None:
    """A phone renews when less than a third of what its own clock showed at first is left."""
    (phone,) = local.enrolled(1)
    local.advance((90 - ahead) * DAY * 2 / 3)
    before = skews()
    for _ in range(2):  # a repeated request is no second renewal
        local.server.members.renew(phone.renewing())
    after = skews()
    assert {bound: after[bound] - before[bound] for bound in after} == {
        bound: ahead * 86400 <= bound for bound in after
    }


def skews() -> dict[float, float]:
    """The renewals of phones whose clock is ahead by at most so many seconds."""
    [family] = metrics.CLOCK_SKEW.collect()
    return {float(each.labels["le"]): each.value for each in family.samples if "le" in each.labels}


def test_renewing_at_the_same_instant_changes_nothing(local: LocalKeyServer) -> None:
    (phone,) = local.enrolled(1)
    assert local.server.members.renew(phone.renewing()) == phone.membership


def test_a_renewal_names_when_the_membership_expires(local: LocalKeyServer) -> None:
    (phone,) = local.enrolled(1)
    first = phone.renewing()
    for _ in range(2):
        local.advance(10 * DAY)
        phone.membership = local.server.members.renew(phone.renewing())
    refused(Refusal.CONFLICT, lambda: local.server.members.renew(first))
    phone.membership.expires += 1
    refused(Refusal.CONFLICT, lambda: local.server.members.renew(phone.renewing()))
    phone.membership.expires = 2**63 - 1
    refused(Refusal.CONFLICT, lambda: local.server.members.renew(phone.renewing()))


def test_a_phone_that_knows_of_a_later_renewal_than_the_journal_goes_on(tmp_path: Path) -> None:
    """As after a backup was put back."""
    with LocalKeyServer(tmp_path / "journal.db") as local:
        (phone,) = local.enrolled(1)
        local.advance(30 * DAY)
        with local.database.transaction() as run:  # what the journal has forgotten since
            (number, expires) = run("SELECT number, expires FROM phones").fetchone()
        phone.membership = local.server.members.renew(phone.renewing())
        with local.database.transaction() as run:
            run("UPDATE phones SET expires = ?, renewed_from = NULL WHERE number = ?", (expires, number))
        local.advance(10 * DAY)
        request = phone.renewing()
        longer = local.server.members.renew(request)
        assert longer.expires == int((START + 130 * DAY).timestamp())
        assert local.server.members.renew(request) == longer


def test_who_does_not_renew_is_over(local: LocalKeyServer) -> None:
    (phone,) = local.enrolled(1)
    local.advance(90 * DAY - SECOND)
    assert local.server.terms().population == 1
    local.advance(SECOND)
    assert local.server.terms().population == 0
    refused(Refusal.EXPIRED, lambda: local.server.members.renew(phone.renewing()))
    refused(Refusal.EXPIRED, lambda: local.server.members.join(phone.joining()))


def test_who_leaves_is_over_and_may_repeat_it(local: LocalKeyServer) -> None:
    (phone,) = local.enrolled(1)
    assert local.server.members.leave(phone.leaving()) == wire.LeaveReply()
    assert local.server.members.leave(phone.leaving()) == wire.LeaveReply()
    assert local.server.terms().population == 0
    refused(Refusal.REVOKED, lambda: local.server.members.renew(phone.renewing()))
    refused(Refusal.REVOKED, lambda: local.server.members.join(phone.joining()))


def test_who_is_revoked_is_over(local: LocalKeyServer) -> None:
    phone, other = local.enrolled(2)
    administration.revoke(local.server.journal, phone.id)
    administration.revoke(local.server.journal, phone.id)
    local.server.members.leave(phone.leaving())  # does not soften it
    assert local.server.terms().population == 1
    with pytest.raises(Refused, match="was revoked"):
        local.server.members.renew(phone.renewing())
    local.server.members.renew(other.renewing())
    refused(Refusal.UNKNOWN_PHONE, lambda: administration.revoke(local.server.journal, bytes(16)))


@pytest.mark.parametrize("what", ["renewing", "leaving"])
def test_others_cannot_speak_for_a_phone(local: LocalKeyServer, what: str) -> None:
    phone, other = local.enrolled(2)
    call = local.server.members.renew if what == "renewing" else local.server.members.leave
    request = getattr(phone, what)()
    forged = type(request).FromString(request.SerializeToString())
    forged.signature = getattr(other, what)().signature
    refused(Refusal.BAD_SIGNATURE, lambda: call(forged))
    forged.signature = b""
    refused(Refusal.MALFORMED, lambda: call(forged))
    forged.signature = request.signature
    forged.phone = bytes(16)
    refused(Refusal.UNKNOWN_PHONE, lambda: call(forged))
    forged.phone = bytes(15)
    refused(Refusal.MALFORMED, lambda: call(forged))
    assert local.server.terms().population == 2


def test_arguments_are_checked(local: LocalKeyServer) -> None:
    with pytest.raises(ValueError, match="count must be at least 1: got 0"):
        local.tokens(0, DAY)
    with pytest.raises(ValueError, match="at least a second"):
        Members(local.server.journal, local.identity, local.clock.now, dt.timedelta(0))


def test_tokens_are_not_in_the_journal(tmp_path: Path) -> None:
    with LocalKeyServer(tmp_path / "journal.db") as local:
        phone = local.invited()
        local.server.members.join(phone.joining())
        local.server.journal.close()
        content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert phone.signing.public in content
        assert phone.token not in content
