"""The public key under which phones encrypt, and its operations.

Paillier's cryptosystem, with the randomness of Damgård, Jurik and Nielsen ("A generalization of Paillier's public-key
system with applications to electronic voting", International Journal of Information Security 9, 2010): the n-th power
that hides a plaintext is a power of one base, with an exponent of half the bits of n.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz

from reticent.arguments import whole
from reticent.paillier import _ciphertexts as checks
from reticent.paillier._fixed_base import FixedBase

__all__ = ["KEY_BITS", "SIMULATION_KEY_BITS", "PublicKey"]

KEY_BITS = (3072, 4096)
"""The lengths of n that phones accept."""

SIMULATION_KEY_BITS = (1024, 2048)
"""Faster lengths, for simulation only."""

MAX_SMALL_FACTOR = 1 << 16
SMALL_ORDERS = gmpy2.lcm(*range(1, 101))
LENGTH_BYTES = 2  # of the length of n, the first bytes of a key
KEY_ID = b"reticent.paillier.key-id\x00"  # separates key ids from other uses of the hash

_tables: weakref.WeakValueDictionary[tuple[int, int], FixedBase] = weakref.WeakValueDictionary()
_tables_lock = threading.Lock()


@dataclass(frozen=True)
class PublicKey:
    """A public key. Its constructor checks all that can be checked without the secret key.

    A plaintext is an integer between -n/2 and n/2. Equal keys of one process share one table, which exists as long as
    one of them: keep the key instead of parsing it again.

    Args:
        n: The product of two secret primes, both 3 modulo 4.
        base: h = -x² modulo n for a secret x; powers of h^n modulo n² hide plaintexts.
        simulation: Accept the lengths that are only good for simulation as well.

    Raises:
        ValueError: The key is invalid; the message says why.
    """

    n: int
    base: int
    simulation: InitVar[bool] = False

    def __post_init__(self, simulation: bool) -> None:
        for name in ("n", "base"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        _check_modulus(self.n, KEY_BITS + SIMULATION_KEY_BITS if simulation else KEY_BITS)
        _check_base(self.base, self.n)

    @classmethod
    def from_bytes(cls, data: bytes, *, simulation: bool = False) -> PublicKey:
        """Run by the phone. The key that `to_bytes` encoded.

        Raises:
            ValueError: The bytes do not hold a valid key.
        """
        size = int.from_bytes(data[:LENGTH_BYTES], "big")
        if size == 0 or len(data) != LENGTH_BYTES + 2 * size:
            raise ValueError(f"a key whose n has {size} bytes must have {LENGTH_BYTES + 2 * size}: got {len(data)}")
        middle = LENGTH_BYTES + size
        n, base = (int.from_bytes(number, "big") for number in (data[LENGTH_BYTES:middle], data[middle:]))
        key = cls(n, base, simulation=simulation)
        if key.to_bytes() != data:
            raise ValueError(f"the length of n must be written as it is: it has {key.bits // 8} bytes, not {size}")
        return key

    def to_bytes(self) -> bytes:
        """The key in its only encoding: the length of n in bytes, n, and the base."""
        size = self.bits // 8
        return b"".join(
            [size.to_bytes(LENGTH_BYTES, "big"), self.n.to_bytes(size, "big"), self.base.to_bytes(size, "big")]
        )

    @cached_property
    def key_id(self) -> bytes:
        """The name of the key: the SHA-256 hash of its bytes."""
        return self.id_of(self.to_bytes())

    @staticmethod
    def id_of(data: bytes) -> bytes:
        """The key id of a key of these bytes."""
        return hashlib.sha256(KEY_ID + data).digest()

    @property
    def bits(self) -> int:
        """The length of n."""
        return self.n.bit_length()

    @property
    def ciphertext_bytes(self) -> int:
        """The length of an encoded ciphertext."""
        return self.bits // 4

    def prepare(self) -> None:
        """Build the table of powers now, and not at the seventh plaintext."""
        self._powers.prepare()

    def encrypt(self, plaintexts: Sequence[int], rng: np.random.Generator) -> list[int]:
        """Run by the phone. A fresh ciphertext of each plaintext.

        Args:
            plaintexts: Integers between -n/2 and n/2.
            rng: The source of the exponents; anybody who can replay it can read the plaintexts.
        """
        numbers = [whole(f"plaintext {place}", plaintext) for place, plaintext in enumerate(plaintexts)]
        for place, number in enumerate(numbers):
            if not -self.n < 2 * number < self.n:
                raise ValueError(f"plaintext {place} of {len(numbers)} is not between -n/2 and n/2")
        return self._hide(numbers, self._exponents(len(numbers), rng))

    def add(self, ciphertexts: Sequence[int]) -> int:
        """Run by the aggregation server. A ciphertext of the sum; without ciphertexts it is 1, which encrypts 0.

        Raises:
            BadCiphertexts: Some are not ciphertexts under this key; its `faults` lists them.
        """
        return int(checks.product(ciphertexts, self._modulus))

    def add_pairs(self, first: Sequence[int], second: Sequence[int]) -> list[int]:
        """Run by the aggregation server. Ciphertexts of the sums, place by place; all of them were checked before."""
        return [int(mpz(one) * other % self._n_squared) for one, other in zip(first, second, strict=True)]

    def rerandomise(self, ciphertexts: Sequence[int], rng: np.random.Generator) -> list[int]:
        """Run by the aggregation server. Fresh ciphertexts of the same plaintexts.

        Raises:
            BadCiphertexts: Some are not ciphertexts under this key; its `faults` lists them.
        """
        self.check(ciphertexts)
        zeros = self._hide([0] * len(ciphertexts), self._exponents(len(ciphertexts), rng))
        return [
            int(mpz(ciphertext) * zero % self._n_squared) for ciphertext, zero in zip(ciphertexts, zeros, strict=True)
        ]

    def check(self, ciphertexts: Sequence[int]) -> None:
        """Run by each receiver of ciphertexts. Refuse numbers that are not ciphertexts under this key.

        A ciphertext under another key may pass, so a message has to name its key.

        Raises:
            BadCiphertexts: Some are not ciphertexts; its `faults` lists them.
        """
        checks.product(ciphertexts, self._modulus)

    def _exponents(self, count: int, rng: np.random.Generator) -> list[int]:
        return [int.from_bytes(rng.bytes(self.bits // 16), "little") for _ in range(count)]

    def _hide(self, plaintexts: Sequence[int], exponents: Sequence[int]) -> list[int]:
        blindings = self._powers.powers(exponents)
        return [
            int(checks.hidden(plaintext + blinding.owed, blinding.factor, self._modulus))
            for plaintext, blinding in zip(plaintexts, blindings, strict=True)
        ]

    @cached_property
    def _modulus(self) -> mpz:
        return mpz(self.n)

    @cached_property
    def _n_squared(self) -> mpz:
        return self._modulus * self._modulus

    @cached_property
    def _powers(self) -> FixedBase:
        with _tables_lock:
            powers = _tables.get((self.n, self.base))
            if powers is None:
                powers = FixedBase(self._modulus, gmpy2.powmod(self.base, self.n, self._n_squared))
                _tables[self.n, self.base] = powers
            return powers

    def __reduce__(self) -> tuple[Any, ...]:
        # The receiving process checks the key again, and builds its own table.
        return type(self), (self.n, self.base, self.bits in SIMULATION_KEY_BITS)

    def __repr__(self) -> str:
        return f"PublicKey({self.bits} bits, id {self.key_id.hex()[:16]}…)"


def _check_modulus(n: int, allowed: tuple[int, ...]) -> None:
    if n.bit_length() not in allowed or n < 0:
        raise ValueError(f"n must have {_listed(allowed)} bits: got {n.bit_length()}")
    if n % 4 != 1:
        raise ValueError(f"n must be 1 modulo 4, as a product of two primes that are 3: got {n % 4}")
    if gmpy2.gcd(n, gmpy2.primorial(MAX_SMALL_FACTOR)) != 1:
        raise ValueError(f"n must be a product of two large primes: it has a factor below {MAX_SMALL_FACTOR}")
    if gmpy2.is_power(n):
        raise ValueError("n must be a product of two large primes: it is a power")
    if gmpy2.is_prime(n):
        raise ValueError("n must be a product of two large primes: it is prime")


def _check_base(base: int, n: int) -> None:
    if not 1 < base < n - 1:
        raise ValueError("the base must lie strictly between 1 and n - 1")
    if gmpy2.gcd(base, n) != 1:
        raise ValueError("the base must have no factor in common with n")
    if gmpy2.jacobi(base, n) != 1:
        raise ValueError("the base must be minus a square, which has Jacobi symbol 1: got -1")
    if gmpy2.powmod(base, SMALL_ORDERS, n) == 1:
        raise ValueError("the base must have many powers: its order is a product of numbers up to 100")


def _listed(numbers: tuple[int, ...]) -> str:
    *most, last = map(str, sorted(numbers))
    return f"{', '.join(most)} or {last}"
