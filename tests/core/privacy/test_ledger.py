import contextlib
import itertools
import math
import os
import pickle
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reticent.errors import ReticentError
from reticent.privacy._cost import Cost, Noise, epsilon_of
from reticent.privacy._ledger import (
    APPLICATION,
    SELF,
    BudgetExceeded,
    Composition,
    Contradiction,
    Entry,
    Ledger,
    UnreadableLedger,
)
from reticent.storage.database import Database
from reticent.storage.sql import FileFormat

LIMIT = Cost(1.0, 1e-5)
DEADLINE = 60.0  # seconds a process of a test may take
NOISY = Cost(1.0, 1e-6, Noise("gaussian", 24.0, 1, 1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@contextlib.contextmanager
def _open(limit: Cost = LIMIT, path: Path | None = None, composition: Composition = "addition") -> Iterator[Ledger]:
    ledger = Ledger(limit, path, composition=composition)
    try:
        yield ledger
    finally:
        ledger.close()


def test_a_quote_takes_nothing_and_says_what_a_reservation_would() -> None:
    with _open() as ledger:
        cost = Cost(0.25, 1e-6)
        dry = ledger.quote("a", cost)
        assert dry == ledger.quote("a", cost) == ledger.reserve("a", cost)
        assert (dry.spent, dry.extra, dry.left, dry.fits) == (Cost(0, 0), cost, LIMIT, True)
        again = ledger.quote("b", cost)
        assert (again.spent, again.left) == (cost, Cost(0.75, 9e-6))


def test_a_refusal_says_what_was_spent_by_what_and_what_is_left() -> None:
    with _open() as ledger:
        ledger.reserve("steps", Cost(0.5, 1e-6))
        ledger.spend("steps")
        ledger.reserve("sleep", Cost(0.25, 1e-6))
        with pytest.raises(BudgetExceeded) as refusal:
            ledger.reserve("heart", Cost(0.3, 1e-6))
        assert str(refusal.value) == (
            "'heart' takes (0.3, 1e-06) of the budget of 'self', and (0.25, 8e-06) is left: "
            "(0.75, 2e-06) was spent by 'sleep', 'steps'"
        )
        error = refusal.value
        assert (error.subject, error.query) == (SELF, "heart")
        assert (error.quote.spent, error.quote.left) == (Cost(0.75, 2e-6), Cost(0.25, 8e-6))
        assert error.quote.extra == Cost(0.3, 1e-6)
        assert not error.quote.fits
        assert error.entries == ledger.entries()
        assert isinstance(error, ReticentError)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301  # our own


def test_a_refusal_names_a_few_queries_and_counts_the_rest() -> None:
    with _open() as ledger:
        for number in range(8):
            ledger.reserve(f"q{number}", Cost(0.1, 0))
        with pytest.raises(BudgetExceeded, match=r"by 'q0', 'q1', 'q2', 'q3', 'q4', 3 more$"):
            ledger.reserve("q8", Cost(0.5, 0))


def test_either_half_of_the_budget_runs_out() -> None:
    with _open() as ledger:
        with pytest.raises(BudgetExceeded):
            ledger.reserve("a", Cost(1.1, 0))
        with pytest.raises(BudgetExceeded):
            ledger.reserve("a", Cost(0, 2e-5))
        assert ledger.entries() == ()


@pytest.mark.parametrize("times", [3, 7, 10, 49])
def test_a_budget_is_divided_without_remainder(times: int) -> None:
    """0.1 three times is 0.3, although in binary it is more."""
    with _open(Cost(times / 10, times / 1e7)) as ledger:
        for number in range(times):
            ledger.reserve(str(number), Cost(0.1, 1e-7))
        assert ledger.quote("more", Cost(1e-300, 0)).fits is False
        assert ledger.quote("more", Cost(0, 0)).left == Cost(0, 0)


def test_a_query_is_reserved_once_whatever_its_state() -> None:
    with _open() as ledger:
        cost = Cost(0.75, 1e-6)
        ledger.reserve("a", cost)
        again = ledger.reserve("a", cost)
        assert (again.extra, again.fits) == (Cost(0, 0), True)
        ledger.spend("a")
        ledger.reserve("a", cost)
        ledger.spend("a")
        assert ledger.entries() == (Entry(SELF, "a", cost, "spent"),)


def test_a_query_has_one_cost() -> None:
    with _open() as ledger:
        ledger.reserve("a", Cost(0.25, 1e-6))
        for step in (ledger.reserve, ledger.quote):
            with pytest.raises(Contradiction, match=r"'a' is reserved by 'self' at .*0\.25.*: it cannot cost .*0\.125"):
                step("a", Cost(0.125, 1e-6))
        assert ledger.entries()[0].cost == Cost(0.25, 1e-6)


def test_what_was_spent_is_not_given_back() -> None:
    with _open() as ledger:
        ledger.reserve("a", Cost(0.25, 1e-6))
        ledger.spend("a")
        with pytest.raises(Contradiction, match="'a' cannot be given back to 'self': it was spent"):
            ledger.give_back("a")
        assert ledger.entries()[0].state == "spent"


def test_what_was_not_reserved_is_not_spent() -> None:
    with _open() as ledger:
        with pytest.raises(Contradiction, match="'a' cannot be spent by 'self': nothing is reserved"):
            ledger.spend("a")
        ledger.reserve("a", Cost(1, 0))
        ledger.give_back("a")
        with pytest.raises(Contradiction, match="cannot be spent"):
            ledger.spend("a")


def test_a_failed_query_spends_nothing() -> None:
    with _open() as ledger:
        ledger.reserve("a", Cost(1, 0))
        ledger.give_back("a")
        ledger.give_back("a")
        assert ledger.reserve("b", Cost(1, 0)).spent == Cost(0, 0)


def test_each_subject_has_a_budget_of_its_own() -> None:
    with _open() as ledger:
        ledger.reserve("a", Cost(1, 0), subject="ann")
        ledger.reserve("a", Cost(0.5, 0), subject="ben")
        ledger.spend("a", subject="ben")
        with pytest.raises(Contradiction):
            ledger.spend("a", subject="eve")
        assert [(entry.subject, entry.state) for entry in ledger.entries()] == [("ann", "reserved"), ("ben", "spent")]
        assert [entry.cost for entry in ledger.entries(subject="ben")] == [Cost(0.5, 0)]
        assert ledger.quote("b", Cost(0.5, 0), subject="ben").fits
        assert not ledger.quote("b", Cost(0.5, 0), subject="ann").fits


@pytest.mark.parametrize("bad", ["", None, 3, b"a"])
def test_queries_and_subjects_have_names(bad: Any) -> None:
    with _open() as ledger:
        with pytest.raises(ValueError, match="a query is named by text"):
            ledger.reserve(bad, Cost(0, 0))
        if bad is not None:
            with pytest.raises(ValueError, match="a subject is named by text"):
                ledger.reserve("a", Cost(0, 0), subject=bad)
    with pytest.raises(ValueError, match="a subject is named by text"):
        Ledger(LIMIT, subject=bad)


def test_a_ledger_in_another_file_changes_with_it() -> None:
    kind = FileFormat("notes", 7, f"CREATE TABLE notes (text TEXT); {Ledger.SCHEMA};", ValueError)
    with contextlib.closing(Database(None, kind)) as database:
        ann, ben = (Ledger(LIMIT, database, subject=subject) for subject in ("ann", "ben"))
        with contextlib.suppress(RuntimeError), database.transaction() as run:
            run("INSERT INTO notes VALUES ('a')")
            ann.reserve("a", Cost(1, 0))
            raise RuntimeError
        assert ann.entries() == ()
        with database.transaction() as run:
            run("INSERT INTO notes VALUES ('a')")
            ann.reserve("a", Cost(1, 0))
            with pytest.raises(BudgetExceeded, match="of the budget of 'ann'"):
                ann.reserve("b", Cost(1, 0))
        ann.close()
        assert ben.reserve("a", Cost(1, 0)).fits
        assert [(entry.subject, entry.query) for entry in ben.entries()] == [("ann", "a"), ("ben", "a")]
        assert [entry.subject for entry in ann.entries(subject="ann")] == ["ann"]


# Through Rényi divergences.


def test_many_noisy_queries_fit_through_their_divergences() -> None:
    limit = Cost(4.0, 1e-5)
    fitting: dict[Composition, int] = {}
    for composition in ("addition", "renyi"):
        with _open(limit, composition=composition) as ledger, contextlib.suppress(BudgetExceeded):
            for number in itertools.count():
                ledger.reserve(str(number), NOISY)
                fitting[composition] = number + 1
    assert fitting["addition"] == 4
    assert fitting["renyi"] == 14


@pytest.mark.parametrize("limit", [Cost(0.1, 1e-9), Cost(1.0, 1e-6), Cost(8.0, 1e-3), Cost(50.0, 1e-6)])
def test_the_order_of_a_ledger_is_the_best_for_its_limit(limit: Cost) -> None:
    """The least Gaussian noise that fits would not fit at any other order."""
    with _open(limit, composition="renyi") as ledger:
        low, high = 1e-6, 1e9
        while high > low * (1 + 1e-12):
            middle = math.sqrt(low * high)
            fits = ledger.quote("a", Cost(1, 0.5, Noise("gaussian", middle, 1, 1))).fits
            low, high = (low, middle) if fits else (middle, high)
    least = Noise("gaussian", high, 1, 1)
    spent = {order: epsilon_of(least.renyi(order), order, limit.delta) for order in range(2, 2000)}
    assert min(spent.values()) == pytest.approx(limit.epsilon, rel=1e-9)
    assert min(spent.values()) <= limit.epsilon


def test_divergences_say_what_is_spent_at_the_limit_s_delta() -> None:
    with _open(Cost(4.0, 1e-5), composition="renyi") as ledger:
        first = ledger.reserve("a", NOISY)
        second = ledger.quote("b", NOISY)
        assert first.spent == Cost(0, 0)
        assert first.extra == second.spent
        assert second.spent.delta == 1e-5
        assert second.extra.epsilon < 0.3 * first.extra.epsilon
        assert second.left.epsilon == pytest.approx(4.0 - second.spent.epsilon)
        ledger.give_back("a")
        assert ledger.quote("b", NOISY) == first


def test_a_cost_that_says_no_noise_has_no_divergence() -> None:
    with _open(composition="renyi") as ledger:
        with pytest.raises(ValueError, match="does not compose through Rényi divergences: got Cost"):
            ledger.reserve("a", Cost(0.1, 1e-9))
        ledger.reserve("b", Cost(0.1, 0.0))
        with pytest.raises(BudgetExceeded):
            ledger.reserve("c", NOISY)


@pytest.mark.parametrize(
    ("limit", "composition", "words"),
    [
        (Cost(1, 0), "renyi", "the limit's delta must be positive"),
        (Cost(0, 0.1), "renyi", "the limit's epsilon must be positive"),
        (LIMIT, "advanced", "costs compose by addition or renyi: got 'advanced'"),
    ],
)
def test_a_limit_that_its_composition_cannot_keep_is_refused(limit: Cost, composition: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Ledger(limit, composition=composition)


# The file.


def test_a_ledger_is_there_after_a_restart(path: Path) -> None:
    costs = {"a": Cost(0.1, 1e-7), "b": Cost(1 / 3, 1e-6, Noise("skellam", 24.3, math.sqrt(3), 3))}
    with _open(path=path) as ledger:
        for query, cost in costs.items():
            ledger.reserve(query, cost)
        ledger.spend("b")
        before = ledger.entries()
    with _open(path=path) as ledger:
        assert ledger.entries() == before
        assert ledger.reserve("a", costs["a"]).extra == Cost(0, 0)


def test_a_lower_limit_leaves_nothing_and_changes_nothing(path: Path) -> None:
    with _open(path=path) as ledger:
        ledger.reserve("a", Cost(0.75, 0))
    with _open(Cost(0.5, 0), path) as ledger:
        assert ledger.quote("b", Cost(0, 0)).left == Cost(0, 0)
        assert not ledger.quote("b", Cost(0, 0)).fits
        assert ledger.reserve("a", Cost(0.75, 0)).fits  # it is reserved already


def test_only_its_owner_reads_a_ledger(path: Path) -> None:
    before = os.umask(0)
    try:
        with _open(path=path) as ledger:
            ledger.reserve("a", Cost(0.1, 0))
            files = [file for file in path.parent.iterdir() if file.is_file()]
            assert len(files) == 3
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    finally:
        os.umask(before)


def test_what_is_written_is_on_disk(path: Path) -> None:
    with _open(path=path) as ledger:
        assert ledger._database._execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert ledger._database._execute("PRAGMA synchronous").fetchone() == (2,)


@pytest.mark.parametrize(
    ("pragma", "words"), [("application_id = 7", "is not a ledger"), ("user_version = 9", "version 9")]
)
def test_other_files_are_refused_and_left_alone(path: Path, pragma: str, words: str) -> None:
    with _open(path=path):
        pass
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA {pragma}")
    database.close()
    content = path.read_bytes()
    with pytest.raises(UnreadableLedger, match=words):
        Ledger(LIMIT, path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE entries (name TEXT)")
    database.close()
    with pytest.raises(UnreadableLedger, match="is not a ledger"):
        Ledger(LIMIT, path)


def test_what_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"a" * 5000)
    with pytest.raises(UnreadableLedger, match="damaged, or not a ledger"):
        Ledger(LIMIT, path)


def test_a_damaged_cost_is_not_taken_for_nothing(path: Path) -> None:
    with _open(path=path) as ledger:
        ledger.reserve("a", Cost(0.1, 0))
        ledger._database._execute("UPDATE entries SET cost = '{}'")
        with pytest.raises(UnreadableLedger, match="is damaged: the text is not a cost"):
            ledger.reserve("b", Cost(0.1, 0))


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Ledger(LIMIT, tmp_path / "none" / "ledger")


def test_the_number_of_the_format_is_pinned() -> None:
    assert APPLICATION == 0x5245544C


def test_what_a_subject_has_spent_is_found_without_reading_the_others() -> None:
    """A file may hold thousands of phones, and each of them looks several times in each count."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with _open() as ledger:
        with ledger._database.transaction() as run:
            for number in range(2000):
                run("INSERT INTO entries VALUES (?, 'steps', ?, 0)", (f"phone {number}", NOISY.to_text()))
        ledger._database._connection.set_progress_handler(count, 100)
        assert len(ledger.entries(subject="phone 77")) == 1
    assert steps <= 2
