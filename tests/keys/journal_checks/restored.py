"""Journals that were restored from a backup, and other ones that are closed."""

from __future__ import annotations

from contextlib import closing

import pytest

from reticent.protocol import Refusal
from reticent.times import instant
from reticent_keys import Journal
from tests.keys.journal_setting import ASKED, LATER, NOW, SECOND, Interrupted, Setting, countersigned, decision, states
from tests.parties.key_server import refused


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


def check_a_backup_that_is_interrupted_leaves_no_file(the: Setting) -> None:
    """Or an older journal could decide again."""
    before = sorted(the.path.parent.iterdir())
    with pytest.raises(Interrupted), the.storage.interrupted_backup(the.journal):
        the.journal.backup(the.path.with_name("copy"), LATER)
    assert sorted(the.path.parent.iterdir()) == before
