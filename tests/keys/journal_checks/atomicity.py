"""Changes that are interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from reticent_keys import Journal
from reticent_keys.journal import Deal
from tests.keys.journal_setting import (
    ASKED,
    DEADLINE,
    LATER,
    NOW,
    SECOND,
    Interrupted,
    Setting,
    countersigned,
    decision,
    halves,
    phone,
)


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
