import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent.protocol import Refusal, Refused, SigningKey, signed_by, statements
from reticent.v1 import counting_pb2 as wire
from reticent_keys import administration
from reticent_keys.membership import Members
from tests.keys.phones import DAY, START, House, Phone, refused

SECOND = dt.timedelta(seconds=1)


@pytest.fixture
def house() -> Iterator[House]:
    with House() as house:
        yield house


def signed_membership(house: House, phone: Phone, membership: wire.Membership) -> bool:
    statement = statements.membership(membership.phone, phone.signing.public, membership.expires)
    return signed_by(house.server.identity, statement, membership.signature)


def test_who_is_invited_becomes_a_member_and_can_check_it(house: House) -> None:
    phone = house.invited()
    assert house.server.terms().population == 0
    membership = house.server.members.join(phone.joining())
    assert signed_membership(house, phone, membership)
    assert len(membership.phone) == 16
    assert membership.expires == int((START + 90 * DAY).timestamp())
    assert house.server.terms().population == 1


def test_the_same_request_gets_the_same_membership_also_after_a_restart(tmp_path: Path) -> None:
    with House(tmp_path / "journal.db") as house:
        phone = house.invited()
        membership = house.server.members.join(phone.joining())
        house.restart()
        assert house.server.members.join(phone.joining()) == membership
        house.advance(dt.timedelta(days=89))
        assert house.server.members.join(phone.joining()) == membership
        assert house.server.terms().population == 1


def test_an_invitation_is_good_for_one_phone(house: House) -> None:
    phone = house.invited()
    house.server.members.join(phone.joining())
    refused(Refusal.INVITATION, lambda: house.server.members.join(Phone(phone.token).joining()))
    assert house.server.terms().population == 1


def test_an_invitation_is_over_when_it_says_so_but_not_for_who_took_it(house: House) -> None:
    took, late = (Phone(token) for token in house.tokens(2, DAY))
    membership = house.server.members.join(took.joining())
    house.advance(DAY)
    refused(Refusal.INVITATION, lambda: house.server.members.join(late.joining()))
    assert house.server.members.join(took.joining()) == membership


def test_who_was_not_invited_is_refused(house: House) -> None:
    refused(Refusal.INVITATION, lambda: house.server.members.join(Phone(bytes(16)).joining()))


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("invitation", b""),
        ("invitation", bytes(17)),
        ("verify_key", bytes(31)),
        ("signature", bytes(63)),
    ],
)
def test_a_request_to_join_with_a_bad_part_is_malformed(house: House, part: str, content: bytes) -> None:
    asked = house.invited().joining()
    setattr(asked, part, content)
    refused(Refusal.MALFORMED, lambda: house.server.members.join(asked))
    assert house.server.terms().population == 0


@pytest.mark.parametrize("y", [0, 1, 2**255 - 20, 2**255 - 18, 1 + 2**255])
def test_a_key_under_which_anybody_can_sign_is_no_phones(house: House, y: int) -> None:
    """With the zero signature, which says nothing of a private key: there is none."""
    asked = house.invited().joining()
    asked.verify_key = y.to_bytes(32, "little")
    asked.signature = b"\1" + bytes(63)
    refused(Refusal.MALFORMED, lambda: house.server.members.join(asked), "anybody can sign")
    assert house.server.terms().population == 0


def test_who_joins_proves_to_hold_the_key(house: House) -> None:
    phone = house.invited()
    asked = phone.joining()
    asked.verify_key = SigningKey().public
    refused(Refusal.BAD_SIGNATURE, lambda: house.server.members.join(asked))
    house.server.members.join(phone.joining())  # what was refused took nothing


def test_who_renews_stays_longer_and_may_repeat_it(house: House) -> None:
    (phone,) = house.enrolled(1)
    house.advance(30 * DAY)
    asked = phone.renewing()
    longer = house.server.members.renew(asked)
    assert longer.expires == int((START + 120 * DAY).timestamp())
    assert signed_membership(house, phone, longer)
    house.advance(5 * DAY)
    assert house.server.members.renew(asked) == longer
    assert house.server.members.join(phone.joining()) == longer
    phone.membership = longer
    assert house.server.members.renew(phone.renewing()).expires == longer.expires + 5 * 86400


def test_renewing_at_the_same_instant_changes_nothing(house: House) -> None:
    (phone,) = house.enrolled(1)
    assert house.server.members.renew(phone.renewing()) == phone.membership


