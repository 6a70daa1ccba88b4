"""Changes of many threads are committed together, and each is on disk when it returns, or has failed."""

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reticent.storage.database import FileFormat
from reticent.storage.group_commit import GroupedDatabase

KIND = FileFormat("notes", 7, 1, "CREATE TABLE notes (number INTEGER PRIMARY KEY);", ValueError)
THREADS = 16
LIMIT = 20.0  # seconds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


@pytest.fixture
def database(path: Path) -> Iterator[GroupedDatabase]:
    with contextlib.closing(GroupedDatabase(path, KIND)) as opened:
        yield opened


def _insert(database: GroupedDatabase, number: int) -> None:
    with database.transaction() as run:
        run("INSERT INTO notes VALUES (?)", (number,))


def _numbers(path: Path) -> set[int]:
    """What another program finds on disk."""
    with contextlib.closing(sqlite3.connect(path)) as other:
        return {number for (number,) in other.execute("SELECT number FROM notes")}


class Commits:
    """Counts the commits of a database, and may hold them up or fail them."""

    def __init__(self, database: GroupedDatabase) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self._execute = database._execute
        vars(database)["_execute"] = self.execute

    def execute(self, statement: str, values: Any = ()) -> Any:
        if statement == "COMMIT":
            self.count += 1
            assert self.gate.wait(LIMIT)
            if self.error is not None:
                raise self.error
        return self._execute(statement, values)


def _together(database: GroupedDatabase, commits: Commits, works: list[Callable[[], None]]) -> list[Any]:
    """Have one thread commit, and these wait for it: their changes are the next group."""
    commits.gate.clear()
    with ThreadPoolExecutor(len(works) + 1) as pool:
        first = pool.submit(_insert, database, -1)
        _until(lambda: commits.count == 1)
        waiting = [pool.submit(work) for work in works]
        _until(lambda: database._waiting == len(works))
        commits.gate.set()
        first.result(LIMIT)
        return [each.exception(LIMIT) for each in waiting]


def _inserting(database: GroupedDatabase, *numbers: int) -> list[Callable[[], None]]:
    return [partial(_insert, database, number) for number in numbers]


def _until(condition: Callable[[], bool]) -> None:
    for _ in range(int(LIMIT * 1000)):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it did not come about")


def test_changes_that_wait_for_the_disk_are_committed_together(database: GroupedDatabase, path: Path) -> None:
    commits = Commits(database)
    failed = _together(database, commits, _inserting(database, *range(THREADS)))
    assert failed == [None] * THREADS
    assert commits.count == 2
    assert _numbers(path) == {-1, *range(THREADS)}


def test_each_change_is_on_disk_when_it_returns(database: GroupedDatabase, path: Path) -> None:
    def change(number: int) -> bool:
        _insert(database, number)
        return number in _numbers(path)

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(change, range(20 * THREADS)))
    assert _numbers(path) == set(range(20 * THREADS))


def test_a_change_that_fails_takes_no_other_with_it(database: GroupedDatabase, path: Path) -> None:
    def fails(number: int) -> None:
        with database.transaction() as run:
            run("INSERT INTO notes VALUES (?)", (number,))
            raise KeyError(number)

    def work(number: int) -> Callable[[], None]:
        return lambda: fails(number) if number % 2 else _insert(database, number)

    errors = _together(database, Commits(database), [work(number) for number in range(THREADS)])
    assert [type(error) for error in errors] == [type(None), KeyError] * (THREADS // 2)
    assert _numbers(path) == {-1, *range(0, THREADS, 2)}


def test_all_changes_of_a_group_fail_with_its_commit(database: GroupedDatabase, path: Path) -> None:
    commits = Commits(database)

    def fail_the_next() -> None:
        with database.transaction() as run:
            run("INSERT INTO notes VALUES (0)")
            commits.error = sqlite3.OperationalError("disk full")

    errors = _together(database, commits, [fail_the_next, *_inserting(database, 1, 2)])
    assert [type(error) for error in errors] == [OSError] * 3
    assert _numbers(path) == {-1}
    commits.error = None
    _insert(database, 3)  # and the next one works
    assert _numbers(path) == {-1, 3}


def test_a_transaction_that_sqlite_ends_itself_fails_for_all(database: GroupedDatabase, path: Path) -> None:
    def ends() -> None:
        with database.transaction() as run:
            run("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")

    errors = _together(database, Commits(database), [ends, *_inserting(database, 1, 2)])
    assert isinstance(errors[0], OSError)
    stored = {number for number, error in enumerate(errors) if error is None}
    assert _numbers(path) == {-1, *stored}


def test_reads_see_only_what_is_committed(database: GroupedDatabase) -> None:
    def read() -> list[Any]:
        with database.reading() as run:
            return run("SELECT number FROM notes").fetchall()

    with ThreadPoolExecutor(1) as pool, database.transaction() as run:
        run("INSERT INTO notes VALUES (1)")
        assert read() == [(1,)]  # its own
        assert pool.submit(read).result(LIMIT) == []
    assert read() == [(1,)]


@pytest.mark.parametrize("kept", [False, True])
def test_a_change_within_a_change_is_a_part_of_it(path: Path, kept: bool) -> None:
    with contextlib.closing(GroupedDatabase(path if kept else None, KIND)) as database:
        with contextlib.suppress(KeyError), database.transaction():
            _insert(database, 1)
            raise KeyError
        with database.transaction():
            _insert(database, 2)
            with contextlib.suppress(sqlite3.IntegrityError):
                _insert(database, 2)
            _insert(database, 3)
        with database.reading() as run:
            assert run("SELECT number FROM notes").fetchall() == [(2,), (3,)]
