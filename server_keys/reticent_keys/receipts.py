"""Checking receipts: each signature, and the sums of the tags and pads that the contributions must have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reticent.paillier import pad, tag
from reticent.protocol import AgreementKey, Refusal, Refused, shared_secret, signed_by, statements
from reticent.protocol.keys import KEY_BYTES
from reticent.v1 import counting_pb2 as wire

__all__ = ["CheckedReceipts", "Expectation", "Receipts", "check"]

NO_SECRET = bytes(KEY_BYTES)


@dataclass(frozen=True)
class Expectation:
    """The cohort whose receipts are checked, and the key by which its contributions share secrets.

    Args:
        query: The digest of the query.
        key_id: The id of its Paillier key.
        cohort: The cohort.
        n: The modulus of the Paillier key.
        plaintexts: The plaintexts of a contribution; 0 if nothing is decrypted.
        query_key: The key server's secret key for the query; unused if nothing is decrypted.
    """

    query: bytes
    key_id: str
    cohort: int
    n: int
    plaintexts: int
    query_key: bytes = field(repr=False)


class Receipts(NamedTuple):
    """Some receipts, and the verify keys of their phones; None for a phone that was not dealt to the cohort."""

    receipts: Sequence[wire.Receipt]
    verify_keys: Sequence[bytes | None]


@dataclass
class CheckedReceipts:
    """The parts of a cohort's plaintexts beside the counters, computed from its receipts.

    Args:
        tags: The sum of the tags for each plaintext.
        pads: The sum of the pads for each plaintext.
        contributors: The number of receipts.
        seeded: Whether the noise of a contribution can be replayed.
    """

    tags: list[int]
    pads: list[int]
    contributors: int = 0
    seeded: bool = False

    def add(self, other: CheckedReceipts) -> None:
        """Add those of other receipts."""
        self.tags = [sum(pair) for pair in zip(self.tags, other.tags, strict=True)]
        self.pads = [sum(pair) for pair in zip(self.pads, other.pads, strict=True)]
        self.contributors += other.contributors
        self.seeded |= other.seeded


def check(expectation: Expectation, some: Receipts) -> CheckedReceipts:
    """Check receipts, and add up the tags and pads of their contributions.

    Raises:
        Refused: BAD_RECEIPTS: a receipt is not signed by a phone that was dealt to the cohort.
    """
    for receipt, verify_key in zip(*some, strict=True):
        _check_signed(expectation, receipt, verify_key)
    places = range(expectation.plaintexts)
    checked = CheckedReceipts([0] * len(places), [0] * len(places), len(some.receipts))
    checked.seeded = any(receipt.seeded for receipt in some.receipts)
    for secret in _secrets(expectation, some.receipts if places else ()):
        for place in places:
            checked.tags[place] += tag(secret, expectation.query, expectation.cohort, place)
            checked.pads[place] += pad(secret, expectation.query, expectation.cohort, place, expectation.n)
    return checked


def _check_signed(expectation: Expectation, receipt: wire.Receipt, verify_key: bytes | None) -> None:
    if verify_key is None:
        raise Refused(Refusal.BAD_RECEIPTS, "a receipt is of a phone that was not dealt to this cohort")
    if len(receipt.agreement_key) != KEY_BYTES:
        raise Refused(Refusal.BAD_RECEIPTS, f"a receipt names an agreement key of {KEY_BYTES} bytes")
    statement = statements.contribution_of(expectation.query, expectation.key_id, expectation.cohort, receipt)
    if not signed_by(verify_key, statement, receipt.signature):
        raise Refused(Refusal.BAD_RECEIPTS, "a receipt is not signed by its phone")


def _secrets(expectation: Expectation, receipts: Sequence[wire.Receipt]) -> Iterable[bytes]:
    """The secret that each contribution shares with the key server."""
    if not receipts:
        return
    query_key = AgreementKey(expectation.query_key)
    for receipt in receipts:
        phone, phone_key = receipt.phone, receipt.agreement_key
        try:
            yield shared_secret(query_key, phone=phone, phone_key=phone_key, query_key=query_key.public)
        except ValueError:  # the phone chose a key with which nothing is secret: it harms only itself
            yield NO_SECRET
