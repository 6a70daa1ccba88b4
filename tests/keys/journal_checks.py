"""What every journal of a key server must do, whatever stores it: a new implementation has to pass all of `CHECKS`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from reticent.protocol import Refusal, Refused
from reticent.storage.sql import InUse
from reticent.times import instant
from reticent_keys import Journal, JournalError
from reticent_keys.journal import Deal, EnrolledPhone, KeyState
from tests.keys.journal_races import (
    check_a_change_builds_on_the_one_before,
    check_a_query_is_dealt_by_one_of_two,
    check_no_key_of_a_query_is_erased_while_it_is_countersigned,
    check_two_processes_agree,
)
from tests.keys.journal_setting import (
    ASKED,
    DEADLINE,
    FIRST,
    LATER,
    NOW,
    SECOND,
    Interrupted,
    Setting,
    countersigned,
    decision,
    enrol,
    halves,
    phone,
    states,
)
from tests.parties.key_server import refused

__all__ = [
    "CHECKS",
    "check_a_change_builds_on_the_one_before",
    "check_a_query_is_dealt_by_one_of_two",
    "check_no_key_of_a_query_is_erased_while_it_is_countersigned",
    "check_two_processes_agree",
]

# One server


def check_a_journal_belongs_to_one_server(the: Setting) -> None:
    assert the.journal.owner() == b"server"
    the.journal.take_ownership(b"server")
    with pytest.raises(JournalError):
        the.journal.take_ownership(b"another")
    assert the.reopened().owner() == b"server"


def check_one_process_serves_from_a_journal(the: Setting) -> None:
    with closing(the.storage.open(the.path)) as other:
        with the.journal.claim(), pytest.raises(InUse), other.claim():
            pass
        with other.claim():
            pass


# Phones


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


# Keys


def check_one_key_is_active(the: Setting) -> None:
    countersigned(the.journal)
    the.journal.activate(SECOND, LATER)
    assert the.journal.keys(KeyState.ACTIVE) == [SECOND]
    assert states(the.reopened()) == {"second": "ACTIVE", "first": "DRAINING"}
    assert the.journal.key("first") == FIRST._replace(state=KeyState.DRAINING)
    assert the.journal.key("third") is None


def check_a_key_without_queries_is_destroyed_by_its_successor(the: Setting) -> None:
    the.journal.activate(SECOND, LATER)
    assert states(the.journal) == {"second": "ACTIVE", "first": "DESTROYED"}


def check_a_draining_key_is_destroyed_with_the_last_decision(the: Setting) -> None:
    number = countersigned(the.journal).number
    the.journal.activate(SECOND, LATER)
    the.journal.decide(number, 0, decision(b"0"), NOW)
    assert states(the.journal)["first"] == "DRAINING"
    assert not the.journal.is_decided(number)
    assert the.journal.undecided_queries(NOW) == [ASKED.digest]
    the.journal.decide(number, 1, decision(b"1"), NOW)
    assert states(the.reopened())["first"] == "DESTROYED"
    assert the.journal.is_decided(number)
    assert not the.journal.undecided_queries(NOW)


def check_a_key_that_is_made_ahead_becomes_active_and_others_are_destroyed(the: Setting) -> None:
    assert the.journal.active_since() == NOW
    the.journal.add_pending(SECOND, NOW + 1)
    the.journal.add_pending(SECOND._replace(id="spare"), NOW + 1)
    assert states(the.reopened()) == {"first": "ACTIVE", "second": "PENDING", "spare": "PENDING"}
    assert the.journal.active_since() == NOW
    for _ in range(2):
        the.journal.activate(SECOND, LATER)
    assert states(the.reopened()) == {"first": "DESTROYED", "second": "ACTIVE", "spare": "DESTROYED"}
    assert the.journal.active_since() == LATER
    the.journal.add_pending(SECOND._replace(id="third"), LATER)
    the.journal.retire_keys()
    assert states(the.journal) == {"first": "DESTROYED", "second": "RETIRED", "spare": "DESTROYED", "third": "RETIRED"}
    assert the.journal.active_since() is None


def check_of_two_rotations_at_a_time_one_takes_effect(the: Setting) -> None:
    """The later one would destroy the active key: its own key is destroyed, or it replaces another key."""
    third, fourth = SECOND._replace(id="third"), SECOND._replace(id="fourth")
    the.journal.add_pending(SECOND, NOW)
    the.journal.activate(third, LATER)
    for late in (SECOND, FIRST):
        the.journal.activate(late, LATER)
        assert the.journal.keys(KeyState.ACTIVE) == [third]
    the.journal.add_pending(fourth, LATER)
    the.journal.activate(fourth, LATER, replaces="first")
    assert the.journal.keys(KeyState.ACTIVE) == [third]
    the.journal.activate(fourth, LATER, replaces="third")
    assert the.journal.keys(KeyState.ACTIVE) == [fourth]


def check_a_query_that_is_overdue_holds_no_key(the: Setting) -> None:
    number = countersigned(the.journal).number
    the.journal.decide(number, 0, decision(b"0"), NOW)
    the.journal.activate(SECOND, LATER)
    the.journal.destroy_unused(DEADLINE - 1)
    [_, former] = the.journal.summary(DEADLINE - 1).keys
    assert (former.state, former.undecided, former.overdue) == ("DRAINING", 1, 0)
    the.journal.destroy_unused(DEADLINE)
    [_, former] = the.reopened().summary(DEADLINE).keys
    assert (former.state, former.undecided, former.overdue) == ("DESTROYED", 0, 1)
    burnt = decision(b"burnt")
    assert the.journal.decide(number, 1, burnt, DEADLINE) == burnt


# Queries


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


# Decisions


def check_a_cohort_is_decided_once_for_ever(the: Setting) -> None:
    number = countersigned(the.journal).number
    assert the.journal.decision(number, 0) is None
    assert the.journal.decide(number, 0, decision(b"this"), NOW) == decision(b"this")
    for _ in range(2):
        assert the.journal.decide(number, 0, decision(b"this"), LATER) == decision(b"this")
        assert the.journal.decide(number, 0, decision(b"other", b"else"), LATER) == decision(b"this")
        assert the.reopened().decision(number, 0) == decision(b"this")
    assert the.journal.decision(number, 1) is None


def check_only_the_noted_request_is_decided(the: Setting) -> None:
    number = countersigned(the.journal).number
    the.journal.note_decryption(number, 0, b"this")
    the.journal.note_decryption(number, 0, b"this")
    for _ in range(2):
        refused(Refusal.ALREADY_DECIDED, lambda: the.journal.note_decryption(number, 0, b"other"))
        refused(Refusal.ALREADY_DECIDED, lambda: the.journal.decide(number, 0, decision(b"other"), NOW))
        the.reopened()
    assert the.journal.decision(number, 0) is None
    assert the.journal.decide(number, 0, decision(b"this"), NOW) == decision(b"this")


def check_of_a_decided_cohort_no_other_request_is_decrypted(the: Setting) -> None:
    number = countersigned(the.journal).number
    the.journal.decide(number, 0, decision(b"burnt"), NOW)
    refused(Refusal.ALREADY_DECIDED, lambda: the.journal.note_decryption(number, 0, b"other"))
    the.journal.note_decryption(number, 0, b"burnt")
    assert the.journal.decide(number, 1, decision(b"other"), NOW) == decision(b"other")


def check_a_retired_key_decides_nothing(the: Setting) -> None:
    number = countersigned(the.journal).number
    the.journal.decide(number, 0, decision(b"this"), NOW)
    the.journal.retire_keys()
    _check_closed(the.reopened(), number)


def check_a_restored_journal_starts_closed(the: Setting) -> None:
    number = countersigned(the.journal).number
    the.journal.decide(number, 0, decision(b"this"), NOW)
    before = the.storage.content(the.journal)
    copy = the.path.with_name("copy")
    the.journal.backup(copy, LATER)
    with pytest.raises(FileExistsError):
        the.journal.backup(copy, LATER)
    assert the.storage.content(the.journal) == before
    assert the.journal.summary(NOW).copied is None
    with closing(the.storage.open(copy)) as restored:
        assert restored.owner() == b"server"
        assert restored.summary(NOW).copied == instant(LATER)
        assert restored.member_count(NOW) == 4
        assert list(restored.dealt_phones(number, 9)) == list(the.journal.dealt_phones(number, 9))
        _check_closed(restored, number)
        restored.activate(SECOND, LATER)
        fresh = countersigned(restored, id="fresh", key_id="second")
        assert restored.undecided_queries(NOW) == [fresh.digest]


def _check_closed(journal: Journal, number: int) -> None:
    """Cohort 0 is decided, cohort 1 never will be."""
    assert states(journal) == {"first": "RETIRED"}
    assert journal.undecided_queries(NOW) == []
    assert journal.decision(number, 0) == decision(b"this")
    assert journal.decide(number, 0, decision(b"other"), NOW) == decision(b"this")
    refused(Refusal.KEY_RETIRED, lambda: journal.note_decryption(number, 1, b"this"))
    refused(Refusal.KEY_RETIRED, lambda: journal.decide(number, 1, decision(b"this"), NOW))
    refused(Refusal.KEY_RETIRED, lambda: journal.countersigned(ASKED))
    refused(Refusal.KEY_RETIRED, lambda: countersigned(journal))
    refused(Refusal.KEY_RETIRED, lambda: countersigned(journal, id="new"))


def check_a_summary_counts_what_is_recorded(the: Setting) -> None:
    number = countersigned(the.journal).number
    the.journal.decide(number, 1, decision(b"this"), NOW)
    the.journal.add_invitations([b"open"], LATER)
    found = the.journal.summary(NOW)
    assert (found.identity, found.members, found.phones, found.invitations) == (b"server".hex(), 4, 4, 1)
    assert (found.queries, found.decided, found.copied) == (1, 1, None)
    [key] = found.keys
    assert (key.id, key.state, key.bits, key.made) == ("first", "ACTIVE", 2048, instant(NOW))
    assert (key.queries, key.undecided) == (1, 1)


# Atomicity


def failing_deal(members: Sequence[int]) -> Deal:
    def some() -> Iterator[tuple[int, int]]:
        yield from halves(members).cohorts[:2]  # type: ignore[index]
        raise Interrupted

    return Deal(b"agreement", some())


def number(journal: Journal, query: str) -> int:
    """The journal's number for a query."""
    found = journal.query(replace(ASKED, id=query).digest)
    assert found is not None
    return found.number


