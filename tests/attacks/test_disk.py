"""What the files of both servers give away after a decision, to whoever holds all of them then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from reticent.paillier import PublicKey
from reticent.protocol import AgreementKey
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CollectingStub, CountingStub
from reticent_keys import Identity, KeyPair, QueryKeyStore
from reticent_sim.engine import ANALYST, ServerPair, launched
from tests.attacks.disk import opened, recovered
from tests.attacks.lying_aggregation import TargetQuery
from tests.attacks.phones import joined
from tests.attacks.target import TIMEOUT, Target
from tests.parties.queries import visits
from tests.parties.waiting import block_until

pytestmark = pytest.mark.slow  # real processes, some seconds

PHONES = 20
SMALL = ("--min-honest", "2", "--min-liars-share", "0")


class Aftermath:
    """A query that was decided, and the files that are left of it."""

    def __init__(self, servers: ServerPair, folder: Path) -> None:
        self.servers = servers
        self.asked, self.said, self.query_key, self.encrypted_key = counted(servers, folder)
        servers.kill()  # the log stays as it is
        self.found = recovered(servers.database, folder)
        [pair] = (servers.keys_folder / "pairs").glob("*.key")
        self.pair = KeyPair.load(pair, servers.passphrase, simulation=True)
        self.storage_key = Identity.load(servers.keys_folder / "identity", servers.passphrase).storage_key()

    def opened(self, query_key: AgreementKey) -> list[list[int] | None]:
        return [opened(each, self.asked.query, self.pair, query_key) for each in self.found]

    def files(self, folder: Path) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def counted(servers: ServerPair, folder: Path) -> tuple[TargetQuery, list[wire.Contribution], AgreementKey, bytes]:
    """A query from its announcement to its decision, each contribution in a transaction of its own."""
    target, phones = Target.of(servers), joined(servers.invitations(PHONES), folder / "phones")
    with (
        grpc.secure_channel(target.counting, target.credentials(ANALYST)) as analysts,
        grpc.secure_channel(target.collecting, target.credentials()) as way,
    ):
        counting, collecting = CountingStub(analysts), CollectingStub(way)
        key = PublicKey.from_bytes(counting.GetTerms(wire.TermsRequest()).public_key, simulation=True)
        query = visits(key, PHONES, liars=1, enough=PHONES)
        counting.Announce(wire.AnnounceRequest(query=query.to_bytes()), timeout=TIMEOUT)
        storage_key = Identity.load(servers.keys_folder / "identity", servers.passphrase).storage_key()
        query_key = QueryKeyStore(servers.keys_folder / "queries", storage_key).get(query.digest)
        [encrypted_key] = [path.read_bytes() for path in (servers.keys_folder / "queries").iterdir()]
        said = []
        for phone in phones:
            request = wire.AnnouncementsRequest(phone=phone.id)
            [announcement] = collecting.Announcements(request, timeout=TIMEOUT).announcements
            said.append(phone.contribution(announcement, query, key.to_bytes()))
            collecting.Contribute(said[-1], timeout=TIMEOUT)
            phone.close()
        wanted = wire.DecisionsRequest(wanted=[wire.DecisionWanted(query=query.digest)])
        block_until(lambda: collecting.Decisions(wanted, timeout=TIMEOUT).decisions, "the decision", within=TIMEOUT)
    return TargetQuery(query, key, wire.Deal()), said, query_key, encrypted_key


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    folder = tmp_path_factory.mktemp("disk")
    with launched(ServerPair(folder, keys_options=SMALL)) as servers:
        yield Aftermath(servers, folder)


def test_the_log_gives_single_ciphertexts_away(aftermath: Aftermath) -> None:
    """No claim is made that it does not."""
    assert {each.phone for each in aftermath.found} == {each.phone for each in aftermath.said}


def test_whoever_holds_all_files_after_the_decision_opens_none(aftermath: Aftermath) -> None:
    keys = aftermath.servers.keys_folder
    assert not list((keys / "queries").iterdir())
    guesses = [AgreementKey(bytes(32)), AgreementKey(aftermath.storage_key), AgreementKey()]
    for guess in guesses:
        assert aftermath.opened(guess) == [None] * PHONES
    content = aftermath.files(aftermath.servers.folder)
    assert aftermath.query_key.public in content  # the files of both servers are searched
    for secret in (aftermath.query_key.to_bytes(), aftermath.encrypted_key):
        assert secret.hex().encode() not in content
        assert not [start for start in range(len(secret) - 15) if secret[start : start + 16] in content]


def test_they_would_be_opened_by_the_key_that_was_erased(aftermath: Aftermath) -> None:
    """So it is the erased key that protects them, and nothing else."""
    found = aftermath.opened(aftermath.query_key)
    assert None not in found
    assert len(found) == PHONES
