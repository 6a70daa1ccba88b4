"""Invitations, phones and their memberships."""

from __future__ import annotations

from reticent.protocol import Refusal, Refused
from reticent_keys.journal import EnrolledPhone
from tests.keys.journal_setting import LATER, NOW, Setting, phone
from tests.parties.key_server import refused


def check_an_invitation_enrols_one_phone(the: Setting) -> None:
    the.journal.add_invitations([b"invitation"], LATER)
    made = the.journal.enrol(b"invitation", phone(9))
    assert made == the.journal.phone(made.id) == phone(9)
    assert the.journal.enrol(b"invitation", phone(8, verify_key=made.verify_key)) == made
    refused(Refusal.INVITATION, lambda: the.journal.enrol(b"invitation", phone(8)))
    refused(Refusal.INVITATION, lambda: the.journal.enrol(b"unknown", phone(8)))
    refused(Refusal.UNKNOWN_PHONE, lambda: the.journal.phone(phone(8).id))
    changed = the.journal.change_phone(made.id, lambda found: found._replace(ended="left"))
    assert the.reopened().enrol(b"invitation", phone(8, verify_key=made.verify_key)) == changed


def check_an_invitation_expires_unless_it_was_used(the: Setting) -> None:
    the.journal.add_invitations([b"one", b"other"], LATER)
    late = phone(9, enrolled=LATER)
    made = the.journal.enrol(b"one", phone(9, enrolled=LATER - 1))
    refused(Refusal.INVITATION, lambda: the.journal.enrol(b"other", phone(8, enrolled=LATER)))
    assert the.journal.enrol(b"one", late) == made


def check_a_phone_changes_as_the_caller_decides_or_not_at_all(the: Setting) -> None:
    changed = phone(1)._replace(expires=LATER + 1, renewed_from=LATER, ended="revoked")
    assert the.journal.change_phone(changed.id, lambda _: changed) == changed
    assert the.journal.phone(changed.id) == changed

    def fails(_: EnrolledPhone) -> EnrolledPhone:
        raise Refused(Refusal.CONFLICT)

    refused(Refusal.CONFLICT, lambda: the.journal.change_phone(changed.id, fails))
    refused(Refusal.UNKNOWN_PHONE, lambda: the.journal.change_phone(bytes(16), lambda found: found))
    assert the.reopened().phone(changed.id) == changed


def check_members_are_enrolled_and_neither_ended_nor_expired(the: Setting) -> None:
    the.journal.change_phone(phone(1).id, lambda found: found._replace(ended="left"))
    the.journal.change_phone(phone(2).id, lambda found: found._replace(expires=LATER + 1))
    assert [the.journal.member_count(now) for now in (NOW, LATER - 1, LATER, LATER + 1)] == [3, 3, 1, 0]
    assert [each.state for each in the.journal.phones(LATER)] == ["left", "member", "expired", "expired"]
    assert [each.phone for each in the.journal.phones(NOW)] == [phone(number).id.hex() for number in (1, 2, 3, 4)]
    assert the.journal.phone_ids(phone(2).id, phone(2).id[:-1] + b"\xff") == [phone(2).id]
    assert len(the.journal.phone_ids(bytes(16), b"\xff" * 16)) == 2
