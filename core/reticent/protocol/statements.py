"""The bytes that are signed: one string for each thing that can be said, and for no other.

Each begins with a line that says what it is. Then come its parts in the order of the function's arguments: an integer
is 8 bytes, big-endian, two's complement where it may be negative; bytes are their length as an integer, then
themselves; text is its UTF-8 as bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from reticent.v1 import counting_pb2 as wire

__all__ = [
    "Request",
    "ciphertexts_hash",
    "contribution",
    "countersigned",
    "decision",
    "digest",
    "fetching",
    "joining",
    "leaving",
    "membership",
    "number",
    "receipt_of",
    "receipted",
    "renewal",
    "shortest",
]


_64_BITS = 2**64 - 1


def joining(invitation: bytes, verify_key: bytes) -> bytes:
    """A phone asks to be enrolled."""
    return _said(b"join", invitation, verify_key)


def membership(phone: bytes, verify_key: bytes, expires: int) -> bytes:
    """The key server enrols a phone with this key, until then."""
    return _said(b"membership", phone, verify_key, expires)


def renewal(phone: bytes, expires: int) -> bytes:
    """A phone whose membership expires then asks for a longer one."""
    return _said(b"renewal", phone, expires)


def leaving(phone: bytes) -> bytes:
    """A phone leaves."""
    return _said(b"leaving", phone)


def countersigned(query_digest: bytes, agreement_key: bytes) -> bytes:
    """The key server will decide this query, and shares secrets by this key with the contributions to it."""
    return _said(b"countersigned", query_digest, agreement_key)


def fetching(query_digest: bytes, phone: bytes) -> bytes:
    """A phone wants a query that was dealt to it."""
    return _said(b"fetching", query_digest, phone)


def ciphertexts_hash(ciphertexts: bytes) -> bytes:
    """SHA-256 of a contribution's ciphertexts, one after the other."""
    return hashlib.sha256(ciphertexts).digest()


def contribution(message: wire.Contribution, key_id: str) -> bytes:
    """A phone takes part in a query with these ciphertexts, which are encrypted under that key."""
    return receipted(message.query, key_id, message.cohort, receipt_of(message))


def receipt_of(message: wire.Contribution) -> wire.Receipt:
    """What is kept of a contribution."""
    return wire.Receipt(
        phone=message.phone,
        agreement_key=message.agreement_key,
        ciphertexts_hash=ciphertexts_hash(message.ciphertexts),
        seeded=message.seeded,
        signature=message.signature,
    )


def receipted(query_digest: bytes, key_id: str, cohort: int, receipt: wire.Receipt) -> bytes:
    """The statement of a contribution, from its receipt."""
    return _said(
        b"contribution",
        query_digest,
        key_id,
        receipt.phone,
        cohort,
        receipt.agreement_key,
        receipt.ciphertexts_hash,
        int(receipt.seeded),
    )


def decision(made: wire.Decision) -> bytes:
    """The key server has decided a cohort: all fields of the message but the signature, the sums with their number."""
    return _said(
        b"decision",
        made.query,
        made.cohort,
        made.outcome,
        made.contributors,
        len(made.sums),
        *made.sums,
        int(made.seeded),
        made.reason,
        made.request,
    )


def digest(statement: bytes) -> bytes:
    """SHA-256 of a statement, which names it."""
    return hashlib.sha256(statement).digest()


class Request:
    """The digest of a request to decide, computed while its receipts come in.

    SHA-256 of the head, said as "request", followed by each receipt's phone, agreement key, hash, flag and signature.
    """

    def __init__(self, head: wire.DecideHead) -> None:
        self._hash = hashlib.sha256(_said(b"request", head.query, head.cohort, head.contributors, head.ciphertexts))

    def add(self, receipts: Iterable[wire.Receipt]) -> None:
        """Take the next receipts in."""
        for receipt in receipts:
            contents = receipt.agreement_key, receipt.ciphertexts_hash, int(receipt.seeded)
            parts: tuple[int | bytes, ...] = (receipt.phone, *contents, receipt.signature)
            self._hash.update(b"".join(map(_encoded, parts)))

    def digest(self) -> bytes:
        """Of the head and of all receipts so far."""
        return self._hash.digest()


def shortest(number: int) -> bytes:
    """A whole number in two's complement, big-endian, without a byte too many."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def number(content: bytes) -> int:
    """The whole number that `shortest` has written."""
    return int.from_bytes(content, "big", signed=True)


def _said(kind: bytes, *parts: int | str | bytes) -> bytes:
    return b"reticent." + kind + b".1\n" + b"".join(map(_encoded, parts))


def _encoded(part: int | str | bytes) -> bytes:
    if isinstance(part, int):
        return (part & _64_BITS).to_bytes(8, "big")  # a number off the wire may be too large for a sign
    content = part.encode() if isinstance(part, str) else part
    return len(content).to_bytes(8, "big") + content
