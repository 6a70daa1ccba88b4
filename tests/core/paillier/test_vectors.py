"""What every implementation must make of the vectors, in any language."""

from typing import Any

import pytest

from reticent.paillier import BadCiphertexts, Packing, PublicKey, pad, tag
from reticent.paillier._ciphertexts import faults, hidden
from reticent_keys import KeyPair
from tests.core.paillier.keys import number, vectors

PAILLIER = vectors("paillier")
PACKING = vectors("packing")
TAGS = vectors("tags")


def test_the_known_answer() -> None:
    n, plaintext, randomness, ciphertext = PAILLIER["known_answer"].values()
    assert (n, plaintext, randomness, ciphertext) == (126869, 10100, 74384, 935906717)
    assert hidden(plaintext, pow(randomness, n, n * n), n) == ciphertext


@pytest.mark.parametrize("vector", PAILLIER["keys"], ids=lambda vector: str(vector["bits"]))
class TestKeys:
    def test_have_one_form_and_one_id(self, vector: dict[str, Any]) -> None:
        key = PublicKey.from_bytes(bytes.fromhex(vector["bytes"]), simulation=True)
        assert key == PublicKey(number(vector["p"]) * number(vector["q"]), number(vector["base"]), simulation=True)
        assert key.to_bytes().hex() == vector["bytes"]
        assert key.key_id.hex() == vector["key_id"]

    @pytest.mark.parametrize("with_table", [False, True])
    def test_encrypt_with_given_randomness(self, vector: dict[str, Any], with_table: bool) -> None:
        key = PublicKey.from_bytes(bytes.fromhex(vector["bytes"]), simulation=True)
        if with_table:
            key.prepare()
        for given in vector["encryptions"]:
            found = key._hide([number(given["plaintext"])], [number(given["exponent"])])
            assert found == [number(given["ciphertext"])]

    def test_decrypt(self, vector: dict[str, Any]) -> None:
        pair = KeyPair(*(number(vector[name]) for name in ("p", "q", "base")), simulation=True)
        ciphertexts = [number(given["ciphertext"]) for given in vector["encryptions"]]
        assert pair.decrypt(ciphertexts) == [number(given["plaintext"]) for given in vector["encryptions"]]

    def test_add(self, vector: dict[str, Any]) -> None:
        pair = KeyPair(*(number(vector[name]) for name in ("p", "q", "base")), simulation=True)
        total = pair.public.add([number(text) for text in vector["sum"]["ciphertexts"]])
        assert total == number(vector["sum"]["ciphertext"])
        assert pair.decrypt([total]) == [number(vector["sum"]["plaintext"])]

    def test_refuse_what_is_no_ciphertext(self, vector: dict[str, Any]) -> None:
        key = PublicKey.from_bytes(bytes.fromhex(vector["bytes"]), simulation=True)
        bad = [number(each["number"]) for each in vector["no_ciphertexts"]]
        assert faults([*bad, 1], key._modulus) == dict(enumerate(each["fault"] for each in vector["no_ciphertexts"]))
        for each in bad:
            with pytest.raises(BadCiphertexts):
                key.add([each])


@pytest.mark.parametrize("vector", PAILLIER["no_keys"], ids=lambda vector: str(vector["what"]))
def test_bytes_that_are_no_key(vector: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        PublicKey.from_bytes(bytes.fromhex(vector["bytes"]), simulation=vector["simulation"])
    assert vector["error"] in str(refusal.value)


@pytest.mark.parametrize("vector", PACKING["packings"], ids=lambda vector: str(vector["what"]))
def test_packings(vector: dict[str, Any]) -> None:
    packing = Packing(**vector["parameters"])
    assert [[slot.plaintext, slot.offset, slot.width, slot.lowest] for slot in packing.slots] == vector["slots"]
    assert (packing.tag_bits, packing.tag_offset) == (vector["tag_bits"], vector["tag_offset"])
    for given in vector["contributions"]:
        plaintexts = packing.pack(given["values"], [number(each) for each in given["tags"]])
        assert plaintexts == [number(each) for each in given["plaintexts"]]
    sums = packing.unpack([number(each) for each in vector["sum"]["plaintexts"]])
    assert sums.counters == vector["sum"]["counters"]
    assert sums.tags == [number(each) for each in vector["sum"]["tags"]]


@pytest.mark.parametrize("vector", PACKING["lies"], ids=lambda vector: str(vector["what"]))
def test_what_lies_unpack_to(vector: dict[str, Any]) -> None:
    sums = Packing(**vector["parameters"]).unpack([number(each) for each in vector["plaintexts"]])
    assert sums.counters == vector["counters"]
    assert sums.tags == [number(each) for each in vector["tags"]]


@pytest.mark.parametrize("vector", PACKING["no_packings"], ids=lambda vector: str(vector["error"]))
def test_parameters_without_a_packing(vector: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        Packing(**vector["parameters"])
    assert vector["error"] in str(refusal.value)


@pytest.mark.parametrize("vector", PACKING["no_contributions"], ids=lambda vector: str(vector["error"]))
def test_contributions_that_do_not_fit(vector: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        Packing(**vector["parameters"]).pack(vector["values"], [number(each) for each in vector["tags"]])
    assert vector["error"] in str(refusal.value)


@pytest.mark.parametrize("vector", TAGS["tags"], ids=lambda vector: str(vector["tag"]))
def test_tags_and_pads(vector: dict[str, Any]) -> None:
    assert tag(*_place(vector)) == number(vector["tag"])
    assert pad(*_place(vector), number(vector["n"])) == number(vector["pad"])


@pytest.mark.parametrize("vector", TAGS["failures"], ids=lambda vector: str(vector["error"]))
def test_what_has_no_tag_and_no_pad(vector: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        tag(*_place(vector))
    assert vector["error"] in str(refusal.value)
    with pytest.raises(ValueError, match=r".") as refusal:
        pad(*_place(vector), 126869)
    assert vector["error"] in str(refusal.value)


def _place(vector: dict[str, Any]) -> tuple[bytes, bytes, int, int]:
    secret, query = bytes.fromhex(vector["secret"]), bytes.fromhex(vector["query_digest"])
    return secret, query, vector["cohort"], vector["plaintext"]
