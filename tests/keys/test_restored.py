"""A journal that was restored from a backup decides nothing that was announced before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from reticent.privacy import Query
from reticent.protocol import Refusal
from reticent.storage.database import Database
from reticent.v1 import counting_pb2 as wire
from reticent_keys import JournalError, KeyServer, SqlJournal, record_counts
from reticent_keys.folder import Folder
from reticent_keys.journal import KeyState
from reticent_keys.keypair import KeyPair
from reticent_keys.record_counts import RecordCounts
from reticent_keys.sql_schema import JOURNAL
from tests.parties.decision_requests import decide, honest, request
from tests.parties.key_pairs import pair
from tests.parties.key_server import BITS, DAY, PASSPHRASE, YEAR, LocalKeyServer, dealt, refused
from tests.parties.phone import Contribution
from tests.postgres import programs

RESTORED = "was restored from a backup, and lacks later records: .*`reticent keys rotate --retire`"


@pytest.fixture(autouse=True)
def _known_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Key pairs that were made before: making them takes seconds."""
    pairs = iter([pair(BITS, number) for number in range(1, 5)])
    monkeypatch.setattr(KeyPair, "generate", lambda bits, *, simulation: next(pairs))  # noqa: ARG005


def served(folder: Folder, local: LocalKeyServer) -> AbstractContextManager[KeyServer]:
    return folder.served(PASSPHRASE, now=local.clock.now, limits=local.limits)


def dump(url: str, file: Path) -> None:
    subprocess.run([_program("pg_dump"), "-Fc", "-f", file, url], check=True)


def restore(url: str, file: Path) -> None:
    """Put all tables back as they were, beneath the servers that are connected."""
    subprocess.run([_program("pg_restore"), "--clean", "--if-exists", "-d", url, file], check=True)


def _program(name: str) -> Path:
    found = programs()
    assert found is not None
    return found / name


@pytest.mark.slow
def test_a_running_server_decides_nothing_after_its_database_was_restored(postgres: str, tmp_path: Path) -> None:
    with LocalKeyServer() as local:
        folder = Folder(tmp_path / "keys", bits=BITS, simulation=True, database=postgres)
        local.close()
        with served(folder, local) as server:
            query = _asked(local, server)
            inputs = {cohort: local.contributions(query, cohort) for cohort in (0, 1)}
            key = local.key
            dump(postgres, tmp_path / "yesterday")
            assert decide(server, *honest(query, 0, key, inputs[0])).outcome == wire.RELEASED
            restore(postgres, tmp_path / "yesterday")
            for cohort in (0, 1):
                for message in (honest(query, cohort, key, inputs[cohort][1:]), request(query, cohort, key, [], [])):
                    refused(Refusal.UNAVAILABLE, lambda message=message: decide(server, *message), RESTORED)  # type: ignore[misc]
            refused(Refusal.UNAVAILABLE, lambda: dealt(server, local.query(id="new")), RESTORED)
            with pytest.raises(JournalError, match=RESTORED):  # and keeps the keys of all queries
                server.erase_overdue()
        _check_closed(folder, local, query, inputs[0])


def test_a_server_does_not_start_on_an_old_file(tmp_path: Path) -> None:
    folder, file = Folder(tmp_path / "keys", bits=BITS, simulation=True), tmp_path / "keys" / "journal.db"
    with LocalKeyServer() as local:
        local.close()
        with served(folder, local) as server:
            query = _asked(local, server)
            inputs = local.contributions(query, 0)
            database = Database(file, JOURNAL)
            database.backup(tmp_path / "yesterday")
            database.close()
            assert decide(server, *honest(query, 0, local.key, inputs)).outcome == wire.RELEASED
        folder.rotate(PASSPHRASE, local.clock.now)
        for path in file.parent.glob("journal.db-*"):
            path.unlink()
        shutil.copy(tmp_path / "yesterday", file)
        _check_closed(folder, local, query, inputs)


def test_a_file_that_lacks_a_key_is_noticed(tmp_path: Path) -> None:
    """The key was rotated after the copy, and nothing more was recorded under the former one."""
    folder, file = Folder(tmp_path / "keys", bits=BITS, simulation=True), tmp_path / "keys" / "journal.db"
    with LocalKeyServer() as local:
        local.close()
        with served(folder, local) as server:
            query = _asked(local, server)
            inputs = local.contributions(query, 0)
            database = Database(file, JOURNAL)
            database.backup(tmp_path / "yesterday")
            database.close()
            folder.rotate(PASSPHRASE, local.clock.now)
            local.deal(local.query(id="later"))
        for path in file.parent.glob("journal.db-*"):
            path.unlink()
        shutil.copy(tmp_path / "yesterday", file)
        _check_closed(folder, local, query, inputs)


