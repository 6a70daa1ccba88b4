"""PostgreSQL: addresses, and connections that are lost or hang."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from dataclasses import replace

import psycopg
import pytest

from reticent.storage import _postgres_connection as module
from reticent.storage.databases import migrate, open_database
from reticent.storage.sql import SqlDatabase
from tests.core.storage.notes import NEWER, NOTES, hung, kill_connections, opened, texts, write
from tests.postgres import new_server


@pytest.mark.parametrize("url", ["postgresql://ann:secret@[::1/x", "postgresql://ann:secret@host/x?colour=red"])
def test_a_wrong_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="no address of a PostgreSQL database") as caught:
        open_database(url, NOTES)
    assert "secret" not in "".join(map(str, (caught.value, caught.value.__cause__)))


def test_a_call_to_a_machine_that_is_gone_fails_soon() -> None:
    """So soon that another machine can take over; the URL has the last word."""
    given = module.parse("postgresql://ann@host/x?keepalives_count=9")
    seconds = (given["keepalives_idle"], given["keepalives_interval"], given["tcp_user_timeout"] / 1000)
    assert max(seconds) <= 20
    assert given["keepalives_count"] == "9"


@pytest.mark.slow
class TestLostConnections:
    def test_before_a_transaction_is_not_noticed(self, postgres: str) -> None:
        with opened(postgres) as database:
            write(database, "a")
            kill_connections(postgres)
            write(database, "b")
            kill_connections(postgres)
            assert texts(database) == ["a", "b"]

    @pytest.mark.parametrize("place", ["between statements", "at COMMIT", "in a part"])
    def test_within_a_transaction_is_an_error_of_the_system(self, postgres: str, place: str) -> None:
        def change(database: SqlDatabase) -> None:
            with database.transaction() as run:
                run("INSERT INTO notes (text) VALUES ('a')")
                kill_connections(postgres)
                if place == "between statements":
                    run("INSERT INTO notes (text) VALUES ('b')")
                if place == "in a part":
                    with contextlib.suppress(OSError):
                        write(database, "b")

        with opened(postgres) as database:
            with pytest.raises(OSError, match=r"terminat|closed|lost") as caught:
                change(database)
            assert caught.value.filename == database.place
            assert "correct" not in f"{caught.value}{database.place}"
            write(database, "c")
            assert texts(database) == ["c"]

    def test_a_transaction_that_idles_too_long_is_an_error_of_the_system(
        self, postgres: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def idle(database: SqlDatabase) -> None:
            with database.transaction() as run:
                run("INSERT INTO notes (text) VALUES ('a')")
                time.sleep(0.5)
                run("INSERT INTO notes (text) VALUES ('b')")

        with opened(postgres) as database, monkeypatch.context() as patch:
            patch.setattr(module, "_SETTINGS", ("SET idle_in_transaction_session_timeout = '100ms'",))
            database.close()  # what is opened from now on has the setting
            with pytest.raises(OSError, match="idle-in-transaction timeout") as caught:
                idle(database)
            assert caught.value.errno == errno.EIO
            patch.undo()
            idle(database)
            assert texts(database) == ["a", "b"]

    def test_a_process_that_is_frozen_within_a_transaction_loses_its_locks_after_a_minute(self, postgres: str) -> None:
        with psycopg.connect(postgres, autocommit=True) as other:  # the operator's setting is another
            other.execute(f"ALTER DATABASE {other.info.dbname} SET idle_in_transaction_session_timeout = 0")
        with opened(postgres) as database, database.reading() as run:
            assert run("SHOW idle_in_transaction_session_timeout").fetchone() == ("1min",)

    def test_a_connection_whose_prepared_statements_fail_is_replaced(self, postgres: str) -> None:
        def read(database: SqlDatabase) -> int:
            with database.reading() as run:
                return len(run("SELECT * FROM notes").fetchall())

        def alter(_: SqlDatabase) -> None:
            with psycopg.connect(postgres) as other:
                other.execute("ALTER TABLE notes.notes ADD COLUMN author TEXT")

        def forget(database: SqlDatabase) -> None:
            with database.reading() as run:
                run("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")

        with opened(postgres) as database:
            write(database, "a")
            for break_, message in ((alter, "cached plan"), (forget, "does not exist")):
                assert [read(database) for _ in range(3)] == [1, 1, 1]
                break_(database)
                with pytest.raises(OSError, match=message) as caught:
                    read(database)
                assert caught.value.errno == errno.EIO
                assert read(database) == 1

    def test_a_server_that_crashed_is_back_at_the_next_call(self) -> None:
        own = new_server()
        with own.database() as url, opened(url) as database:
            write(database, "a")
            own.kill()
            with pytest.raises(OSError, match="refused"):
                texts(database)
            own.start()
            assert texts(database) == ["a"]
        own.stop()

    def test_a_wrong_password_is_an_error_that_shows_none(self, postgres: str) -> None:
        url = postgres.replace("correct", "incorrect")
        with pytest.raises(OSError, match="password authentication failed") as caught:
            open_database(url, NOTES)
        assert "incorrect" not in repr(caught.value)


@pytest.mark.slow
class TestHungServers:
    LIMIT = 0.5

    @pytest.fixture(autouse=True)
    def short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert module.ANSWER_TIMEOUT == 30
        monkeypatch.setattr(module, "ANSWER_TIMEOUT", self.LIMIT)

    def test_a_statement_that_is_not_answered_ends_and_another_connection_is_used(self, postgres: str) -> None:
        with opened(postgres) as database:
            write(database, "a")
            with hung(database):
                started = time.monotonic()
                with pytest.raises(OSError, match=r"no answer in 0\.5 s: the connection is closed") as caught:
                    write(database, "b")
                assert self.LIMIT <= time.monotonic() - started < self.LIMIT + 5
                assert caught.value.filename == database.place
                write(database, "c")
                assert texts(database) == ["a", "c"]

    def test_a_commit_that_is_not_answered_ends(self, postgres: str) -> None:
        def change(database: SqlDatabase) -> None:
            with database.transaction() as run:
                run("INSERT INTO notes (text) VALUES ('b')")
                stack.enter_context(hung(database))

        with opened(postgres) as database, contextlib.ExitStack() as stack:
            with pytest.raises(OSError, match="no answer"):
                change(database)
            stack.close()
            write(database, "c")
            assert texts(database)[-1] == "c"  # nobody knows whether "b" was committed

    def test_a_server_that_does_not_answer_at_all_is_an_error_of_the_system(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(module.DEFAULTS, "connect_timeout", 2)
        own = new_server()
        with own.database() as url, opened(url) as database:
            write(database, "a")
            main = int((own.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
            os.kill(main, signal.SIGSTOP)  # accepts no connection any more
            try:
                with hung(database), pytest.raises(OSError, match="no answer"):
                    write(database, "b")
                with pytest.raises(OSError, match="timeout"):
                    write(database, "c")
            finally:
                os.kill(main, signal.SIGCONT)
            write(database, "d")
            assert texts(database) == ["a", "d"]
        own.stop()

    def test_a_long_statement_of_a_server_that_works_ends_without_its_connection(self, postgres: str) -> None:
        """The server ends it, and releases its locks."""
        with opened(postgres) as database:
            with database.reading() as run:
                assert run("SHOW statement_timeout").fetchone() == ("25s",)
                run("SET statement_timeout = 200")
                (pid,) = run("SELECT pg_backend_pid()").fetchone()
            with pytest.raises(OSError, match="statement timeout"), database.reading() as run:
                run("SELECT pg_sleep(5)")
            with database.reading() as run:
                assert run("SELECT pg_backend_pid()").fetchone() == (pid,)

    def test_a_migration_may_take_any_time(self, postgres: str) -> None:
        open_database(postgres, NOTES).close()
        slow = replace(NEWER, migrations=(f"SELECT pg_sleep({3 * self.LIMIT}); {NEWER.migrations[0]}",))
        migrate(postgres, slow)
        with opened(postgres, NEWER) as database, database.reading() as run:
            assert run("SHOW statement_timeout").fetchone() == ("25s",)
