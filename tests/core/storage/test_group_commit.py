"""Changes of many threads or tasks are committed together, and each is on disk when it returns, or has failed."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reticent.storage.group_commit import GroupedDatabase
from reticent.storage.sql import FileFormat

KIND = FileFormat("notes", 7, "CREATE TABLE notes (number INTEGER PRIMARY KEY);", ValueError)
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


# Tasks of an event loop


def _tasks(database: GroupedDatabase, works: Sequence[Callable[[], None]]) -> list[Any]:
    """Have a task make each change, all at the same time. Returns their errors."""

    async def main() -> list[Any]:
        return await asyncio.gather(*map(database.transact, works), return_exceptions=True)

    return asyncio.run(main())


@pytest.mark.parametrize("kept", [False, True])
def test_changes_of_tasks_are_committed_together(path: Path, kept: bool) -> None:
    with contextlib.closing(GroupedDatabase(path if kept else None, KIND)) as database:
        commits = Commits(database)
        assert _tasks(database, _inserting(database, *range(100))) == [None] * 100
        assert commits.count == 1
        with database.reading() as run:
            assert run("SELECT count(*) FROM notes").fetchone() == (100,)


def test_the_change_of_a_task_is_on_disk_when_it_returns(database: GroupedDatabase, path: Path) -> None:
    async def change(number: int) -> bool:
        await asyncio.sleep(number % 7 / 1000)
        await database.transact(partial(_insert, database, number))
        return number in _numbers(path)

    async def main() -> list[bool]:
        return await asyncio.gather(*map(change, range(100)))

    assert all(asyncio.run(main()))


def test_a_task_returns_what_its_change_returns(database: GroupedDatabase) -> None:
    async def main() -> list[int]:
        return await asyncio.gather(*(database.transact(lambda number=number: number) for number in range(3)))  # type: ignore[misc]

    assert asyncio.run(main()) == [0, 1, 2]


def test_a_change_of_a_task_that_fails_takes_no_other_with_it(database: GroupedDatabase, path: Path) -> None:
    def fails(number: int) -> None:
        _insert(database, number)
        raise KeyError(number)

    works = [partial(fails if number % 2 else partial(_insert, database), number) for number in range(8)]
    assert [type(error) for error in _tasks(database, works)] == [type(None), KeyError] * 4
    assert _numbers(path) == {0, 2, 4, 6}


def test_all_tasks_of_a_group_fail_with_its_commit(database: GroupedDatabase, path: Path) -> None:
    commits = Commits(database)
    commits.error = sqlite3.OperationalError("disk full")
    assert [type(error) for error in _tasks(database, _inserting(database, 1, 2))] == [OSError] * 2
    commits.error = None
    assert _tasks(database, _inserting(database, 3)) == [None]
    assert _numbers(path) == {3}


def test_a_transaction_of_tasks_that_sqlite_ends_itself_fails_for_all(database: GroupedDatabase, path: Path) -> None:
    def ends() -> None:
        with database.transaction() as run:
            run("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")

    one, two = _inserting(database, 1, 2)
    assert [type(error) for error in _tasks(database, [one, ends, two])] == [OSError] * 3
    assert _numbers(path) == set()


def test_the_change_of_a_task_that_was_cancelled_is_not_made(database: GroupedDatabase, path: Path) -> None:
    async def main() -> None:
        one, two = (asyncio.create_task(database.transact(work)) for work in _inserting(database, 1, 2))
        asyncio.get_running_loop().call_soon(one.cancel)  # when both wait, and before their group is made
        with pytest.raises(asyncio.CancelledError):
            await one
        await two

    asyncio.run(main())
    assert _numbers(path) == {2}


def test_the_loop_does_other_work_between_groups(database: GroupedDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent.storage.group_commit.MAX_GROUP", 4)
    commits = Commits(database)
    seen: list[int] = []

    async def other() -> None:
        while True:
            await asyncio.sleep(0)
            seen.append(commits.count)

    async def main() -> None:
        working = asyncio.create_task(other())
        await asyncio.gather(*map(database.transact, _inserting(database, *range(10))))
        working.cancel()

    asyncio.run(main())
    assert set(seen) >= {1, 2}
    assert commits.count == 3


def test_tasks_of_several_loops_and_threads_change_the_same_file(database: GroupedDatabase, path: Path) -> None:
    def tasks(start: int) -> None:
        for at in range(start, start + 200, 20):
            assert _tasks(database, _inserting(database, *range(at, at + 20))) == [None] * 20

    def thread(start: int) -> None:
        for number in range(start, start + 200):
            _insert(database, number)

    with ThreadPoolExecutor(8) as pool:
        works = [pool.submit(tasks if start % 400 else thread, start) for start in range(0, 1600, 200)]
        for each in works:
            each.result(LIMIT)
    assert _numbers(path) == set(range(1600))
