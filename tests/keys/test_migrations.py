"""A journal of the first version that can be upgraded becomes one of the present version, also after a kill."""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reticent.storage.databases import migrate, open_database
from reticent.storage.sql import Execute, FileFormat
from reticent_keys import JournalError, SqlJournal
from reticent_keys.sql_schema import JOURNAL

FIRST = replace(JOURNAL, schema=(Path(__file__).parent / "first_schema.sql").read_text(), migrations=())
"""The format of the first version that can be upgraded."""
COLUMNS = """
SELECT t.type, t.name, c.name, c.type, c."notnull", c.dflt_value, c.pk
FROM sqlite_master AS t JOIN pragma_table_info(t.name) AS c WHERE t.type IN ('table', 'view')
"""
INDEXES = "SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'"


def shape(path: Path) -> set[tuple[object, ...]]:
    """The columns of all tables and views, and the indexes."""
    with contextlib.closing(SqlJournal(path)) as journal, journal.database.reading() as run:
        return {*run(COLUMNS).fetchall(), *run(INDEXES).fetchall()}


def test_a_journal_of_the_first_version_becomes_as_a_new_one(tmp_path: Path) -> None:
    """A change of the schema needs a migration."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with contextlib.closing(open_database(old, FIRST)) as database, database.transaction() as run:
        run("INSERT INTO server (identity) VALUES (?)", (b"identity",))
    migrate(old, JOURNAL)
    with contextlib.closing(SqlJournal(old)) as journal:
        assert journal.owner() == b"identity"
    assert shape(old) == shape(new)


@pytest.mark.parametrize("version", [1, 2])
def test_a_journal_that_is_too_old_is_refused_with_both_numbers(tmp_path: Path, version: int) -> None:
    """Versions 1 and 2 had other tables: no number is used again."""
    path = tmp_path / "journal.db"
    with contextlib.closing(
        open_database(path, replace(FIRST, schema="CREATE TABLE queries (id TEXT);", first=version))
    ):
        pass
    for opened in (lambda: SqlJournal(path), lambda: migrate(path, JOURNAL)):
        with pytest.raises(JournalError, match=rf"version {version}: this program reads 4, and cannot upgrade"):
            opened()


def killed_in_a_migration(place: str) -> None:
    """Run in a process of its own: it dies after the first statement of the migration."""

    def upgrade(file_format: FileFormat, run: Execute, version: int) -> None:
        run(file_format.migrations[version - file_format.first].split(";")[0])
        os.kill(os.getpid(), signal.SIGKILL)

    FileFormat.upgrade = upgrade  # type: ignore[assignment,method-assign]
    migrate(place, JOURNAL)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
def test_a_migration_that_is_killed_half_way_changes_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "journal.db") if kind == "SQLite" else request.getfixturevalue("postgres")
    opened = Path(place) if kind == "SQLite" else place
    key = ("id", "ACTIVE", 2048, b"public", 1)
    with contextlib.closing(open_database(opened, FIRST)) as database, database.transaction() as run:
        run("INSERT INTO keys (id, state, bits, public, made) VALUES (?, ?, ?, ?, ?)", key)
    code = f"from {__name__} import killed_in_a_migration; killed_in_a_migration({place!r})"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with pytest.raises(JournalError, match=r"has format version 3: this program reads 4; run `reticent keys migrate`"):
        SqlJournal(opened)
    with contextlib.closing(open_database(opened, FIRST)) as database, database.reading() as run:
        assert run("SELECT id FROM keys").fetchall() == [("id",)]
    for _ in range(2):
        migrate(place, JOURNAL)
    with contextlib.closing(SqlJournal(opened)) as journal, journal.database.reading() as run:
        assert run("SELECT id, records FROM keys").fetchall() == [("id", 0)]
