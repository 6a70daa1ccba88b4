"""The key of a query is erased on disk when the query is decided, or when its deadline has passed."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent.privacy import Query
from reticent.protocol import Refusal
from reticent.storage import files
from reticent.tls.certificates import Certificate, create
from reticent.v1 import counting_pb2 as wire
from reticent_keys import KeyFileError, KeyServer, QueryKeyStore, SqlJournal
from reticent_keys import query_key_store as store_module
from reticent_keys.server import DECISION_TIME
from reticent_keys.service import Service
from tests.parties.decision_requests import decide, honest, request, summed
from tests.parties.key_server import DAY, LocalKeyServer, decisions, refused

STORAGE_KEY = bytes(range(32))
NONCE = 12


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalKeyServer]:
    """A key server with files, and phones for one query."""
    with LocalKeyServer(tmp_path / "journal.db") as made:
        made.query_keys = QueryKeyStore(tmp_path / "queries", STORAGE_KEY)
        made.restart()
        made.enrolled(20)
        yield made


def burn(local: LocalKeyServer, query: Query) -> None:
    """Decide all cohorts of a query."""
    for cohort in range(query.cohorts):
        decision = decide(local.server, wire.DecideHead(query=query.digest, cohort=cohort), [])
        assert decision.outcome == wire.BURNT


def key_file(tmp_path: Path, query: Query) -> Path:
    return tmp_path / "queries" / f"{query.digest.hex()}.key"


def occurrences(folder: Path, secret: bytes) -> list[Path]:
    """The files that hold any 16 bytes in a row of a secret."""
    parts = [secret[start : start + 16] for start in range(len(secret) - 15)]
    content = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return [path for path, held in content.items() if any(part in held for part in parts)]


def test_no_byte_of_the_key_file_is_left_after_the_last_decision(local: LocalKeyServer, tmp_path: Path) -> None:
    query = local.query()
    local.query_key(query)
    path = key_file(tmp_path, query)
    (tmp_path / "other-name").hardlink_to(path)  # the same bytes on disk, which deleting the name would leave
    encrypted = path.read_bytes()
    assert sorted(occurrences(tmp_path, encrypted)) == sorted([path, tmp_path / "other-name"])
    burn(local, query)
    assert not path.exists()
    assert not occurrences(tmp_path, encrypted)
    assert (tmp_path / "other-name").read_bytes() == bytes(len(encrypted))


def test_a_crash_between_the_decision_and_the_erasure_is_made_up_for_by_the_next_start(
    local: LocalKeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = local.query()
    local.query_key(query)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(QueryKeyStore, "erase", killed)
    with pytest.raises(KeyboardInterrupt):
        burn(local, query)
    assert key_file(tmp_path, query).exists()
    monkeypatch.undo()
    local.restart()
    assert not key_file(tmp_path, query).exists()


def test_an_error_after_the_last_decision_is_made_up_for_by_the_maintenance(
    local: LocalKeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a lost connection: the repeated request gets the decision, and erases nothing."""
    query, undecided = local.query(id="decided"), local.query(id="undecided")
    for each in (query, undecided):
        local.query_key(each)

    def lost(*_: object) -> bool:
        raise ConnectionError

    monkeypatch.setattr(SqlJournal, "is_decided", lost)
    for cohort in range(query.cohorts):
        with pytest.raises(ConnectionError):
            decide(local.server, wire.DecideHead(query=query.digest, cohort=cohort), [])
    monkeypatch.undo()
    burn(local, query)
    assert key_file(tmp_path, query).exists()
    local.server.erase_overdue()
    assert [key_file(tmp_path, query).exists(), key_file(tmp_path, undecided).exists()] == [False, True]


def test_a_key_that_another_process_replaced_decrypts_nothing(local: LocalKeyServer) -> None:
    """Every sum would be void for ever. Only the right key is used, when it is there again."""
    query = local.query()
    inputs, key = local.contributions(query, 0), local.query_keys.get(query.digest)
    local.query_keys.make(query.digest)
    refused(Refusal.UNAVAILABLE, lambda: decide(local.server, *honest(query, 0, local.key, inputs)))
    assert not decisions(local)
    local.query_keys._in_memory[query.digest] = key
    assert decide(local.server, *honest(query, 0, local.key, inputs)).outcome == wire.RELEASED


def test_one_file_that_cannot_be_erased_keeps_no_other(tmp_path: Path) -> None:
    keys = QueryKeyStore(tmp_path / "queries", STORAGE_KEY)
    for number in range(3):
        keys.make(bytes([number]) * 32)
    (tmp_path / "queries" / f"{'ff' * 32}.key").mkdir()
    with pytest.raises(IsADirectoryError):
        keys.erase_all_but([bytes(32)])
    assert sorted(path.name[:2] for path in (tmp_path / "queries").iterdir()) == ["00", "ff"]