CHANGES: dict[str, Callable[[Journal], object]] = {
    "own": lambda journal: journal.take_ownership(b"server"),
    "invite": lambda journal: journal.add_invitations([b"x", b"y", b"z"], LATER),
    "enrol": lambda journal: journal.enrol(b"open", phone(9)),
    "change": lambda journal: journal.change_phone(phone(1).id, lambda found: found._replace(ended="left", expires=1)),
    "countersign": lambda journal: countersigned(journal, id="another"),
    "note": lambda journal: journal.note_decryption(number(journal, "another"), 0, b"this"),
    "add a pending key": lambda journal: journal.add_pending(SECOND, NOW),
    "activate": lambda journal: journal.activate(SECOND, LATER),
    "decide": lambda journal: journal.decide(number(journal, "another"), 0, decision(b"this"), NOW),
    "decide the query": lambda journal: journal.decide(number(journal, ASKED.id), 1, decision(b"this"), NOW),
    "decide the last": lambda journal: journal.decide(number(journal, "another"), 1, decision(b"this"), NOW),
    "prune": lambda journal: journal.prune(LATER, 3),
    "retire": lambda journal: journal.retire_keys(),
}


def check_a_change_that_is_interrupted_leaves_nothing(the: Setting) -> None:
    """At every access to the storage; the change itself is then made whole."""
    the.journal.add_invitations([b"open"], LATER)
    assert countersigned(the.journal).number == 1
    the.journal.decide(1, 0, decision(b"0"), NOW)
    for name, change in CHANGES.items():
        before, steps = the.storage.content(the.journal), 0
        while True:
            steps += 1
            try:
                with the.storage.interrupted(the.journal, steps):
                    change(the.journal)
                break
            except Interrupted:
                assert the.storage.content(the.journal) == before, f"{name} left something at step {steps}"
                assert the.storage.content(the.reopened()) == before, f"{name} left something at step {steps}"
        assert steps > 1, f"{name} was never interrupted"


def check_a_deal_that_fails_leaves_nothing(the: Setting) -> None:
    before = the.storage.content(the.journal)
    with pytest.raises(Interrupted):
        the.journal.countersign(ASKED, failing_deal, NOW, DEADLINE)
    assert the.storage.content(the.reopened()) == before
    countersigned(the.journal)


def check_a_backup_that_is_interrupted_leaves_no_file(the: Setting) -> None:
    """Or an older journal could decide again."""
    before = sorted(the.path.parent.iterdir())
    with pytest.raises(Interrupted), the.storage.interrupted_backup(the.journal):
        the.journal.backup(the.path.with_name("copy"), LATER)
    assert sorted(the.path.parent.iterdir()) == before


CHECKS: dict[str, Callable[[Setting], None]] = {
    name.removeprefix("check_"): check
    for name, check in vars(sys.modules[__name__]).items()
    if name.startswith("check_")
}
