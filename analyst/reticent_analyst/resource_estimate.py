"""The bytes and the CPU time that a query takes of phones and of the aggregation server."""

from __future__ import annotations

import time
from dataclasses import dataclass

import gmpy2
import numpy as np

from reticent.paillier import KEY_BITS, SIMULATION_KEY_BITS, PublicKey
from reticent.privacy import Query
from reticent.protocol import packing_of, plaintext_count
from reticent.protocol.layout import contribution_bytes
from reticent.randomness import secure

__all__ = ["ResourceEstimate", "check_key_bits", "encryption_seconds", "estimate_resources"]

ON_DISK = 1024
"""The most bytes that the aggregation server stores of a contribution."""

_TIMED = 32  # ciphertexts; the time of more is proportional
_SMALL_PRIMES = 1 << 16


@dataclass(frozen=True)
class ResourceEstimate:
    """The resources that a query takes.

    Args:
        ciphertexts: The ciphertexts of each phone.
        phone_bytes: The bytes that each phone sends.
        phone_seconds: The CPU time of each phone, for noise and encryption; None if it was not measured.
        received_bytes: The bytes that the aggregation server receives from the expected contributors.
        kept_bytes: The most bytes that it stores.
    """

    ciphertexts: int
    phone_bytes: int
    phone_seconds: float | None
    received_bytes: int
    kept_bytes: int


def estimate_resources(
    query: Query, contributors: float, key_bits: int, phone_seconds: float | None
) -> ResourceEstimate:
    """The resources that a query takes.

    Args:
        query: The query.
        contributors: The expected number of contributions.
        key_bits: The length of the key that phones encrypt under.
        phone_seconds: The result of `encryption_seconds`, if it was measured.
    """
    sent = contribution_bytes(query, key_bits)
    return ResourceEstimate(
        ciphertexts=plaintext_count(query, key_bits),
        phone_bytes=sent,
        phone_seconds=phone_seconds,
        received_bytes=round(contributors * sent),
        kept_bytes=round(contributors * ON_DISK),
    )


def encryption_seconds(query: Query, key_bits: int) -> float:
    """Measure the CPU time of a contribution on this machine: noise, packing and encryption.

    A phone keeps no table from one query to the next, so the time includes making the table.
    """
    check_key_bits(key_bits)
    rng = secure()
    modulus = _random_modulus(key_bits, rng)
    key = PublicKey(modulus, modulus - 9, simulation=True)  # -x² modulo n, for x = 3
    packing = packing_of(query, key_bits)
    begun = time.process_time()
    plaintexts = packing.pack(query.share(rng).tolist(), [0] * packing.plaintexts)
    key.encrypt(plaintexts[:_TIMED], rng)
    first = time.process_time()
    if len(plaintexts) <= _TIMED:
        return first - begun
    key.encrypt(plaintexts[:_TIMED], rng)  # with the table made above
    each = (time.process_time() - first) / _TIMED
    return first - begun + each * (len(plaintexts) - _TIMED)


def check_key_bits(bits: int) -> None:
    """Refuse a key length that is not supported.

    Raises:
        ValueError: The length is not supported.
    """
    if bits not in KEY_BITS + SIMULATION_KEY_BITS:
        lengths = ", ".join(map(str, sorted(SIMULATION_KEY_BITS + KEY_BITS)))
        raise ValueError(f"a key has one of these lengths, in bits: {lengths}; got {bits}")


def _random_modulus(bits: int, rng: np.random.Generator) -> int:
    """A modulus that takes as long to compute with as a key. Nobody knows its factors."""
    small = gmpy2.primorial(_SMALL_PRIMES)
    while True:
        number = int.from_bytes(rng.bytes(bits // 8), "big") | 1 << bits - 1
        number += 1 - number % 4
        if number.bit_length() == bits and gmpy2.gcd(number, small) == 1 and not gmpy2.is_prime(number):
            return number
