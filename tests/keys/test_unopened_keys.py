"""Key pairs that the server cannot open: the server offers none of them, and refuses calls that need one."""

import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reticent.paillier import PublicKey
from reticent.protocol import Refusal
from reticent.v1 import counting_pb2 as wire
from reticent_keys import KeyPairStore, WrongPassphrase
from tests.parties.decision_requests import decide, honest, request
from tests.parties.key_pairs import pair
from tests.parties.key_server import BITS, PASSPHRASE, LocalKeyServer, dealt, refused

Spoil = Callable[[Path], object]


def overwritten(path: Path) -> None:
    path.write_bytes(b"not a key pair")


def unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()  # which nobody can read as a file, whoever runs the tests


def sealed_otherwise(path: Path) -> None:
    path.unlink()
    pair(BITS, 9).save(path, f"{PASSPHRASE} of somebody else")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    folder = tmp_path / "pairs"
    folder.mkdir()
    return folder


@pytest.fixture
def local(tmp_path: Path, pairs: Path) -> Iterator[LocalKeyServer]:
    with LocalKeyServer(tmp_path / "journal.db", pairs=KeyPairStore(pairs, PASSPHRASE, simulation=True)) as local:
        local.enrolled(20)
        yield local


def rotated(local: LocalKeyServer, pairs: Path) -> Path:
    """The file of a new active key pair, which another process has made."""
    with LocalKeyServer(
        local.path, identity=local.identity, pairs=KeyPairStore(pairs, PASSPHRASE, simulation=True)
    ) as other:
        other._made = 7
        return pairs / f"{other.server.keyring.rotate()}.key"


def spoiled(path: Path, spoil: Spoil) -> Callable[[], None]:
    """Spoil a file; what puts it right again."""
    content = path.read_bytes()
    spoil(path)

    def mend() -> None:
        if path.is_dir():
            shutil.rmtree(path)
        path.write_bytes(content)

    return mend


def begin_anew(local: LocalKeyServer, pairs: Path) -> None:
    """Start the server again: it knows no pair but those in files."""
    local.pairs = KeyPairStore(pairs, PASSPHRASE, simulation=True)
    local.restart()


def complaints(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("spoil", [overwritten, Path.unlink, unreadable, sealed_otherwise])
def test_nobody_is_told_to_use_a_key_that_cannot_be_opened(
    local: LocalKeyServer, pairs: Path, spoil: Spoil, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why, once. After a repair the server continues without a restart."""
    query = local.query()
    path = rotated(local, pairs)
    query = replace(query, key_id=path.stem)
    mend = spoiled(path, spoil)
    for _ in range(2):
        refused(Refusal.UNAVAILABLE, local.server.terms)
        refused(Refusal.UNAVAILABLE, lambda: dealt(local.server, query))
    with local.database.reading() as run:
        assert run("SELECT count(*) FROM queries").fetchone() == (0,)
    [record] = complaints(caplog)
    assert record.getMessage() == "a key pair cannot be opened: no query is countersigned or decided under it"
    assert vars(record)["key"] == path.stem[:16]
    assert vars(record)["reason"]
    mend()
    terms = local.server.terms()
    assert PublicKey.from_bytes(terms.public_key, simulation=True).key_id.hex() == path.stem
    assert len(dealt(local.server, query)) == query.population


def test_the_other_server_is_told_nothing_about_the_folder(local: LocalKeyServer, pairs: Path) -> None:
    path = rotated(local, pairs)
    unreadable(path)
    refused(
        Refusal.UNAVAILABLE,
        local.server.terms,
        f"^UNAVAILABLE: the key pair {path.stem[:16]}… cannot be opened at present$",
    )


@pytest.mark.parametrize("spoil", [overwritten, unreadable])
def test_a_cohort_under_a_key_that_cannot_be_opened_is_decided_later(
    local: LocalKeyServer, pairs: Path, spoil: Spoil, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then it is refused by name, and the log says so when the server starts."""
    query, key = local.query(), local.key
    inputs = local.contributions(query, 0)
    rotated(local, pairs)
    path = pairs / f"{query.key_id}.key"
    mend = spoiled(path, spoil)
    begin_anew(local, pairs)
    [record] = complaints(caplog)
    assert vars(record)["key"] == path.stem[:16]
    refused(Refusal.UNAVAILABLE, lambda: decide(local.server, *honest(query, 0, key, inputs)))
    with local.database.reading() as run:
        assert run("SELECT (SELECT count(*) FROM decryptions), (SELECT count(*) FROM decisions)").fetchone() == (0, 0)
    assert decide(local.server, *request(query, 1, key, [], [])).outcome == wire.BURNT  # for which no key is needed
    assert len(complaints(caplog)) == 1
    mend()
    assert decide(local.server, *honest(query, 0, key, inputs)).outcome == wire.RELEASED


def test_a_key_that_is_too_short_for_the_server_is_not_used(local: LocalKeyServer, pairs: Path) -> None:
    """Made for a simulation, by `reticent keys rotate`, beside a server that is none."""
    path = rotated(local, pairs)
    local.pairs._simulation = False
    refused(Refusal.UNAVAILABLE, local.server.terms)
    assert path.exists()


def test_a_server_does_not_begin_with_an_active_key_that_it_cannot_open(local: LocalKeyServer, pairs: Path) -> None:
    sealed_otherwise(pairs / f"{local.query().key_id}.key")
    with pytest.raises(WrongPassphrase):
        begin_anew(local, pairs)
