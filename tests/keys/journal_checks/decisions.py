"""Decisions: one for each cohort."""

from __future__ import annotations

from reticent.protocol import Refusal
from tests.keys.journal_setting import LATER, NOW, Setting, countersigned, decision
from tests.parties.key_server import refused


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
