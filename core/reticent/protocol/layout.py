"""The layout of a query's counters in plaintexts and messages, which follows from the query alone."""

from __future__ import annotations

from functools import lru_cache

from reticent.paillier import Packing, PublicKey
from reticent.privacy import Query
from reticent.protocol.keys import PHONE_BYTES, SIGNATURE_BYTES
from reticent.v1 import counting_pb2 as wire

__all__ = [
    "MAX_CONTRIBUTION_BYTES",
    "ciphertexts_from",
    "ciphertexts_to",
    "contribution_bytes",
    "packing_of",
    "plaintext_count",
]

MAX_CONTRIBUTION_BYTES = 1 << 18
"""The size limit of a phone's message: room for over 300 ciphertexts, and bounded memory for many at a time."""


@lru_cache(maxsize=256)
def packing_of(query: Query, key_bits: int) -> Packing:
    """The layout of a contribution, and of the sum of a cohort.

    Raises:
        ValueError: A counter of the query does not fit a plaintext.
    """
    scale = 1 << query.fraction_bits
    return Packing(
        [(low * scale, high * scale) for low, high in (counter.scaled for counter in query.counters)],
        contributors=max(query.cohort_populations),
        share_variance=query.share_variance * scale**2,
        cohorts=query.cohorts,
        key_bits=key_bits,
        tail_bound=query.mechanism.tail_bound,
    )


def plaintext_count(query: Query, key_bits: int) -> int:
    """The number of plaintexts, and of ciphertexts, of a contribution."""
    return packing_of(query, key_bits).plaintexts


def contribution_bytes(query: Query, key_bits: int) -> int:
    """The size of a contribution's message, in bytes.

    Raises:
        ValueError: A counter of the query does not fit a plaintext.
    """
    message = wire.Contribution(
        query=query.digest,
        phone=bytes(PHONE_BYTES),
        cohort=query.cohorts - 1,
        ciphertexts=bytes(plaintext_count(query, key_bits) * (key_bits // 4)),  # each is twice as long as the key
        signature=bytes(SIGNATURE_BYTES),
    )
    return message.ByteSize()


def ciphertexts_to(ciphertexts: list[int], key: PublicKey) -> bytes:
    """Ciphertexts as they are sent: concatenated, big-endian, all of one length."""
    return b"".join(ciphertext.to_bytes(key.ciphertext_bytes, "big") for ciphertext in ciphertexts)


def ciphertexts_from(content: bytes, key: PublicKey) -> list[int]:
    """Ciphertexts as they were received, unchecked.

    Raises:
        ValueError: The length is not a multiple of the length of a ciphertext.
    """
    size = key.ciphertext_bytes
    if len(content) % size:
        raise ValueError(f"ciphertexts have {size} bytes each: got {len(content)} in all")
    return [int.from_bytes(content[start : start + size], "big") for start in range(0, len(content), size)]
