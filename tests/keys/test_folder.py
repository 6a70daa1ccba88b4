import shutil
from contextlib import closing
from pathlib import Path

import pytest

from reticent.protocol import Refusal
from reticent.storage.sql import InUse
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys import Identity, JournalError, KeyFileError, KeysError, KeyServer, SqlJournal, WrongPassphrase
from reticent_keys.folder import Folder
from reticent_keys.keypair import KeyPair
from tests.parties.decision_requests import decide, honest, request
from tests.parties.key_pairs import pair
from tests.parties.key_server import BITS, DAY, LIMITS, PASSPHRASE, START, LocalKeyServer, dealt, refused

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


@pytest.fixture(autouse=True)
def _known_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Key pairs that were made before: making them takes seconds."""
    pairs = iter([pair(BITS, number) for number in range(1, 5)])
    monkeypatch.setattr(KeyPair, "generate", lambda bits, *, simulation: next(pairs))  # noqa: ARG005


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "keys", bits=BITS, simulation=True)


class Folded(LocalKeyServer):
    """The server of a folder."""

    def __init__(self, server: KeyServer) -> None:
        super().__init__()
        self.close()  # it made a server of its own
        self.server = server


def serve(folder: Folder, passphrase: str = PASSPHRASE):  # type: ignore[no-untyped-def]  # noqa: ANN201  # contextlib's own
    return folder.served(passphrase, now=lambda: START, limits=LIMITS)


def test_everything_is_made_once_and_for_its_owner_only(folder: Folder) -> None:
    with serve(folder) as server:
        first = server.identity, server.terms()
    with serve(folder) as server:
        assert (server.identity, server.terms()) == first
    for path in (folder.path, *folder.path.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_one_process_serves_from_a_folder(folder: Folder) -> None:
    with serve(folder), pytest.raises(InUse), serve(folder):
        pass


def test_the_passphrase_opens_it_and_no_other(folder: Folder) -> None:
    with serve(folder):
        pass
    with pytest.raises(WrongPassphrase, match="this identity was sealed"), serve(folder, "another"):
        pass
    with pytest.raises(WrongPassphrase):
        folder.rotate("another", lambda: START)


def test_a_folder_of_simulation_needs_to_be_called_one(folder: Folder) -> None:
    with serve(folder):
        pass
    with pytest.raises(ValueError, match="3072 or 4096 bits"), serve(Folder(folder.path)):
        pass


def test_what_does_not_belong_together_is_refused(folder: Folder, tmp_path: Path) -> None:
    with serve(folder):
        pass
    (folder.path / "identity").unlink()
    with pytest.raises(KeysError, match="a journal, but no identity"), serve(folder):
        pass
    Identity().save(folder.path / "identity", PASSPHRASE)
    with pytest.raises(JournalError, match="another key server"), serve(folder):
        pass
    with pytest.raises(KeysError, match="there is no key server in"):
        Folder(tmp_path / "nowhere").journal()


def test_a_lost_key_pair_is_told_at_once(folder: Folder) -> None:
    with serve(folder):
        pass
    for path in folder.path.glob("pairs/*"):
        path.unlink()
    with pytest.raises(KeyFileError, match="is missing in"), serve(folder):
        pass
    folder.rotate(PASSPHRASE, lambda: START)
    with serve(folder):
        pass


def test_a_rotation_from_outside_is_noticed(folder: Folder) -> None:
    with serve(folder) as server:
        local = Folded(server)
        local.enrolled(20)
        query = local.query()
        local.deal(query)
        made = folder.rotate(PASSPHRASE, lambda: START)
        assert local.key.key_id.hex() == made
        new = local.query(id="new")
        made_request = honest(new, 0, local.key, local.contributions(new, 0))
        assert decide(server, *made_request).outcome == wire.RELEASED
        folder.rotate(PASSPHRASE, lambda: START, retire=True)
        refused(Refusal.KEY_RETIRED, lambda: decide(server, *request(new, 1, local.key, [], [])))
        assert len({key.id for key in server.journal.summary(milliseconds(START)).keys}) == 3
    with serve(folder):
        assert len(list(folder.path.glob("pairs/*"))) == 1


def test_a_backup_that_is_put_back_decides_nothing_that_was_asked_before(folder: Folder, tmp_path: Path) -> None:
    copy = Folder(tmp_path / "copy", bits=BITS, simulation=True)
    with serve(folder) as server:
        local = Folded(server)
        phones = local.enrolled(20)
        key = local.key
        before = [local.query(id=f"before {number}") for number in range(2)]
        inputs = {(query.id, cohort): local.contributions(query, cohort) for query in before for cohort in range(2)}
        head, receipts = honest(before[0], 0, key, inputs["before 0", 0])
        sent = list(receipts)
        made = decide(server, head, sent)
        folder.backup(copy.path, START)
        after = local.query(id="after")
        inputs |= {("after", cohort): local.contributions(after, cohort) for cohort in range(2)}
        released = decide(server, *honest(before[0], 1, key, inputs["before 0", 1]))
        assert released.outcome == made.outcome == wire.RELEASED
        assert server.journal.summary(milliseconds(START)).copied is None
    assert not (copy.path / "pairs").exists()
    for _ in range(2):
        with serve(copy) as server:
            local.server = server
            assert server.identity == made_by(folder)
            assert server.journal.summary(milliseconds(START)).copied == START
            assert decide(server, head, sent) == made
            refused(Refusal.ALREADY_DECIDED, lambda: decide(server, *request(before[0], 0, key, [], [])))
            for query, cohort in ((before[0], 1), (before[1], 0), (before[1], 1)):
                for message in (
                    honest(query, cohort, key, inputs[query.id, cohort][1:]),
                    request(query, cohort, key, [], []),
                ):
                    refused(Refusal.KEY_RETIRED, lambda message=message: decide(server, *message))  # type: ignore[misc]
            refused(Refusal.UNKNOWN_QUERY, lambda: decide(server, *honest(after, 0, key, inputs["after", 0])))
            for query in (*before, after):
                refused(Refusal.KEY_RETIRED, lambda query=query: dealt(server, query))  # type: ignore[misc]
            assert local.key != key
            assert server.members.join(phones[0].joining()) == phones[0].membership
            assert [each.state for each in server.journal.summary(milliseconds(START)).keys] == ["ACTIVE", "RETIRED"]
    with serve(copy) as server:
        local.server = server
        fresh = local.query(id="fresh")
        assert decide(server, *honest(fresh, 0, local.key, local.contributions(fresh, 0))).outcome == wire.RELEASED


def test_a_backup_overwrites_nothing_and_is_there_whole_or_not_at_all(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(folder):
        folder.backup(tmp_path / "copy", START)
        with pytest.raises(FileExistsError, match="copy"):
            folder.backup(tmp_path / "copy", START)

        def broken(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(SqlJournal, "retire_keys", broken)
        with pytest.raises(OSError, match="No space"):
            folder.backup(tmp_path / "other", START)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "keys"]
    for path in (tmp_path / "copy", *(tmp_path / "copy").iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_journal_that_was_put_back_by_itself_is_made_safe_by_retiring(folder: Folder, tmp_path: Path) -> None:
    """Of a folder that was copied as files are, nobody knows that it is old: the operator has to say so."""
    with serve(folder):
        pass
    shutil.copytree(folder.path, tmp_path / "copy")
    copy = Folder(tmp_path / "copy", bits=BITS, simulation=True)
    copy.rotate(PASSPHRASE, lambda: START + DAY, retire=True)
    with serve(copy) as server:
        assert [key.state for key in server.journal.summary(milliseconds(START)).keys] == ["ACTIVE", "RETIRED"]


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"something else, long enough to be looked at" * 100)
    with pytest.raises(JournalError, match=r"damaged, or not a key server's journal"):
        SqlJournal(path)


def made_by(folder: Folder) -> bytes | None:
    with closing(folder.journal()) as journal:
        return journal.owner()


@pytest.mark.parametrize("emptied", [False, True])
def test_a_lost_journal_is_not_replaced(folder: Folder, emptied: bool) -> None:
    """It would have forgotten what was decided, and whom it knows."""
    with serve(folder):
        pass
    for path in folder.path.glob("journal.db*"):
        path.unlink()
    if emptied:
        (folder.path / "journal.db").touch()
    with pytest.raises(JournalError, match="has key pairs, but no journal"), serve(folder):
        pass
