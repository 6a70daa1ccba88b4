"""The server, and its journal in numbers."""

from __future__ import annotations

from contextlib import closing

import pytest

from reticent.storage.sql import InUse
from reticent.times import instant
from reticent_keys import JournalError
from tests.keys.journal_setting import LATER, NOW, Setting, countersigned, decision


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
