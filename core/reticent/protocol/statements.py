"""The bytes that phones and servers sign: two different statements never have the same bytes.

A statement begins with a line that names its kind. Its parts follow in the order of the function's arguments. An
integer has 8 bytes, big-endian, two's complement if it can be negative. Bytes are preceded by their length, an integer.
Text is the bytes of its UTF-8.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from reticent.v1 import counting_pb2 as wire

__all__ = [
    "RequestDigest",
    "ciphertexts_hash",
    "contribution",
    "contribution_of",
    "countersigned",
    "decision",
    "digest",
    "fetching",
    "integer_from",
    "integer_to",
    "joining",
    "leaving",
    "membership",
    "receipt_of",
    "renewal",
]


_64_BITS = 2**64 - 1


def joining(invitation: bytes, verify_key: bytes) -> bytes:
    """A phone asks the key server to enrol it."""
    return _statement(b"join", invitation, verify_key)


def membership(phone: bytes, verify_key: bytes, expires: int) -> bytes:
    """The key server enrols a phone with this verify key, until this time."""
    return _statement(b"membership", phone, verify_key, expires)


def renewal(phone: bytes, expires: int) -> bytes:
    """A phone whose membership expires at this time asks the key server to extend it."""
    return _statement(b"renewal", phone, expires)


def leaving(phone: bytes) -> bytes:
    """A phone ends its membership."""
    return _statement(b"leaving", phone)


def countersigned(query_digest: bytes, agreement_key: bytes) -> bytes:
    """The key server accepts a query; contributions share secrets with it by this agreement key."""
    return _statement(b"countersigned", query_digest, agreement_key)


def fetching(query_digest: bytes, phone: bytes) -> bytes:
    """A phone requests a query that was dealt to it."""
    return _statement(b"fetching", query_digest, phone)


def ciphertexts_hash(ciphertexts: bytes) -> bytes:
    """SHA-256 of the ciphertexts of a contribution, concatenated."""
    return hashlib.sha256(ciphertexts).digest()


def contribution(message: wire.Contribution, key_id: str) -> bytes:
    """A phone contributes these ciphertexts to a query; `key_id` names the Paillier key."""
    return contribution_of(message.query, key_id, message.cohort, receipt_of(message))


def receipt_of(message: wire.Contribution) -> wire.Receipt:
    """The receipt that the aggregation server keeps of a contribution."""
    return wire.Receipt(
        phone=message.phone,
        agreement_key=message.agreement_key,
        ciphertexts_hash=ciphertexts_hash(message.ciphertexts),
        seeded=message.seeded,
        signature=message.signature,
    )


def contribution_of(query_digest: bytes, key_id: str, cohort: int, receipt: wire.Receipt) -> bytes:
    """The statement of a contribution, computed from its receipt."""
    return _statement(
        b"contribution",
        query_digest,
        key_id,
        receipt.phone,
        cohort,
        receipt.agreement_key,
        receipt.ciphertexts_hash,
        int(receipt.seeded),
    )


def decision(message: wire.Decision) -> bytes:
    """The key server decided a cohort: all fields but the signature, with the number of sums before the sums."""
    return _statement(
        b"decision",
        message.query,
        message.cohort,
        message.outcome,
        message.contributors,
        len(message.sums),
        *message.sums,
        int(message.seeded),
        message.reason,
        message.request,
    )


def digest(statement: bytes) -> bytes:
    """SHA-256 of a statement."""
    return hashlib.sha256(statement).digest()


class RequestDigest:
    """The digest of a request to decide, computed while its receipts arrive.

    SHA-256 of the head as a statement of kind "request", followed by the phone, agreement key, hash, flag and signature
    of each receipt.
    """

    def __init__(self, head: wire.DecideHead) -> None:
        self._hash = hashlib.sha256(
            _statement(b"request", head.query, head.cohort, head.contributors, head.ciphertexts)
        )

    def add(self, receipts: Iterable[wire.Receipt]) -> None:
        """Add the next receipts."""
        for receipt in receipts:
            contents = receipt.agreement_key, receipt.ciphertexts_hash, int(receipt.seeded)
            parts: tuple[int | bytes, ...] = (receipt.phone, *contents, receipt.signature)
            self._hash.update(b"".join(map(_encoded, parts)))

    def digest(self) -> bytes:
        """The digest of the head and of all receipts so far."""
        return self._hash.digest()


def integer_to(number: int) -> bytes:
    """An integer in two's complement, big-endian, in as few bytes as possible."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def integer_from(content: bytes) -> int:
    """The integer that `integer_to` encoded."""
    return int.from_bytes(content, "big", signed=True)


def _statement(kind: bytes, *parts: int | str | bytes) -> bytes:
    return b"reticent." + kind + b".1\n" + b"".join(map(_encoded, parts))


def _encoded(part: int | str | bytes) -> bytes:
    if isinstance(part, int):
        return (part & _64_BITS).to_bytes(8, "big")  # an integer of a message may exceed 63 bits
    content = part.encode() if isinstance(part, str) else part
    return len(content).to_bytes(8, "big") + content
