"""The journals keep what every journal must keep, and the checks find journals that do not."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reticent.privacy import Query
from reticent.storage import _postgres
from reticent.storage.database import Database
from reticent_keys import Journal, SqlJournal
from reticent_keys.journal import CountersignedQuery, Deal, EnrolledPhone, Key, RecordedDecision
from tests.keys.journal_checks import CHECKS
from tests.keys.journal_setting import (
    ASKED,
    DEADLINE,
    LATER,
    NOW,
    SECOND,
    Interrupted,
    Setting,
    Storage,
    countersigned,
    decision,
    halves,
    setting,
    states,
)


@dataclass(frozen=True)
class Sqlite:
    """The journal in a SQLite file."""

    kind: type[SqlJournal] = SqlJournal

    def open(self, path: Path) -> Journal:
        return self.kind(path)

    def content(self, journal: Journal) -> object:
        assert isinstance(journal, SqlJournal)
        with journal.database.reading() as run:
            tables = run("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
            return [run(f"SELECT * FROM {name}").fetchall() for (name,) in tables]  # noqa: S608

    @contextlib.contextmanager
    def interrupted(self, journal: Journal, step: int) -> Iterator[None]:
        assert isinstance(journal, SqlJournal)
        with pytest.MonkeyPatch.context() as patch:
            assert isinstance(journal.database, Database)
            patch.setattr(journal.database, "_execute", _interrupting(journal.database._execute, step))
            yield

    @contextlib.contextmanager
    def between(self, journal: Journal, change: Callable[[], object]) -> Iterator[None]:
        assert isinstance(journal, SqlJournal)
        with pytest.MonkeyPatch.context() as patch:
            assert isinstance(journal.database, Database)
            patch.setattr(journal.database, "_execute", _before_the_second(journal.database._execute, change))
            yield

    @contextlib.contextmanager
    def interrupted_backup(self, journal: Journal) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(journal), "retire_keys", _interrupt)
            yield


@dataclass(frozen=True)
class Postgres:
    """The journal in a PostgreSQL database."""

    url: str
    kind: type[SqlJournal] = SqlJournal

    def open(self, path: Path) -> Journal:  # there are no files
        return self.kind(self.url)

    def content(self, journal: Journal) -> object:
        assert isinstance(journal, SqlJournal)
        with journal.database.reading() as run:
            names = run(
                "SELECT CAST(table_name AS text) FROM information_schema.tables"
                " WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' ORDER BY 1"
            ).fetchall()
            return [sorted(map(repr, run(f"SELECT * FROM {name}").fetchall())) for (name,) in names]  # noqa: S608

    @contextlib.contextmanager
    def interrupted(self, journal: Journal, step: int) -> Iterator[None]:  # all of this process
        with pytest.MonkeyPatch.context() as patch:
            execute = _postgres._execute
            left = step

            def run(connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    raise Interrupted
                return execute(connection, statement, values)

            patch.setattr(_postgres, "_execute", run)
            yield

    @contextlib.contextmanager
    def between(self, journal: Journal, change: Callable[[], object]) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_postgres, "_execute", _before_the_second(_postgres._execute, change))
            yield

    def interrupted_backup(self, journal: Journal) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError


def _interrupting(execute: Callable[..., Any], step: int) -> Callable[..., Any]:
    left = step

    def run(statement: str, values: Sequence[Any] = ()) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise Interrupted
        return execute(statement, values)

    return run


def _before_the_second(execute: Callable[..., Any], change: Callable[[], object]) -> Callable[..., Any]:
    count = 0

    def run(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            change()
        return execute(*arguments)

    return run


def _interrupt(*_: object) -> None:
    raise Interrupted


def opened(storage: Storage, folder: Path) -> contextlib.AbstractContextManager[Setting]:
    @contextlib.contextmanager
    def made() -> Iterator[Setting]:
        the = setting(storage, folder)
        try:
            yield the
        finally:
            the.journal.close()

    return made()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("storage", [Sqlite()], ids=["sqlite"])
def test_a_journal_keeps_its_promises(storage: Storage, check: str, tmp_path: Path) -> None:
    with opened(storage, tmp_path) as the:
        CHECKS[check](the)


FILES = {"a_restored_journal_starts_closed", "a_backup_that_is_interrupted_leaves_no_file"}
"""Checks of backups, which PostgreSQL makes by itself."""


@pytest.mark.slow
@pytest.mark.parametrize("check", sorted(CHECKS.keys() - FILES))
def test_a_journal_in_postgresql_keeps_its_promises(postgres: str, check: str, tmp_path: Path) -> None:
    with opened(Postgres(postgres), tmp_path) as the:
        CHECKS[check](the)


@pytest.mark.slow
def test_cohorts_are_decided_while_a_query_is_dealt(postgres: str, tmp_path: Path) -> None:
    """Dealing a million phones takes PostgreSQL half a minute."""
    storage = Postgres(postgres)
    with opened(storage, tmp_path) as the, contextlib.closing(storage.open(tmp_path)) as other:
        number = countersigned(the.journal).number
        the.journal.activate(SECOND, LATER)
        decided = []

        def deal(members: Sequence[int]) -> Deal:
            for cohort, request in enumerate((b"this", b"that")):
                other.note_decryption(number, cohort, request)
                decided.append(other.decide(number, cohort, decision(request), NOW))
                other.destroy_unused(NOW)
            assert other.prune(LATER, 100) == 6, "four phones, and what was noted of two cohorts"
            return halves(members)

        with ThreadPoolExecutor(1) as pool:
            query = replace(ASKED, id="large", key_id="second")
            pool.submit(the.journal.countersign, query, deal, NOW, DEADLINE).result(60)
        assert decided == [decision(b"this"), decision(b"that")]
        assert states(the.journal) == {"second": "ACTIVE", "first": "DESTROYED"}


class DecidesAgain(SqlJournal):
    def decide(self, query: int, cohort: int, decision: RecordedDecision, now: int) -> RecordedDecision:
        with self.database.transaction() as run:
            run("INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?)", (query, cohort, *decision, now))
        return decision


class DecidesWhatWasReadBefore(SqlJournal):
    """Looks for a decision before its transaction begins."""

    def decide(self, query: int, cohort: int, decision: RecordedDecision, now: int) -> RecordedDecision:
        found = self.decision(query, cohort)
        with self.database.transaction() as run:
            if found is None:
                run("INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?)", (query, cohort, *decision, now))
        return found or decision


class NotesNothing(SqlJournal):
    def note_decryption(self, query: int, cohort: int, request: bytes) -> None:
        pass


class BacksUpOpen(SqlJournal):
    def backup(self, path: Path, now: int) -> None:
        assert isinstance(self.database, Database)
        self.database.backup(path)
        with contextlib.closing(SqlJournal(path)) as copy, copy.database.transaction() as run:
            run("UPDATE server SET copied = ?", (now,))


class BacksUpInPlace(SqlJournal):
    """Retires the keys of a backup after it has its name."""

    def backup(self, path: Path, now: int) -> None:
        assert isinstance(self.database, Database)
        self.database.backup(path)
        with contextlib.closing(SqlJournal(path)) as copy:
            copy.retire_keys()
            with copy.database.transaction() as run:
                run("UPDATE server SET copied = ?", (now,))


class DealsByHalves(SqlJournal):
    """Records a query first, and its phones later."""

    def countersign(
        self, query: Query, deal: Callable[[Sequence[int]], Deal], now: int, deadline: int
    ) -> CountersignedQuery:
        dealt = None

        def none(members: Sequence[int]) -> Deal:
            nonlocal dealt
            dealt = deal(members)
            return Deal(dealt.agreement_key, ())

        made = super().countersign(query, none, now, deadline)
        with self.database.transaction() as run:
            for phone, cohort in () if dealt is None else dealt.cohorts:
                run("INSERT INTO dealt (query, phone, cohort) VALUES (?, ?, ?)", (made.number, phone, cohort))
        return made


class ChangesWhatWasReadBefore(SqlJournal):
    """Reads a phone before its transaction begins."""

    def change_phone(self, phone_id: bytes, change: Callable[[EnrolledPhone], EnrolledPhone]) -> EnrolledPhone:
        changed = change(self.phone(phone_id))
        return super().change_phone(phone_id, lambda _: changed)


class DealsWhatWasReadBefore(SqlJournal):
    """Deals before its transaction begins."""

    def countersign(
        self, query: Query, deal: Callable[[Sequence[int]], Deal], now: int, deadline: int
    ) -> CountersignedQuery:
        with self.database.reading() as run:
            members = [number for (number,) in run("SELECT number FROM phones").fetchall()]
        dealt = deal(members)
        return super().countersign(query, lambda _: dealt, now, deadline)


class InvitesForEver(SqlJournal):
    """Does not use an invitation up."""

    def enrol(self, invitation: bytes, phone: EnrolledPhone) -> EnrolledPhone:
        made = super().enrol(invitation, phone)
        with self.database.transaction() as run:
            run("UPDATE invitations SET phone = NULL WHERE hash = ?", (invitation,))
        return made


class DestroysTooEarly(SqlJournal):
    """Destroys a key when another one takes its place, whatever is undecided under it."""

    def activate(self, key: Key, now: int, replaces: str | None = None) -> None:
        super().activate(key, now, replaces)
        with self.database.transaction() as run:
            run("UPDATE keys SET state = 'DESTROYED' WHERE state = 'DRAINING'")


class ForgetsItsOwner(SqlJournal):
    def take_ownership(self, identity: bytes) -> None:
        with self.database.transaction() as run:
            run("DELETE FROM server")
            run("INSERT INTO server (identity) VALUES (?)", (identity,))


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (DecidesAgain, "a_cohort_is_decided_once_for_ever"),
        (DecidesWhatWasReadBefore, "only_the_noted_request_is_decided"),
        (NotesNothing, "only_the_noted_request_is_decided"),
        (BacksUpOpen, "a_restored_journal_starts_closed"),
        (BacksUpInPlace, "a_backup_that_is_interrupted_leaves_no_file"),
        (DealsByHalves, "a_deal_that_fails_leaves_nothing"),
        (DealsByHalves, "a_change_that_is_interrupted_leaves_nothing"),
        (ChangesWhatWasReadBefore, "a_change_builds_on_the_one_before"),
        (DealsWhatWasReadBefore, "a_query_is_dealt_by_one_of_two"),
        (NotesNothing, "two_processes_agree"),
        (InvitesForEver, "an_invitation_enrols_one_phone"),
        (DestroysTooEarly, "one_key_is_active"),
        (ForgetsItsOwner, "a_journal_belongs_to_one_server"),
    ],
)
def test_a_journal_that_breaks_a_promise_is_found(broken: type[SqlJournal], check: str, tmp_path: Path) -> None:
    with opened(Sqlite(broken), tmp_path) as the, pytest.raises((AssertionError, pytest.fail.Exception)):
        CHECKS[check](the)