def test_a_renewal_names_when_the_membership_expires(house: House) -> None:
    (phone,) = house.enrolled(1)
    first = phone.renewing()
    for _ in range(2):
        house.advance(10 * DAY)
        phone.membership = house.server.members.renew(phone.renewing())
    refused(Refusal.CONFLICT, lambda: house.server.members.renew(first))
    phone.membership.expires += 1
    refused(Refusal.CONFLICT, lambda: house.server.members.renew(phone.renewing()))
    phone.membership.expires = 2**63 - 1
    refused(Refusal.CONFLICT, lambda: house.server.members.renew(phone.renewing()))


def test_a_phone_that_knows_of_a_later_renewal_than_the_journal_goes_on(tmp_path: Path) -> None:
    """As after a backup was put back."""
    with House(tmp_path / "journal.db") as house:
        (phone,) = house.enrolled(1)
        house.advance(30 * DAY)
        with house.database.transaction() as run:  # what the journal has forgotten since
            (number, expires) = run("SELECT number, expires FROM phones").fetchone()
        phone.membership = house.server.members.renew(phone.renewing())
        with house.database.transaction() as run:
            run("UPDATE phones SET expires = ?, renewed_from = NULL WHERE number = ?", (expires, number))
        house.advance(10 * DAY)
        asked = phone.renewing()
        longer = house.server.members.renew(asked)
        assert longer.expires == int((START + 130 * DAY).timestamp())
        assert house.server.members.renew(asked) == longer


def test_who_does_not_renew_is_over(house: House) -> None:
    (phone,) = house.enrolled(1)
    house.advance(90 * DAY - SECOND)
    assert house.server.terms().population == 1
    house.advance(SECOND)
    assert house.server.terms().population == 0
    refused(Refusal.EXPIRED, lambda: house.server.members.renew(phone.renewing()))
    refused(Refusal.EXPIRED, lambda: house.server.members.join(phone.joining()))


def test_who_leaves_is_over_and_may_repeat_it(house: House) -> None:
    (phone,) = house.enrolled(1)
    assert house.server.members.leave(phone.leaving()) == wire.LeaveReply()
    assert house.server.members.leave(phone.leaving()) == wire.LeaveReply()
    assert house.server.terms().population == 0
    refused(Refusal.REVOKED, lambda: house.server.members.renew(phone.renewing()))
    refused(Refusal.REVOKED, lambda: house.server.members.join(phone.joining()))


def test_who_is_revoked_is_over(house: House) -> None:
    phone, other = house.enrolled(2)
    administration.revoke(house.server.journal, phone.id)
    administration.revoke(house.server.journal, phone.id)
    house.server.members.leave(phone.leaving())  # does not soften it
    assert house.server.terms().population == 1
    with pytest.raises(Refused, match="was revoked"):
        house.server.members.renew(phone.renewing())
    house.server.members.renew(other.renewing())
    refused(Refusal.UNKNOWN_PHONE, lambda: administration.revoke(house.server.journal, bytes(16)))


@pytest.mark.parametrize("what", ["renewing", "leaving"])
def test_others_cannot_speak_for_a_phone(house: House, what: str) -> None:
    phone, other = house.enrolled(2)
    call = house.server.members.renew if what == "renewing" else house.server.members.leave
    asked = getattr(phone, what)()
    forged = type(asked).FromString(asked.SerializeToString())
    forged.signature = getattr(other, what)().signature
    refused(Refusal.BAD_SIGNATURE, lambda: call(forged))
    forged.signature = b""
    refused(Refusal.MALFORMED, lambda: call(forged))
    forged.signature = asked.signature
    forged.phone = bytes(16)
    refused(Refusal.UNKNOWN_PHONE, lambda: call(forged))
    forged.phone = bytes(15)
    refused(Refusal.MALFORMED, lambda: call(forged))
    assert house.server.terms().population == 2


def test_arguments_are_checked(house: House) -> None:
    with pytest.raises(ValueError, match="count must be at least 1: got 0"):
        house.tokens(0, DAY)
    with pytest.raises(ValueError, match="at least a second"):
        Members(house.server.journal, house.identity, house.clock.now, dt.timedelta(0))


def test_tokens_are_not_in_the_journal(tmp_path: Path) -> None:
    with House(tmp_path / "journal.db") as house:
        phone = house.invited()
        house.server.members.join(phone.joining())
        house.server.journal.close()
        content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert phone.signing.public in content
        assert phone.token not in content
