"""Keys that do not show themselves, invitations, refusals on their way."""

import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.paillier import TAG_BITS, PublicKey
from reticent.protocol import AgreementKey, Refusal, Refused, SigningKey
from reticent.protocol.invitation import Invitation
from reticent.protocol.keys import identity_of
from reticent.protocol.layout import ciphertexts_from, ciphertexts_to, packing_of
from tests.parties.key_pairs import pair
from tests.parties.queries import bits


@pytest.mark.parametrize("kind", [SigningKey, AgreementKey])
def test_a_secret_key_does_not_show_itself(kind: Any) -> None:
    key = kind()
    assert key.to_bytes().hex() not in repr(key)
    assert str(key.to_bytes()) not in f"{key} {key!r} {vars(key)}"
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="use to_bytes"):
            attempt(key)
    assert kind(key.to_bytes()).public == key.public != kind().public


def test_a_signature_is_always_the_same() -> None:
    key = SigningKey()
    assert key.sign(b"statement") == SigningKey(key.to_bytes()).sign(b"statement")


INVITATION = Invitation(bytes(range(16)), bytes(range(32)), "-----BEGIN…", "keys.example:1", "agg.example:2")


def test_an_invitation_comes_back_and_does_not_show_its_secret() -> None:
    again = Invitation.from_text(INVITATION.to_text())
    assert again == INVITATION
    shown = repr(INVITATION)
    assert "keys.example:1" in shown
    assert str(INVITATION.token) not in shown
    assert INVITATION.token.hex() not in shown


@pytest.mark.parametrize(
    "change",
    [
        {"format": "reticent-release"},
        {"version": 2},
        {"token": "AAAA"},
        {"token": "not base64!"},
        {"identity": None},
        {"authority": 7},
        {"more": "fields"},
    ],
    ids=str,
)
def test_what_is_no_invitation_is_refused(change: dict[str, Any]) -> None:
    content = json.loads(INVITATION.to_text()) | change
    with pytest.raises(ValueError, match=r"this is not an invitation|the invitation (is damaged|has format version 2)"):
        Invitation.from_text(json.dumps(content))


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"format": "reticent-invitation", "version": 1}'])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"this is not an invitation|the invitation is damaged"):
        Invitation.from_text(text)


@given(st.text(max_size=60))
def test_any_text_is_an_invitation_or_one_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="this is not an invitation written by Reticent"):
        Invitation.from_text(text)


def test_the_protocol_page_lists_the_refusals_as_the_code_does() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "protocol.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| `(\w+)` \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(each.name, each.meaning, each.status, each.remedy.value) for each in Refusal]


def test_a_refusal_has_a_status_says_its_meaning_and_can_be_pickled() -> None:
    for refusal in Refusal:
        assert refusal.status in grpc.StatusCode.__members__
        error = Refused(refusal)
        assert refusal.name in str(error)
        assert refusal.meaning in str(error)
        again = pickle.loads(pickle.dumps(Refused(refusal, "because", retry_after=2.0)))  # noqa: S301  # our own
        assert (again.refusal, again.detail, again.retry_after) == (refusal, "because", 2.0)


def test_ciphertexts_come_back_from_their_bytes() -> None:
    key: PublicKey = pair().public
    numbers = [1, key.n**2 - 1, 12345]
    content = ciphertexts_to(numbers, key)
    assert len(content) == 3 * key.ciphertext_bytes
    assert ciphertexts_from(content, key) == numbers
    assert ciphertexts_from(b"", key) == []
    with pytest.raises(ValueError, match=f"have {key.ciphertext_bytes} bytes each: got {len(content) - 1}"):
        ciphertexts_from(content[:-1], key)


def test_an_identity_is_digits_or_a_file_of_them(tmp_path: Path) -> None:
    digits = bytes(range(32)).hex()
    path = tmp_path / "identity.pub"
    path.write_text(f"  {digits}\n")
    assert identity_of(digits) == identity_of(str(path)) == bytes(range(32))
    path.write_text("no digits")
    for wrong in (str(path), digits[:-2], ""):
        with pytest.raises(ValueError, match="an identity is 64 hexadecimal digits, or a file with them: got"):
            identity_of(wrong)


def test_the_layout_has_room_for_the_tags_of_the_largest_cohort() -> None:
    """Of 513 phones in two cohorts, one has 257: a bit more than 256 need."""
    assert packing_of(bits(population=513, cohorts=2, min_contributions=200), 1024).tag_bits == TAG_BITS + 9
