"""What a query takes of phones and of the aggregation server: bytes, and the time of a processor."""

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

__all__ = ["Load", "encryption_seconds", "load_of", "refuse_odd_key"]

ON_DISK = 1024
"""The most bytes that the aggregation server keeps of a contribution."""

_FEW = 32  # ciphertexts that are timed; more take as much longer
_SMALL_PRIMES = 1 << 16


@dataclass(frozen=True)
class Load:
    """What a query takes of machines.

    Args:
        ciphertexts: Of each phone.
        phone_bytes: What each phone sends.
        phone_seconds: Of computing, for noise and encryption; None where it was not measured.
        received_bytes: By the aggregation server, from all phones that are expected.
        kept_bytes: On its disk, at most.
    """

    ciphertexts: int
    phone_bytes: int
    phone_seconds: float | None
    received_bytes: int
    kept_bytes: int


def load_of(query: Query, contributors: float, key_bits: int, phone_seconds: float | None) -> Load:
    """What a query takes when so many phones contribute.

    Args:
        query: Which one.
        contributors: How many contribute.
        key_bits: The length of the key that phones encrypt under.
        phone_seconds: What `encryption_seconds` measured, if it did.
    """
    sent = contribution_bytes(query, key_bits)
    return Load(
        ciphertexts=plaintext_count(query, key_bits),
        phone_bytes=sent,
        phone_seconds=phone_seconds,
        received_bytes=round(contributors * sent),
        kept_bytes=round(contributors * ON_DISK),
    )


def encryption_seconds(query: Query, key_bits: int) -> float:
    """The processor time that a contribution takes on this machine: noise, packing and encryption. It is measured now.

    A phone keeps no table from one query to the next, so its time is in it where one is made.
    """
    refuse_odd_key(key_bits)
    rng = secure()
    modulus = _looks_like_a_key(key_bits, rng)
    key = PublicKey(modulus, modulus - 9, simulation=True)  # -x² modulo n, for x = 3
    packing = packing_of(query, key_bits)
    begun = time.process_time()
    plaintexts = packing.pack(query.share(rng).tolist(), [0] * packing.plaintexts)
    key.encrypt(plaintexts[:_FEW], rng)
    first = time.process_time()
    if len(plaintexts) <= _FEW:
        return first - begun
    key.encrypt(plaintexts[:_FEW], rng)  # with the table that is there now
    each = (time.process_time() - first) / _FEW
    return first - begun + each * (len(plaintexts) - _FEW)


def refuse_odd_key(bits: int) -> None:
    """Refuse a length that no key has.

    Raises:
        ValueError: It is one.
    """
    if bits not in KEY_BITS + SIMULATION_KEY_BITS:
        lengths = ", ".join(map(str, sorted(SIMULATION_KEY_BITS + KEY_BITS)))
        raise ValueError(f"keys have one of these lengths, in bits: {lengths}; got {bits}")


def _looks_like_a_key(bits: int, rng: np.random.Generator) -> int:
    """A number that takes as long to compute with as a key, and is none: nobody knows its factors."""
    small = gmpy2.primorial(_SMALL_PRIMES)
    while True:
        number = int.from_bytes(rng.bytes(bits // 8), "big") | 1 << bits - 1
        number += 1 - number % 4
        if number.bit_length() == bits and gmpy2.gcd(number, small) == 1 and not gmpy2.is_prime(number):
            return number