def test_an_erasure_that_failed_is_tried_again_with_the_next_decision(
    local: LocalKeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is replied all the same: it is recorded."""
    first, second = local.query(id="first"), local.query(id="second")
    for query in (first, second):
        local.query_key(query)

    def failing(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(store_module, "erase", failing)
    burn(local, first)
    assert key_file(tmp_path, first).exists()
    monkeypatch.setattr(store_module, "erase", files.erase)
    burn(local, second)
    assert not list((tmp_path / "queries").iterdir())


def test_what_is_erased_is_not_in_memory_either(tmp_path: Path) -> None:
    """Of two processes that share a folder, the other one cannot use the key any more."""
    one, other = QueryKeyStore(tmp_path / "queries", STORAGE_KEY), QueryKeyStore(tmp_path / "queries", STORAGE_KEY)
    query = bytes(32)
    made = one.make(query)
    assert other.get(query).to_bytes() == made.to_bytes()
    one.erase(query)
    for each in (one, other):
        with pytest.raises(KeyFileError):
            each.get(query)


def test_a_query_that_is_not_decided_in_time_is_never_decrypted(local: LocalKeyServer, tmp_path: Path) -> None:
    """A server that withholds a cohort does not keep the key of the other ones alive."""
    query = local.query()
    key, cohorts = local.key, [local.contributions(query, cohort) for cohort in range(query.cohorts)]
    late = request(query, 1, key, summed(key, cohorts[1]), [each.receipt for each in cohorts[1]])
    in_time = request(query, 0, key, summed(key, cohorts[0]), [each.receipt for each in cohorts[0]])
    deadline = dt.timedelta(seconds=query.closes_after) + DECISION_TIME
    local.advance(deadline - dt.timedelta(milliseconds=1))
    local.server.erase_overdue()
    assert decide(local.server, *in_time).outcome == wire.RELEASED
    assert key_file(tmp_path, query).exists()
    local.advance(dt.timedelta(milliseconds=1))
    refused(Refusal.KEY_RETIRED, lambda: decide(local.server, *late), "in time")
    local.server.erase_overdue()
    assert not key_file(tmp_path, query).exists()
    assert decide(local.server, *in_time).outcome == wire.RELEASED  # the same decision again
    abort = wire.DecideHead(query=query.digest, cohort=1)
    assert decide(local.server, abort, []).outcome == wire.BURNT  # phones take their budget back


def test_a_start_after_the_deadline_erases(local: LocalKeyServer, tmp_path: Path) -> None:
    query = local.query()
    local.query_key(query)
    local.advance(dt.timedelta(seconds=query.closes_after) + DECISION_TIME)
    local.restart()
    assert not key_file(tmp_path, query).exists()


def test_a_key_that_is_retired_takes_the_keys_of_its_queries_with_it(local: LocalKeyServer, tmp_path: Path) -> None:
    query = local.query()
    local.query_key(query)
    with contextlib.closing(SqlJournal(tmp_path / "journal.db")) as journal:
        journal.retire_keys()
    local.restart()
    assert not key_file(tmp_path, query).exists()


def test_a_service_rotates_and_deletes_and_erases_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(tmp_path / "certs", hosts=["localhost"], analysts=[])
    attempts: list[int] = []

    def failing() -> None:
        attempts.append(len(attempts))
        raise OSError(errno.EIO, "Input/output error")

    async def attempt_often(server: KeyServer) -> None:
        certificate, free = Certificate.load(tmp_path / "certs", "keys"), "127.0.0.1:0"
        service = Service(
            server, phones=free, decisions=free, certificate=certificate, erase_every=0.01, rotate_every=DAY, keep=DAY
        )
        async with service, asyncio.timeout(30):
            while len(attempts) < 3:  # noqa: ASYNC110  # nothing else happens
                await asyncio.sleep(0.01)

    rotations: list[dt.timedelta] = []
    rows = [5, 5]
    with LocalKeyServer() as local:
        monkeypatch.setattr(local.server, "erase_overdue", failing)
        monkeypatch.setattr(local.server.keyring, "rotate_if_due", rotations.append)
        monkeypatch.setattr(local.server, "prune", lambda _: rows.pop() if rows else 0)
        asyncio.run(attempt_often(local.server))
    assert "overdue keys of queries cannot be erased" in caplog.text
    assert rotations[0] == DAY
    assert not rows, "it deletes until nothing is left to delete"
