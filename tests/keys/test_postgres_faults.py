"""Each transaction of the journal on PostgreSQL, with a fault before each of its statements, and at its COMMIT."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reticent.protocol import Refusal
from reticent_keys import SqlJournal
from reticent_keys.record_counts import RecordCounts
from tests.keys.journal_setting import (
    ASKED,
    DEADLINE,
    FIRST,
    LATER,
    NOW,
    SECOND,
    countersigned,
    decision,
    enrol,
    halves,
    phone,
)
from tests.parties.key_server import refused
from tests.postgres_faults import (
    Faults,
    deadlock,
    full_disk,
    lost,
    make_room,
    serialisation_failure,
    small_disk,
)

pytestmark = pytest.mark.slow

TABLES = ("server", "keys", "phones", "invitations", "queries", "dealt", "decryptions", "decisions")
QUERY = 1
"""The journal's number for the query."""


def new(journal: SqlJournal) -> None:
    journal.take_ownership(b"server")
    for number in (1, 2, 3, 4):
        enrol(journal, number)
    journal.activate(FIRST, NOW)


def asked(journal: SqlJournal) -> None:
    new(journal)
    countersigned(journal)
    journal.add_invitations([b"open"], LATER)


def half_decided(journal: SqlJournal) -> None:
    asked(journal)
    journal.decide(QUERY, 0, decision(b"0"), NOW)
    journal.activate(SECOND, LATER)


def noted(journal: SqlJournal) -> None:
    half_decided(journal)
    journal.note_decryption(QUERY, 1, b"1")


def decided(journal: SqlJournal) -> None:
    noted(journal)
    journal.decide(QUERY, 1, decision(b"1"), NOW)


@dataclass(frozen=True)
class Transaction:
    """A method that writes, and what comes before; and whether a call after a lost COMMIT changes nothing."""

    prepare: Callable[[SqlJournal], None]
    call: Callable[[SqlJournal], object]
    is_repeated: bool = True


TRANSACTIONS = {
    "take_ownership": Transaction(lambda _: None, lambda journal: journal.take_ownership(b"server")),
    "check_complete": Transaction(decided, lambda journal: journal.check_complete()),
    "add_invitations": Transaction(new, lambda journal: journal.add_invitations([b"x", b"y"], LATER), False),
    "enrol": Transaction(asked, lambda journal: journal.enrol(b"open", phone(9))),
    "change_phone": Transaction(
        new, lambda journal: journal.change_phone(phone(1).id, lambda found: found._replace(ended="left"))
    ),
    "add_pending": Transaction(new, lambda journal: journal.add_pending(SECOND, NOW)),
    "activate": Transaction(asked, lambda journal: journal.activate(SECOND, LATER)),
    "destroy_unused": Transaction(half_decided, lambda journal: journal.destroy_unused(DEADLINE)),
    "retire_keys": Transaction(half_decided, lambda journal: journal.retire_keys()),
    "countersign": Transaction(
        asked, lambda journal: journal.countersign(replace(ASKED, id="other"), halves, NOW, DEADLINE)
    ),
    "erase_all_but_undecided": Transaction(asked, lambda journal: journal.erase_all_but_undecided(lambda _: None, NOW)),
    "note_decryption": Transaction(half_decided, lambda journal: journal.note_decryption(QUERY, 1, b"1")),
    "decide": Transaction(noted, lambda journal: journal.decide(QUERY, 1, decision(b"1"), NOW)),
    "prune": Transaction(decided, lambda journal: journal.prune(LATER, 100), False),
}


def content(journal: SqlJournal) -> dict[str, list[Any]]:
    """All rows, without their own numbers, which may have gaps."""
    found = {}
    with journal.database.reading() as run:
        for table in TABLES:
            rows = run(f"SELECT * FROM {table}").fetchall()  # noqa: S608  # one of eight names
            if table == "invitations":
                rows = [(*row[:3], row[3] is not None) for row in rows]
            found[table] = sorted(repr(row if table == "server" else row[1:]) for row in rows)
    return found


def test_the_transactions_are_all_of_the_journal() -> None:
    writing = {name for name, method in vars(SqlJournal).items() if hasattr(method, "__wrapped__")}
    assert writing - {"_changing_keys", "_dealing", "_deciding"} <= TRANSACTIONS.keys()


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_a_fault_in_a_transaction_leaves_all_or_nothing_and_another_call_completes_it(
    name: str, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = TRANSACTIONS[name]
    counts = tmp_path / "records.json"
    with contextlib.closing(SqlJournal(postgres, RecordCounts(counts))) as journal:
        faults = Faults(monkeypatch)

        def prepare() -> None:
            with journal.database.transaction() as run:
                run(f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY")
            counts.unlink(missing_ok=True)
            transaction.prepare(journal)

        prepare()
        before = content(journal)
        with faults.planned(None, deadlock):
            transaction.call(journal)
            statements = faults.count
        after = content(journal)
        assert statements >= 3  # with BEGIN and COMMIT
        for place in range(statements):
            for fault in (lost, (deadlock, serialisation_failure, full_disk)[place % 3]):
                prepare()
                raised: OSError | None = None
                with faults.planned(place, fault):
                    try:
                        transaction.call(journal)
                    except OSError as error:
                        raised = error
                if fault in {deadlock, serialisation_failure}:
                    assert raised is None, (place, fault)  # the journal has repeated it
                elif raised is not None:
                    assert content(journal) == before, (place, fault)
                    assert fault is not full_disk or raised.errno == errno.ENOSPC
                    transaction.call(journal)
                assert content(journal) == after, (place, fault)
        prepare()
        with faults.planned(None, lost, after_commit=True), pytest.raises(OSError, match="server closed"):
            transaction.call(journal)
        if transaction.is_repeated:
            transaction.call(journal)  # nobody knows that it was committed
        assert content(journal) == after
        journal.check_complete()


if os.geteuid() == 0:  # the faults above are of every user's

    @pytest.fixture
    def tiny_disk() -> Iterator[tuple[Path, str]]:
        with small_disk() as made:
            yield made

    def fill(journal: SqlJournal) -> None:
        for _ in range(1000):
            journal.add_invitations([os.urandom(2000) for _ in range(100)], LATER)

    def test_on_a_full_disk_no_decision_is_lost_and_none_is_made_twice(tiny_disk: tuple[Path, str]) -> None:
        folder, url = tiny_disk
        with contextlib.closing(SqlJournal(url)) as journal:
            noted(journal)
            query = QUERY
            with pytest.raises(OSError, match="No space left") as caught:
                fill(journal)
            assert caught.value.errno == errno.ENOSPC
            with contextlib.suppress(OSError):  # there may be space in the page
                journal.decide(query, 1, decision(b"1"), NOW)
            make_room(folder)
            fresh = [os.urandom(2000)]
            journal.add_invitations(fresh, LATER)
            assert journal.decision(query, 0) == decision(b"0")
            refused(Refusal.ALREADY_DECIDED, lambda: journal.note_decryption(query, 1, b"2"))
            assert journal.decide(query, 1, decision(b"1"), NOW) == decision(b"1")