def test_a_server_that_finds_a_key_missing_uses_no_key(tmp_path: Path, counted: Callable[[], SqlJournal]) -> None:
    with LocalKeyServer() as local:
        local.close()
        local.server = server = local.open(counted())
        query = _asked(local, server)
        head, receipts = honest(query, 0, local.key, local.contributions(query, 0))
        RecordCounts(tmp_path / "records.json").raise_to("later", 1)
        local.advance(90 * DAY)
        with pytest.raises(JournalError, match=RESTORED):
            server.keyring.rotate_if_due(90 * DAY)
        assert server.journal.keys(KeyState.PENDING) == []
        local.advance(-90 * DAY)
        for call in (lambda: decide(server, head, receipts), lambda: dealt(server, local.query(id="new"))):
            refused(Refusal.UNAVAILABLE, call, RESTORED)


def test_records_that_are_missing_under_a_destroyed_key_are_accepted_too(
    tmp_path: Path, counted: Callable[[], SqlJournal]
) -> None:
    """Such as the burn of an overdue cohort. Or no server could start any more."""
    with LocalKeyServer() as local:
        local.close()
        local.server = server = local.open(counted())
        query = _asked(local, server)
        server.keyring.rotate()
        local.advance(YEAR)
        server.erase_overdue()
        assert [key.id for key in server.journal.keys(KeyState.DESTROYED)] == [query.key_id]
        RecordCounts(tmp_path / "records.json").raise_to(query.key_id, 2)
        with pytest.raises(JournalError, match=RESTORED):
            server.journal.check_complete()
        server.journal.retire_keys()
        server.journal.check_complete()


def _asked(local: LocalKeyServer, server: KeyServer) -> Query:
    """A query that was countersigned."""
    local.server = server
    local.enrolled(20)
    query = local.query()
    local.deal(query)
    return query


def _check_closed(folder: Folder, local: LocalKeyServer, query: Query, inputs: list[Contribution]) -> None:
    """No server starts until the keys are retired; then new queries are decided, and no earlier ones."""
    for _ in range(2):
        with pytest.raises(JournalError, match=RESTORED), served(folder, local):
            pass
    key = pair(BITS, 1).public
    made = folder.rotate(PASSPHRASE, local.clock.now, retire=True)
    assert [path.stem for path in folder.path.glob("pairs/*")] == [made]
    for _ in range(2):
        with served(folder, local) as server:
            refused(Refusal.KEY_RETIRED, lambda: decide(server, *honest(query, 0, key, inputs[1:])))
    with served(folder, local) as server:
        local.server = server
        fresh = local.query(id="fresh")
        assert decide(server, *honest(fresh, 0, local.key, local.contributions(fresh, 0))).outcome == wire.RELEASED


@pytest.fixture
def counted(tmp_path: Path) -> Callable[[], SqlJournal]:
    """Opens a journal that counts its records."""
    return lambda: SqlJournal(tmp_path / "journal.db", RecordCounts(tmp_path / "records.json"))


def test_a_decision_is_sent_only_when_its_records_are_counted(
    tmp_path: Path, counted: Callable[[], SqlJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a restore just after it would not be noticed."""

    def counts() -> int:
        (count,) = json.loads((tmp_path / "records.json").read_text()).values()
        return int(count)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with LocalKeyServer() as local:
        local.close()
        local.server = server = local.open(counted())
        query = _asked(local, server)
        inputs = local.contributions(query, 0)
        assert counts() == 1
        message = honest(query, 0, local.key, inputs)
        sent = message[0], list(message[1])
        with monkeypatch.context() as patch:
            patch.setattr(record_counts, "replace", full)
            with pytest.raises(OSError, match="No space"):
                decide(server, *sent)
        assert counts() == 1
        with monkeypatch.context() as patch:
            raise_to = RecordCounts.raise_to
            patch.setattr(RecordCounts, "raise_to", lambda self, key, at: full() if at > 2 else raise_to(self, key, at))
            for _ in range(2):  # it is recorded, and repeated
                with pytest.raises(OSError, match="No space"):
                    decide(server, *sent)
        assert counts() == 2
        made = decide(server, *sent)
        assert (made.outcome, counts()) == (wire.RELEASED, 3)
        (tmp_path / "records.json").unlink()
        local.close()
        local.server = local.open(counted())  # as if it had been killed before it counted
        assert counts() == 3


def test_counts_only_rise_also_of_several_processes(tmp_path: Path) -> None:
    one, other = RecordCounts(tmp_path / "records.json"), RecordCounts(tmp_path / "records.json")
    assert one.all() == {}
    with ThreadPoolExecutor(4) as threads:
        for counts in (one, other) * 20:
            for key in "ab":
                for number in (1, 5, 3):
                    threads.submit(counts.raise_to, key, number)
    with ThreadPoolExecutor(2) as threads, one._locked():
        for counts, number in ((one, 5), (other, 3)):  # neither finds the other's count before it waits
            threads.submit(counts.raise_to, "c", number)
            time.sleep(0.2)
    assert other.all() == one.all() == {"a": 5, "b": 5, "c": 5}
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}
    assert len(os.listdir(tmp_path)) == 2  # noqa: PTH208


@pytest.mark.parametrize("content", ["", "[]", '{"a": "b"}', '{"a": 1'])
def test_a_damaged_file_of_counts_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "records.json").write_text(content)
    with pytest.raises(JournalError, match=r"is damaged: .*rotate --retire"):
        RecordCounts(tmp_path / "records.json").all()
