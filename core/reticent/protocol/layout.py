"""How the counters of a query lie in plaintexts, which everyone works out from the query alone."""

from __future__ import annotations

from functools import lru_cache

from reticent.paillier import Packing, PublicKey
from reticent.privacy import Query

__all__ = ["ciphertexts_from", "ciphertexts_to", "packing_of", "plaintext_count"]


@lru_cache(maxsize=256)
def packing_of(query: Query, key_bits: int) -> Packing:
    """The layout of a contribution, and of the sum of a cohort.

    Raises:
        ValueError: A counter of the query does not fit a plaintext.
    """
    scale = 1 << query.fraction_bits
    return Packing(
        [(counter.low * scale, counter.high * scale) for counter in query.counters],
        contributors=max(query.cohort_populations),
        share_variance=query.share_variance * scale**2,
        cohorts=query.cohorts,
        key_bits=key_bits,
    )


def plaintext_count(query: Query, key_bits: int) -> int:
    """How many ciphertexts a contribution has."""
    return packing_of(query, key_bits).plaintexts


def ciphertexts_to(ciphertexts: list[int], key: PublicKey) -> bytes:
    """Ciphertexts as they are on the wire: one after the other, big-endian, all of one length."""
    return b"".join(ciphertext.to_bytes(key.ciphertext_bytes, "big") for ciphertext in ciphertexts)


def ciphertexts_from(content: bytes, key: PublicKey) -> list[int]:
    """Ciphertexts off the wire, not checked.

    Raises:
        ValueError: The length is that of no whole number of them.
    """
    size = key.ciphertext_bytes
    if len(content) % size:
        raise ValueError(f"ciphertexts have {size} bytes each: got {len(content)} in all")
    return [int.from_bytes(content[start : start + size], "big") for start in range(0, len(content), size)]
