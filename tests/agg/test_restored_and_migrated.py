"""A database restored from yesterday, and migrations: from the first schema on, and killed half way."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psycopg
import pytest

from reticent.console.program import main
from reticent.storage.databases import migrate, open_database
from reticent.storage.sql import Execute, FileFormat
from reticent.v1 import counting_pb2 as wire
from reticent_agg import BadStore, SqlStore
from reticent_agg.sql_schema import FORMAT
from tests.agg.store_conformance.values import accept as any_answer
from tests.agg.store_conformance.values import batch, closed, collecting, decision_of, head_of, known

FIRST = replace(FORMAT, schema=(Path(__file__).parent / "first_schema.sql").read_text(), migrations=())
"""The format of the first version that can be upgraded."""


def next_format() -> FileFormat:
    """A version after the present one, as a later program will have it."""
    schema = FORMAT.schema.replace("    decided INTEGER,", "    decided INTEGER, later INTEGER,")
    script = "ALTER TABLE queries ADD COLUMN later INTEGER; UPDATE queries SET later = 8"
    return replace(FORMAT, schema=schema, migrations=(*FORMAT.migrations, script))


def columns(path: Path) -> set[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as raw:
        return set(
            raw.execute(
                "SELECT t.name, c.name FROM sqlite_master AS t, pragma_table_info(t.name) AS c WHERE t.type = 'table'"
            )
        )


def fill(place: Path | str) -> bytes:
    """A store with a query that collects."""
    with contextlib.closing(SqlStore(place)) as store:
        digest = collecting(store)
        store.put_contributions([batch(digest, 0, 2)], 0)
        return digest


def test_a_filled_database_of_the_first_version_becomes_as_a_new_one(tmp_path: Path) -> None:
    """A change of the schema needs a migration."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with contextlib.closing(open_database(old, FIRST)) as database, database.transaction() as run:
        run(
            "INSERT INTO queries (digest, id, content, phase, announced) VALUES (?, 'q', ?, ?, 1)",
            (b"digest", b"content", wire.ANNOUNCED),
        )
    migrate(old, FORMAT)
    with contextlib.closing(SqlStore(old)) as store:
        assert known(store.query(b"digest")).id == "q"
    SqlStore(new).close()
    assert columns(old) == columns(new)


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store is."""
    if request.param == "SQLite":
        return str(tmp_path / "aggregation.db")
    url: str = request.getfixturevalue("postgres")
    return url


@pytest.mark.parametrize("place", ["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.slow)], indirect=True)
def test_the_version_before_the_first_is_refused_with_both_numbers(place: str) -> None:
    """It had other tables."""
    own = place if "://" in place else Path(place)
    tables = "CREATE TABLE queries (digest BLOB PRIMARY KEY)"
    open_database(own, replace(FORMAT, schema=tables, first=1, restored="")).close()
    for open_store in (SqlStore, partial(migrate, file_format=FORMAT)):
        with pytest.raises(BadStore, match=r"has format version 1: this program reads 2, and cannot upgrade from 1$"):
            open_store(own)


def killed_in_a_migration(place: str) -> None:
    """Run in a process of its own: it dies after the first statement of the migration."""

    def upgrade(file_format: FileFormat, run: Execute, version: int) -> None:
        run(file_format.migrations[version - file_format.first].split(";")[0])
        os.kill(os.getpid(), signal.SIGKILL)

    FileFormat.upgrade = upgrade  # type: ignore[assignment,method-assign]
    migrate(place, next_format())


@pytest.mark.slow
def test_a_migration_that_is_killed_half_way_changes_nothing(place: str) -> None:
    opened = place if "://" in place else Path(place)
    digest = fill(opened)
    code = f"from {__name__} import killed_in_a_migration; killed_in_a_migration({place!r})"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with contextlib.closing(SqlStore(opened)) as store:
        assert [each.contributors for each in store.cohorts(digest)] == [2]
    migrate(place, next_format())
    with contextlib.closing(open_database(opened, next_format())) as database, database.reading() as run:
        assert run("SELECT later FROM queries").fetchall() == [(8,)]
    with pytest.raises(BadStore, match=r"has format version 3: this program reads 2$"):
        SqlStore(opened)


@contextlib.contextmanager
def dump(url: str) -> Iterator[str]:
    """A copy of a database, as pg_dump writes it."""
    from tests.postgres import programs  # noqa: PLC0415  # few tests need it

    folder = programs()
    assert folder is not None
    with tempfile.TemporaryDirectory() as place:
        file = f"{place}/dump.sql"
        subprocess.run([folder / "pg_dump", "--file", file, url], check=True)
        yield file


@pytest.mark.slow
def test_a_database_restored_from_yesterday_reports_no_burnt_cohort_and_releases_nothing_twice(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.postgres import programs  # noqa: PLC0415  # few tests need it

    monkeypatch.chdir(tmp_path)
    digest = fill(postgres)
    with dump(postgres) as yesterday:
        with contextlib.closing(SqlStore(postgres)) as store:
            store.put_contributions([batch(digest, 4)], 0)
            closed(store, digest)
            sent = head_of(store, digest)
            assert sent.ciphertexts
        with psycopg.connect(postgres, autocommit=True) as raw:
            raw.execute("DROP SCHEMA reticent_agg CASCADE")
        folder = programs()
        assert folder is not None
        subprocess.run(
            [folder / "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", yesterday, postgres],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    assert main(["agg", "restored", "--database", postgres]) == 0
    assert capsys.readouterr().out == "q  aborted\n"
    with contextlib.closing(SqlStore(postgres)) as store:
        assert not head_of(store, digest).ciphertexts  # a second sum of the same cohort is never sent
        store.decide(decision_of(digest, outcome=wire.BURNT), any_answer, 5)
        assert store.decision_for_phones(digest, 0) is None  # phones keep their reservations
