"""A PostgreSQL database that is restored from a copy while processes serve from it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from reticent.errors import ExitCode
from reticent_agg import BadStore, SqlStore
from reticent_agg.store import PutResult
from tests.agg.store_conformance.values import batch, closed, collecting, head_of, put
from tests.agg.test_restored_and_migrated import dump
from tests.parties.aggregation import KeyServer
from tests.postgres import new_server, programs

pytestmark = pytest.mark.slow

LOST = (
    "has lost transactions: it was restored from a copy, or a standby without them took over. Stop all processes, run"
)


def load(url: str, file: str) -> None:
    """Replace the tables by those of a dump, as an operator does who stops nothing."""
    folder = programs()
    assert folder is not None
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("DROP SCHEMA reticent_agg CASCADE")
    command: list[str | Path] = [folder / "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", file, url]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def check_refused(store: SqlStore, digest: bytes) -> None:
    """No call of a process that was connected before has any effect."""
    before = head_count(store)
    for call in (
        store.check_claim,
        lambda: put(store, digest, 7),
        lambda: closed(store, digest),
        lambda: store.abort("q"),
    ):
        with pytest.raises(BadStore, match=f"{LOST} `reticent agg restored`, and start them again"):
            call()
    assert head_count(store) == before


def head_count(store: SqlStore) -> tuple[int, int]:
    with store.database.reading() as run:
        counts: tuple[int, int] = run(
            "SELECT (SELECT count(*) FROM requests), (SELECT count(*) FROM receipts)"
        ).fetchone()
        return counts


def check_served_after_restored(url: str, digest: bytes) -> None:
    """A process that starts is refused too, until the operator has run the command."""
    with contextlib.closing(SqlStore(url)) as store:
        with pytest.raises(BadStore, match=LOST), store.serving():
            pass
        assert store.abort_restored() == ["q"]
        with store.serving():
            assert put(store, digest, 8) == [PutResult.LATE]
            store.check_claim()
        assert not head_of(store, digest).ciphertexts


def test_a_process_refuses_a_dump_of_yesterday_and_so_does_the_next_one(postgres: str) -> None:
    with contextlib.closing(SqlStore(postgres)) as store, store.serving():
        digest = collecting(store)
        put(store, digest, 0)
        with dump(postgres) as yesterday:
            put(store, digest, 1)
            load(postgres, yesterday)
        check_refused(store, digest)
    check_served_after_restored(postgres, digest)


def test_the_command_ends_with_a_sentence_on_a_database_that_was_found_to_be_restored(
    postgres: str, tmp_path: Path, certs: Path
) -> None:
    with contextlib.closing(SqlStore(postgres)) as store, store.serving():
        digest = collecting(store)
        with dump(postgres) as yesterday:
            put(store, digest, 1)
            load(postgres, yesterday)
        check_refused(store, digest)
    options = ["--folder", str(tmp_path / "agg"), "--certs", str(certs), "--identity", KeyServer.identity.public.hex()]
    command = [sys.executable, "-m", "reticent", "agg", "serve", "--database", postgres, "--metrics", "", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == ExitCode.BAD_INPUT
    assert len(done.stderr.splitlines()) == 1
    assert LOST in done.stderr


def test_a_process_that_began_after_the_copy_refuses_it(postgres: str) -> None:
    with contextlib.closing(SqlStore(postgres)) as store:
        digest = collecting(store)
        with dump(postgres) as yesterday, store.serving():
            put(store, digest, 0)
            load(postgres, yesterday)
            check_refused(store, digest)


def test_other_processes_refuse_what_one_has_found(postgres: str) -> None:
    """One that has begun on the copy cannot know by itself."""
    with contextlib.closing(SqlStore(postgres)) as old, contextlib.closing(SqlStore(postgres)) as new, old.serving():
        digest = collecting(old)
        with dump(postgres) as yesterday:
            put(old, digest, 1)
            load(postgres, yesterday)
        with new.serving():
            put(new, digest, 2)
            with pytest.raises(BadStore, match=LOST):
                old.check_claim()
            check_refused(new, digest)


def test_the_files_of_an_earlier_moment_are_refused_and_a_crash_is_not() -> None:
    """As with a standby that lacks the last transactions: everything else is the same."""
    own = new_server()
    data, copy = own.folder / "data", own.folder / "copy"
    with own.database() as url, contextlib.closing(SqlStore(url)) as store, store.serving():
        digest = collecting(store)
        put(store, digest, 0)
        own.stop()
        shutil.copytree(data, copy)
        for path in (copy, *copy.rglob("*")):
            shutil.chown(path, Path(data).owner())
        own.start()
        store.check_claim()
        put(store, digest, 1)
        own.kill()
        own.start()
        assert put(store, digest, 2) == [PutResult.COUNTED]
        own.stop()
        shutil.rmtree(data)
        copy.rename(data)
        own.start()
        check_refused(store, digest)
        check_served_after_restored(url, digest)
    own.stop()


def test_a_process_that_writes_nothing_for_a_month_serves_on(postgres: str) -> None:
    with (
        contextlib.closing(SqlStore(postgres)) as quiet,
        contextlib.closing(SqlStore(postgres)) as other,
        quiet.serving(),
    ):
        digest = collecting(quiet)
        with psycopg.connect(postgres) as raw:
            raw.execute("UPDATE reticent_agg.progress SET seen = seen - INTERVAL '31 days'")
        quiet.check_claim()
        with other.serving():
            quiet.check_claim()
            assert put(quiet, digest, 0) == [PutResult.COUNTED]


def test_a_database_from_before_histories_gets_them(postgres: str) -> None:
    with contextlib.closing(SqlStore(postgres)) as store:
        digest = collecting(store)
    with psycopg.connect(postgres) as raw:
        raw.execute("DROP TABLE reticent_agg.progress")
        raw.execute("ALTER TABLE reticent_agg.file_format DROP COLUMN went_back")
    with contextlib.closing(SqlStore(postgres)) as store, store.serving():
        assert store.put_contributions([batch(digest, 0)], 0) == [[PutResult.COUNTED]]
