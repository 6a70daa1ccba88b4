"""Queries, and the phones that are dealt to them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from reticent.protocol import Refusal
from reticent_keys.journal import Deal
from tests.keys.journal_setting import (
    ASKED,
    DEADLINE,
    FIRST,
    LATER,
    NOW,
    SECOND,
    Setting,
    countersigned,
    decision,
    enrol,
    phone,
    states,
)
from tests.parties.key_server import refused


def check_old_phones_are_deleted_a_few_at_a_time_and_decisions_never(the: Setting) -> None:
    old, undecided = countersigned(the.journal).number, countersigned(the.journal, id="undecided").number
    the.journal.add_invitations([b"expired"], LATER)
    for cohort in (0, 1):
        the.journal.decide(old, cohort, decision(b"%d" % cohort), NOW + cohort)
    the.journal.decide(undecided, 0, decision(b"0"), NOW)
    assert the.journal.prune(NOW + 1, 3) == 0
    assert len(next(the.journal.dealt_phones(old, 9))) == 4
    assert [the.reopened().prune(NOW + 2, 3) for _ in range(3)] == [3, 1, 0]
    refused(Refusal.ALREADY_DECIDED, lambda: list(the.journal.dealt_phones(old, 9)))
    for cohort in (0, 1):
        assert the.journal.decision(old, cohort) == decision(b"%d" % cohort)
        assert the.journal.decide(old, cohort, decision(b"else"), LATER) == decision(b"%d" % cohort)
    assert len(next(the.journal.dealt_phones(undecided, 9))) == 4
    assert the.journal.verify_keys(undecided, 1, [phone(3).id]) == [phone(3).verify_key]
    assert [the.journal.prune(LATER + 1, 3) for _ in range(2)] == [1, 0], "an invitation has expired"
    refused(Refusal.INVITATION, lambda: the.journal.enrol(b"expired", phone(9)))
    assert the.journal.enrol(b"\1", phone(8, verify_key=phone(1).verify_key)) == phone(1), "used ones are kept"


def check_what_is_under_a_retired_key_is_deleted_a_few_rows_at_a_time(the: Setting) -> None:
    """Nothing of it is ever decided."""
    number = countersigned(the.journal).number
    the.journal.decide(number, 0, decision(b"0"), NOW)
    the.journal.note_decryption(number, 1, b"1")
    assert the.journal.prune(LATER, 3) == 0
    the.journal.retire_keys()
    the.journal.activate(SECOND, LATER)
    fresh = countersigned(the.journal, id="fresh", key_id="second").number
    assert the.journal.prune(NOW, 3) == 0
    assert [the.reopened().prune(LATER, 3) for _ in range(3)] == [3, 2, 0]
    assert the.journal.decision(number, 0) == decision(b"0")
    refused(Refusal.KEY_RETIRED, lambda: the.journal.note_decryption(number, 1, b"2"))
    refused(Refusal.KEY_RETIRED, lambda: the.journal.decide(number, 1, decision(b"2"), NOW))
    refused(Refusal.KEY_RETIRED, lambda: countersigned(the.journal))
    assert len(next(the.journal.dealt_phones(fresh, 9))) == 4


def check_what_is_overdue_for_long_is_deleted_and_never_decided(the: Setting) -> None:
    """Its receipts could not be checked, and another request could have been decrypted."""
    number = countersigned(the.journal).number
    the.journal.decide(number, 0, decision(b"0"), NOW)
    the.journal.note_decryption(number, 1, b"1")
    the.journal.activate(SECOND, LATER)
    the.journal.destroy_unused(DEADLINE)
    assert states(the.journal) == {"second": "ACTIVE", "first": "DESTROYED"}
    the.journal.add_invitations([b"expired"], LATER)
    assert the.journal.prune(LATER + 1, 3) == 1, "the invitation"
    assert the.journal.prune(DEADLINE, 9) == 0
    assert the.journal.verify_keys(number, 1, [phone(3).id]) == [phone(3).verify_key]
    assert [the.reopened().prune(DEADLINE + 1, 4) for _ in range(3)] == [4, 1, 0]
    for request in (b"1", b"2"):
        refused(Refusal.KEY_RETIRED, lambda request=request: the.journal.decide(number, 1, decision(request), LATER))  # type: ignore[misc]
    refused(Refusal.KEY_RETIRED, lambda: the.journal.verify_keys(number, 1, [phone(3).id]), "its phones are deleted")
    assert the.journal.decide(number, 0, decision(b"2"), LATER) == the.journal.decision(number, 0) == decision(b"0")


def check_no_page_of_a_deal_mixes_two_states(the: Setting) -> None:
    """A phone is revoked, or another process deletes the phones, before, between and after the statements of a page."""
    number = countersigned(the.journal).number
    pages = the.journal.dealt_phones(number, 3)
    whole = next(pages)
    the.journal.change_phone(phone(4).id, lambda found: found._replace(ended="revoked"))
    whole += next(pages)
    assert [each[0] for each in whole] == [phone(each).id for each in (1, 2, 3, 4)]
    for cohort in (0, 1):
        the.journal.decide(number, cohort, decision(b"%d" % cohort), NOW)
    with closing(the.storage.open(the.path)) as other:
        with the.storage.between(the.journal, lambda: other.prune(LATER, 9)):
            refused(Refusal.ALREADY_DECIDED, lambda: list(the.journal.dealt_phones(number, 9)))
        assert other.prune(LATER, 9) == 0


def check_a_query_is_undecided_until_its_deadline(the: Setting) -> None:
    countersigned(the.journal)
    assert the.journal.undecided_queries(DEADLINE - 1) == [ASKED.digest]
    assert the.reopened().undecided_queries(DEADLINE) == []


def check_a_query_is_countersigned_once(the: Setting) -> None:
    made = countersigned(the.journal)
    assert made == (made.number, ASKED.digest, ASKED.to_bytes(), b"agreement", DEADLINE, FIRST)
    dealt = list(the.journal.dealt_phones(made.number, 3))
    expected = [(phone(number).id, phone(number).verify_key, (number - 1) // 2) for number in (1, 2, 3, 4)]
    assert dealt == [expected[:3], expected[3:]]
    enrol(the.journal, 5)

    def never(_: Sequence[int]) -> Deal:
        raise AssertionError("it was dealt twice")

    assert the.reopened().countersign(ASKED, never, LATER, DEADLINE) == made
    assert the.journal.countersigned(ASKED) == the.journal.query(ASKED.digest) == made
    assert list(the.journal.dealt_phones(made.number, 3)) == dealt
    assert the.journal.query(b"unknown") is None


def check_an_id_and_a_key_are_for_one_query(the: Setting) -> None:
    assert the.journal.countersigned(ASKED) is None
    countersigned(the.journal)
    before = the.storage.content(the.journal)
    refused(Refusal.CONFLICT, lambda: countersigned(the.journal, epsilon=0.5))
    refused(Refusal.KEY_RETIRED, lambda: countersigned(the.journal, id="other", key_id="second"))
    the.journal.activate(SECOND, LATER)
    refused(Refusal.KEY_RETIRED, lambda: countersigned(the.journal, id="other"))
    countersigned(the.journal)
    assert the.storage.content(the.journal) != before


def check_receipts_are_of_phones_of_the_cohort(the: Setting) -> None:
    number = countersigned(the.journal).number
    ids = [phone(each).id for each in (1, 3, 2)] + [bytes(16)]
    assert the.journal.verify_keys(number, 0, ids) == [phone(1).verify_key, None, phone(2).verify_key, None]
    assert the.journal.verify_keys(number + 1, 0, ids) == [None] * 4
