"""What a database does to the files it is given, and what it says of those that it cannot use."""

import contextlib
import errno
import sqlite3
import stat
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from reticent.storage import database as module
from reticent.storage.database import Database
from reticent.storage.sql import FileFormat

NOTES = FileFormat(
    "a notebook", 0x4E4F5445, "CREATE TABLE notes (text TEXT); CREATE TABLE log (at INTEGER);", ValueError
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_foreign_file_is_left_as_it_was(path: Path, journal: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as foreign:
        foreign.execute(f"PRAGMA journal_mode = {journal}")
        foreign.execute("CREATE TABLE pictures (content BLOB)")
        foreign.commit()
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is not a notebook"):
        Database(path, NOTES)
    assert mode(path) == 0o644
    assert path.read_bytes() == before


def test_what_is_no_database_is_left_as_it_was(path: Path) -> None:
    path.write_text("dear diary " * 100)
    path.chmod(0o644)
    with pytest.raises(ValueError, match="is damaged, or not a notebook"):
        Database(path, NOTES)
    assert mode(path) == 0o644


def test_our_own_file_is_its_owners_only_again(path: Path) -> None:
    Database(path, NOTES).close()
    path.chmod(0o644)
    with contextlib.closing(Database(path, NOTES)) as database, database.transaction() as run:
        run("INSERT INTO notes VALUES ('x')")
        assert {mode(each) for each in path.parent.iterdir()} == {0o600}


def test_a_file_that_another_process_writes_is_said_to_be_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY", 0.1)
    with (
        contextlib.closing(Database(path, NOTES)) as one,
        contextlib.closing(Database(path, NOTES)) as other,
        one.transaction(),
        pytest.raises(OSError, match="database is locked") as caught,
        other.transaction(),
    ):
        pass
    assert (caught.value.errno, caught.value.filename) == (errno.EBUSY, str(path))
    assert "None" not in str(caught.value)


@pytest.mark.parametrize("change", ["DROP TABLE log", "ALTER TABLE notes RENAME COLUMN text TO words"])
def test_a_file_of_the_version_without_its_tables_is_refused(path: Path, change: str) -> None:
    Database(path, NOTES).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(change)
    with pytest.raises(ValueError, match=r"has no (log\.at|notes\.text): it is damaged, or another program made it"):
        Database(path, NOTES)


def test_more_than_the_tables_is_no_harm(path: Path) -> None:
    Database(path, replace(NOTES, schema=NOTES.schema + "CREATE TABLE more (n INTEGER);")).close()
    Database(path, NOTES).close()


def test_what_was_forgotten_is_in_no_file_when_one_of_several_closes(path: Path) -> None:
    secret = "a secret that nobody may find again " * 200  # of the test
    with contextlib.closing(Database(path, NOTES)) as other:
        with other.reading() as run:
            run("SELECT * FROM notes").fetchall()
        one = Database(path, NOTES)
        with one.transaction() as run:
            run("INSERT INTO notes VALUES (?)", [secret])
        with one.transaction() as run:
            run("DELETE FROM notes")
        assert any(b"nobody may find" in each.read_bytes() for each in path.parent.iterdir())
        one.close()
        assert not any(b"nobody may find" in each.read_bytes() for each in path.parent.iterdir())


def test_only_one_connection_at_a_time_makes_a_new_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite fails now and then where two connections switch a new file to the write-ahead log together."""
    instants = []
    execute = Database._execute

    def slow_execute(self: Database, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        if statement == "BEGIN IMMEDIATE" or "secure_delete" in statement:  # its first statement, and its last
            instants.append(threading.get_ident())
            time.sleep(0.01)
        return execute(self, statement, values)

    monkeypatch.setattr(Database, "_execute", slow_execute)
    with ThreadPoolExecutor(4) as threads:
        for database in threads.map(lambda _: Database(path, NOTES), range(4)):
            database.close()
    assert len(instants) == 8
    assert instants[::2] == instants[1::2]
