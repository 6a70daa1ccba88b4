"""What is signed, byte by byte: by the vectors, and by an encoding of its own."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.privacy import Counter, Query
from reticent.protocol import AgreementKey, SigningKey, packing_of, shared_secret, signed_by, statements
from reticent.v1 import counting_pb2 as wire

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "protocol.json").read_text(encoding="utf-8"))


def _said(vector: dict[str, Any]) -> bytes:
    kind, arguments = vector["kind"], vector["arguments"]
    if kind == "decision":
        return statements.decision(wire.Decision.FromString(bytes.fromhex(arguments[0])))
    if kind == "contribution":
        query, key_id, phone, cohort, key, ciphertexts, seeded = arguments
        contents = {"phone": phone, "agreement_key": key, "ciphertexts_hash": ciphertexts}
        receipt = wire.Receipt(seeded=seeded, **{name: bytes.fromhex(value) for name, value in contents.items()})
        return statements.contribution_of(bytes.fromhex(query), key_id, cohort, receipt)
    kinds = ("joining", "membership", "renewal", "leaving", "countersigned", "fetching")
    functions = {each: getattr(statements, each) for each in kinds}
    found: bytes = functions[kind](*(bytes.fromhex(each) if isinstance(each, str) else each for each in arguments))
    return found


def _encoded(*parts: int | bytes | str) -> bytes:
    """As the page on the protocol says it."""
    content = b""
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        content += struct.pack(">q", raw) if isinstance(raw, int) else struct.pack(">q", len(raw)) + raw
    return content


@pytest.mark.parametrize("vector", VECTORS["statements"], ids=lambda vector: vector["kind"])
def test_what_is_signed_never_changes(vector: dict[str, Any]) -> None:
    statement = _said(vector)
    assert statement.hex() == vector["statement"]
    assert statements.digest(statement).hex() == vector["digest"] == hashlib.sha256(statement).hexdigest()
    public, signature = bytes.fromhex(vector["public"]), bytes.fromhex(vector["signature"])
    assert signed_by(public, statement, signature)
    for place in (0, 31, 32, 63):
        wrong = bytearray(signature)
        wrong[place] ^= 1
        assert not signed_by(public, statement, bytes(wrong))
    assert not signed_by(public, statement + b"\0", signature)
    assert not signed_by(SigningKey().public, statement, signature)
    assert not signed_by(public[:-1], statement, signature)
    assert not signed_by(public, statement, b"")


def test_the_encoding_is_the_one_that_is_said() -> None:
    made = wire.Decision(query=b"q" * 32, cohort=1, outcome=wire.VOID, contributors=5, reason="ü", request=b"r" * 32)
    made.sums.extend([statements.integer_to(-300), b"\0"])
    expected = _encoded(b"q" * 32, 1, 3, 5, 2, statements.integer_to(-300), b"\0", 0, "ü", b"r" * 32)
    assert statements.decision(made) == b"reticent.decision.1\n" + expected
    assert statements.joining(b"i", b"v") == b"reticent.join.1\n" + _encoded(b"i", b"v")
    message = wire.Contribution(query=b"q", phone=b"p", cohort=7, agreement_key=b"a", ciphertexts=b"c", seeded=True)
    expected = _encoded(b"q", "k", b"p", 7, b"a", hashlib.sha256(b"c").digest(), 1)
    assert statements.contribution(message, "k") == b"reticent.contribution.1\n" + expected


def test_the_largest_numbers_of_the_wire_can_be_signed() -> None:
    largest, next_one = (wire.Decision(contributors=number) for number in (2**64 - 1, 2**64 - 2))
    assert statements.decision(largest) != statements.decision(next_one)
    assert statements.decision(largest) != statements.decision(wire.Decision())
    assert len({statements.renewal(b"phone", expires) for expires in (-(2**63), -1, 0, 2**63 - 1)}) == 4


DECISIONS = st.builds(
    wire.Decision,
    query=st.binary(max_size=3),
    cohort=st.integers(0, 2),
    outcome=st.sampled_from([1, 2, 3]),
    contributors=st.integers(0, 2),
    sums=st.lists(st.binary(max_size=2), max_size=2),
    seeded=st.booleans(),
    reason=st.text(max_size=2),
    request=st.binary(max_size=2),
)


@given(DECISIONS, DECISIONS)
def test_different_decisions_are_different_statements(one: wire.Decision, other: wire.Decision) -> None:
    assert (statements.decision(one) == statements.decision(other)) == (one == other)


@pytest.mark.parametrize("vector", VECTORS["requests"], ids=lambda vector: str(len(vector["receipts"])))
def test_a_request_has_the_same_digest_however_its_receipts_come(vector: dict[str, Any]) -> None:
    head = wire.DecideHead.FromString(bytes.fromhex(vector["head"]))
    receipts = [wire.Receipt.FromString(bytes.fromhex(each)) for each in vector["receipts"]]
    together, singly = statements.RequestDigest(head), statements.RequestDigest(head)
    together.add(receipts)
    for each in receipts:
        singly.add([each])
    assert together.digest() == singly.digest() == bytes.fromhex(vector["digest"])
    content = b"reticent.request.1\n" + _encoded(head.query, head.cohort, head.contributors, head.ciphertexts)
    for each in receipts:
        content += _encoded(each.phone, each.agreement_key, each.ciphertexts_hash, int(each.seeded), each.signature)
    assert hashlib.sha256(content).digest() == together.digest()


@pytest.mark.parametrize("vector", VECTORS["sums"], ids=lambda vector: vector["bytes"])
def test_sums_have_no_byte_too_many(vector: dict[str, Any]) -> None:
    assert statements.integer_to(vector["number"]).hex() == vector["bytes"]


@given(st.integers())
def test_a_sum_comes_back(number: int) -> None:
    content = statements.integer_to(number)
    assert int.from_bytes(content, "big", signed=True) == number
    if len(content) > 1:
        with pytest.raises(OverflowError):
            number.to_bytes(len(content) - 1, "big", signed=True)


@pytest.mark.parametrize("vector", VECTORS["secrets"], ids=["the first"])
def test_a_phone_and_the_key_server_come_to_the_same_secret(vector: dict[str, str]) -> None:
    fields = {name: bytes.fromhex(vector[name]) for name in ("phone", "phone_key", "query_key")}
    keys = [AgreementKey(bytes.fromhex(vector[name])) for name in ("phone_secret_key", "query_secret_key")]
    assert [key.public for key in keys] == [fields["phone_key"], fields["query_key"]]
    assert {shared_secret(key, **fields).hex() for key in keys} == {vector["secret"]}
    assert shared_secret(keys[0], **{**fields, "phone": b"another" + bytes(9)}).hex() != vector["secret"]


@pytest.mark.parametrize("vector", VECTORS["refused_keys"], ids=lambda vector: vector["what"])
def test_a_key_that_gives_everybody_the_same_secret_is_refused(vector: dict[str, str]) -> None:
    own = AgreementKey()
    with pytest.raises(ValueError, match=r"."):
        shared_secret(own, phone=bytes(16), phone_key=bytes.fromhex(vector["phone_key"]), query_key=own.public)


@pytest.mark.parametrize("vector", VECTORS["layouts"], ids=lambda v: f"{v['fields']['id']}-{v['key_bits']}")
def test_everyone_comes_to_the_same_layout(vector: dict[str, Any]) -> None:
    fields = vector["fields"]
    packing = packing_of(
        Query(**{**fields, "counters": [Counter(*each) for each in fields["counters"]]}), vector["key_bits"]
    )
    assert packing.plaintexts == vector["plaintexts"]
    assert packing.tag_offset == vector["tag_offset"]
    for slot, expected in ((packing.slots[0], vector["first"]), (packing.slots[-1], vector["last"])):
        assert [slot.plaintext, slot.offset, slot.width, slot.lowest] == expected
