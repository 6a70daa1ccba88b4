"""An aggregation server that lies to a real key server, with the contributions of real phones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent.protocol import AgreementKey
from reticent_client.counting import contribution
from reticent_sim.engine import ServerPair, launched
from tests.attacks.lying_aggregation import SHIFT, add_a_number, compare_subsets, read_a_restored_phone
from tests.attacks.target import Target

pytestmark = pytest.mark.slow  # a real process, some seconds

PHONES = 5
SMALL = ("--min-honest", "2", "--min-liars-share", "0")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ServerPair]:
    with launched(ServerPair(tmp_path, keys_options=SMALL)) as made:
        yield made


def test_a_phone_that_was_restored_from_its_backup_cannot_be_read(servers: ServerPair, tmp_path: Path) -> None:
    """Whatever it said before: no two of its contributions share a pad or a tag."""
    finding = read_a_restored_phone(Target.of(servers), servers.invitations(PHONES), tmp_path / "phones")
    assert not finding.succeeded, finding
    assert finding.sentence.endswith("VOID")


def test_it_could_be_read_if_its_contributions_shared_a_key(
    servers: ServerPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the attack above would gain: the change of one phone, a hundred times, beside little noise."""
    one = AgreementKey()
    monkeypatch.setattr(contribution, "_agreement_key", lambda *_: one)
    finding = read_a_restored_phone(Target.of(servers), servers.invitations(PHONES), tmp_path / "phones")
    assert finding.succeeded, finding
    assert "RELEASED" in finding.sentence


def test_no_two_subsets_are_decrypted(servers: ServerPair, tmp_path: Path) -> None:
    finding = compare_subsets(Target.of(servers), servers.invitations(PHONES), tmp_path / "phones")
    assert not finding.succeeded, finding
    assert "ALREADY_DECIDED" in finding.sentence


def test_a_known_number_can_be_added_as_the_documents_say(servers: ServerPair, tmp_path: Path) -> None:
    """It falsifies the result, and says nothing about anybody: docs/protocol.md does not promise otherwise."""
    finding = add_a_number(Target.of(servers), servers.invitations(PHONES), tmp_path / "phones")
    assert finding.succeeded, finding
    assert abs(int(finding.sentence.split()[-1]) - SHIFT) < SHIFT  # zeros and noise besides
