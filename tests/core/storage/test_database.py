"""The file of a server: its versions, its backups, and that one process serves from it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reticent.errors import ReticentError
from reticent.storage.database import Database
from reticent.storage.databases import migrate
from reticent.storage.sql import FileFormat, InUse


class BadNotes(ReticentError):
    pass


FIRST = """
CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL); -- here; and no further
CREATE TABLE log (text TEXT);
CREATE TRIGGER noted AFTER INSERT ON notes BEGIN
    INSERT INTO log VALUES ('got ' || NEW.text);
    INSERT INTO log VALUES ('; and more');
END;
"""

ONE = FileFormat("a notebook", 0x4E4F5445, FIRST, BadNotes)
TWO = replace(
    ONE,
    schema=FIRST.replace("text TEXT NOT NULL", "text TEXT NOT NULL, author TEXT"),
    migrations=("ALTER TABLE notes ADD COLUMN author TEXT; UPDATE notes SET author = 'ann'",),
)


@contextlib.contextmanager
def opened(path: Path | None, kind: FileFormat = ONE) -> Iterator[Database]:
    with contextlib.closing(Database(path, kind)) as database:
        yield database


def write(database: Database, *texts: str) -> None:
    with database.transaction() as run:
        for text in texts:
            run("INSERT INTO notes (text) VALUES (?)", [text])


def texts(database: Database) -> list[str]:
    with database.reading() as run:
        return [text for (text,) in run("SELECT text FROM notes ORDER BY id").fetchall()]


def schema(path: Path) -> list[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as raw:
        return raw.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()


class TestVersions:
    def test_statements_may_hold_others(self, tmp_path: Path) -> None:
        with opened(tmp_path / "notes.db") as database:
            write(database, "a")
            with database.reading() as run:
                assert run("SELECT text FROM log").fetchall() == [("got a",), ("; and more",)]

    @pytest.mark.parametrize("version", [1, 3])
    def test_another_version_is_refused_with_both_numbers_and_left_alone(self, tmp_path: Path, version: int) -> None:
        path = tmp_path / "notes.db"
        with opened(path, replace(ONE, migrations=("",) * (version - 1))):
            pass
        before = path.read_bytes()
        with pytest.raises(BadNotes) as caught:
            Database(path, replace(ONE, migrations=("",), migrate="notes migrate"))
        hint = "; run `notes migrate` to upgrade it" if version == 1 else ""
        assert str(caught.value) == f"{path} has format version {version}: this program reads 2{hint}"
        assert path.read_bytes() == before

    def test_a_version_without_an_upgrade_is_refused_with_both_numbers_and_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        with opened(path):
            pass
        later = replace(TWO, first=2)
        content = path.read_bytes()
        for open_notes in (Database, migrate):
            with pytest.raises(BadNotes) as caught:
                open_notes(path, later)
            expected = "has format version 1: this program reads 3, and cannot upgrade from 1"
            assert str(caught.value) == f"{path} {expected}"
        assert path.read_bytes() == content

    def test_the_first_migration_upgrades_the_oldest_version_that_can_be_upgraded(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        with opened(path, replace(ONE, first=2)) as database:
            write(database, "a")
        migrate(path, replace(TWO, first=2))
        with opened(path, replace(TWO, first=2)) as database, database.reading() as run:
            assert run("SELECT text, author FROM notes").fetchall() == [("a", "ann")]

    def test_a_filled_file_of_an_older_version_becomes_as_a_new_one(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        with opened(path) as database:
            write(database, "a")
            with database.claim(), pytest.raises(InUse):
                migrate(path, TWO)
        broken = replace(TWO, migrations=(f"{TWO.migrations[0]}; DROP TABLE lost",))
        with pytest.raises(OSError, match="no such table"):
            migrate(path, broken)
        with opened(path) as database:
            assert texts(database) == ["a"]
        migrate(path, TWO)
        with opened(path, TWO) as database, database.reading() as run:
            assert run("SELECT text, author FROM notes").fetchall() == [("a", "ann")]

    def test_a_file_that_cannot_be_made_stays_empty(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        with pytest.raises(OSError, match="no such table"):
            Database(path, replace(ONE, schema=f"{FIRST} CREATE INDEX by_author ON lost (author);"))
        assert schema(path) == []
        with opened(path) as database:
            write(database, "a")

    def test_what_is_no_sql_is_refused(self) -> None:
        with pytest.raises(ValueError, match="this is no SQL"):
            Database(None, replace(ONE, schema="CREATE TABLE a (b); CREATE TRIGGER c AFTER INSERT ON a BEGIN SELECT 1"))


class TestOneProcess:
    def test_serves_and_others_may_write(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        with opened(path) as server, server.claim():
            with pytest.raises(InUse, match=f"another process serves from {path}"):
                claim_elsewhere(path)
            with opened(path) as other:
                with pytest.raises(InUse), other.claim():
                    pass
                write(other, "from the command line")
            assert texts(server) == ["from the command line"]
        claim_elsewhere(path)
        assert stat.S_IMODE(Path(f"{path}.lock").stat().st_mode) == 0o600

    def test_a_claim_ends_with_the_process(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        code = """
            import sys
            from tests.core.storage.test_database import ONE, Database, Path
            with Database(Path(sys.argv[1]), ONE).claim():
                print("claimed", flush=True)
                sys.stdin.read()
        """
        command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "claimed\n"
            with opened(path) as database:
                with pytest.raises(InUse), database.claim():
                    pass
                process.kill()
                process.wait(timeout=20)
                with database.claim():
                    pass

    def test_needs_no_file(self) -> None:
        with opened(None) as database, database.claim(), database.claim():
            write(database, "a")


def claim_elsewhere(path: Path) -> None:
    with opened(path) as database, database.claim():
        pass


class TestBackup:
    def test_is_all_that_was_true(self, tmp_path: Path) -> None:
        with opened(tmp_path / "notes.db") as database:
            write(database, *map(str, range(1000)))
            database.backup(tmp_path / "copy.db")
            write(database, "later")
        assert {path.name for path in tmp_path.iterdir()} == {"notes.db", "copy.db"}
        assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
        with opened(tmp_path / "copy.db") as copy:
            assert texts(copy) == list(map(str, range(1000)))
            write(copy, "on it goes")

    def test_of_one_in_memory(self, tmp_path: Path) -> None:
        with opened(None) as database:
            write(database, "a")
            database.backup(tmp_path / "copy.db")
        with opened(tmp_path / "copy.db") as copy:
            assert texts(copy) == ["a"]

    def test_holds_no_half_of_a_change(self, tmp_path: Path) -> None:
        """While others write in pairs, by the same and by another connection."""
        path, stop, errors = tmp_path / "notes.db", threading.Event(), list[BaseException]()

        def keep_writing(database: Database) -> None:
            try:
                while not stop.is_set():
                    with database.transaction() as run:
                        run("INSERT INTO notes (text) VALUES ('one')")
                        time.sleep(0.002)
                        run("INSERT INTO notes (text) VALUES ('other')")
                    time.sleep(0.002)
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        with opened(path) as database, opened(path) as another:
            writers = [threading.Thread(target=keep_writing, args=(each,)) for each in (database, another)]
            for each in writers:
                each.start()
            lengths = []
            for number in range(4):
                database.backup(tmp_path / f"copy{number}.db")
                with opened(tmp_path / f"copy{number}.db") as copy:
                    found = texts(copy)
                assert found == ["one", "other"] * (len(found) // 2)
                lengths.append(len(found))
            stop.set()
            for each in writers:
                each.join()
        assert not errors
        assert lengths == sorted(lengths)
        assert lengths[-1] > 0

    def test_waits_for_a_change_that_is_under_way(self, tmp_path: Path) -> None:
        copying = threading.Event()

        def copy() -> None:
            copying.set()
            database.backup(tmp_path / "copy.db")

        with opened(tmp_path / "notes.db") as database:
            with database.transaction() as run:
                run("INSERT INTO notes (text) VALUES ('one')")
                thread = threading.Thread(target=copy)
                thread.start()
                copying.wait()
                time.sleep(0.2)
                assert not (tmp_path / "copy.db").exists()
                run("INSERT INTO notes (text) VALUES ('other')")
            thread.join()
        with opened(tmp_path / "copy.db") as found:
            assert texts(found) == ["one", "other"]

    def test_is_not_made_in_the_midst_of_a_change(self, tmp_path: Path) -> None:
        with opened(tmp_path / "notes.db") as database:
            with pytest.raises(ValueError, match="within a transaction"), database.transaction():
                database.backup(tmp_path / "copy.db")
            database.backup(tmp_path / "copy.db")

    def test_overwrites_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "copy.db").write_text("mine")
        with opened(tmp_path / "notes.db") as database:
            for taken in (tmp_path / "copy.db", tmp_path / "notes.db"):
                with pytest.raises(FileExistsError, match=str(taken)):
                    database.backup(taken)
            with pytest.raises(FileNotFoundError, match="nowhere"):
                database.backup(tmp_path / "nowhere" / "copy.db")
            assert texts(database) == []
        assert (tmp_path / "copy.db").read_text() == "mine"
        assert len(list(tmp_path.iterdir())) == 2

    def test_is_whole_or_not_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Killed before the copy has its name, at the latest, there is no file under it."""
        with opened(tmp_path / "notes.db") as database:
            write(database, "a")

            def killed(*_: object) -> None:
                raise KeyboardInterrupt

            monkeypatch.setattr(os, "link", killed)
            with pytest.raises(KeyboardInterrupt):
                database.backup(tmp_path / "copy.db")
        assert [path.name for path in tmp_path.iterdir()] == ["notes.db"]

    def test_of_a_damaged_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        with opened(path) as database:
            write(database, *("x" * 500 for _ in range(200)))
        content = bytearray(path.read_bytes())
        content[4096 * 5 + 100 : 4096 * 20] = bytes(4096 * 15 - 100)
        path.write_bytes(content)
        with opened(path) as database, pytest.raises(BadNotes, match=f"{path} is damaged"):
            database.backup(tmp_path / "copy.db")
        assert not (tmp_path / "copy.db").exists()

    def test_where_there_is_no_room(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Full(sqlite3.Connection):
            def execute(self, *_: object) -> sqlite3.Cursor:
                raise sqlite3.OperationalError("database or disk is full")

        with opened(tmp_path / "notes.db") as database:
            monkeypatch.setattr(sqlite3, "connect", lambda path, **_: Full(path, isolation_level=None))
            with pytest.raises(OSError, match="disk is full") as caught:
                database.backup(tmp_path / "copy.db")
        assert caught.value.filename == str(tmp_path / "copy.db")
        assert not (tmp_path / "copy.db").exists()


def test_what_breaks_a_rule_is_no_damage() -> None:
    """A statement that is wrong, or against a constraint, says nothing of the file."""
    with opened(None) as database:
        for statement, error in (
            ("INSERT INTO notes (id, text) VALUES (1, 'a'), (1, 'b')", sqlite3.IntegrityError),
            ("INSERT INTO notes (text) VALUES (?)", sqlite3.ProgrammingError),
        ):
            with pytest.raises(error), database.transaction() as run:
                run(statement)
        assert texts(database) == []
