"""Private sums under a Paillier key that all parties share.

Rastogi and Nath, "Differentially private aggregation of distributed time-series with transformation and encryption"
(SIGMOD 2010). A trusted dealer splits the secret key among the parties. In the first round, the parties encrypt their
values and a noise that nobody knows. In the second round, every party decrypts the sum in part. If one party is absent
in the second round, nobody can decrypt the sum until that party returns.

The noise is a Laplace variable: Y1² + Y2² - Y3² - Y4² for normal variables Y, and each Y is the sum of normal variables
of the parties. To square a sum under encryption, the parties send encryptions of their parts first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import gmpy2
import numpy as np
from gmpy2 import mpz

from reticent.paillier import centred
from reticent_sim.rivals.errors import CannotDecrypt

__all__ = ["Party", "SharedKey", "deal", "decrypt", "product"]

SCALE = 1 << 16
"""The fixed point of the normal variables: their squares, and the values, are multiples of 1/SCALE²."""
SIGNS = (1, 1, -1, -1)
PRIME_TESTS = 25


@dataclass(frozen=True)
class SharedKey:
    """The public key.

    Args:
        n: The product of two secret primes.
        generator: A number modulo n² whose order is a multiple of n.
        decryption: The generator to the power of the secret key, modulo n².
    """

    n: int
    generator: int
    decryption: int

    @property
    def modulus(self) -> int:
        """The modulus of ciphertexts."""
        return self.n * self.n

    def encrypt(self, plaintext: int, rng: np.random.Generator) -> mpz:
        """A fresh ciphertext."""
        blinding = gmpy2.powmod(_below(self.n, rng), self.n, self.modulus)
        return gmpy2.powmod(self.generator, plaintext, self.modulus) * blinding % self.modulus


@dataclass
class Party:
    """A party with its part of the secret key.

    Args:
        key: The public key.
        share: The party's part of the secret key.
        rng: The source of its randomness.
    """

    key: SharedKey
    share: int
    rng: np.random.Generator
    _normals: list[int] = field(default_factory=list)
    _blinding: int | None = None
    """A number that the party adds to its value, and takes off in the second round: without it, there is no sum."""

    def noise(self, scale: float, parties: int) -> list[int]:
        """First round. Encryptions of this party's parts of the four normal variables.

        Args:
            scale: The scale b of the Laplace variable, whose variance is 2b².
            parties: The number of parties.
        """
        deviation = math.sqrt(scale / (2 * parties)) * SCALE
        self._normals = [round(part) for part in self.rng.normal(0, deviation, size=len(SIGNS))]
        return [int(self.key.encrypt(part, self.rng)) for part in self._normals]

    def value(self, value: int, sums: Sequence[int]) -> int:
        """First round. An encryption of the value, and of this party's share of the squares.

        Args:
            value: The party's value.
            sums: The products of all parties' encryptions of each normal variable.
        """
        self._blinding = _below(self.key.n, self.rng)
        ciphertext = self.key.encrypt(value * SCALE**2 + self._blinding, self.rng)
        for sign, part, normal in zip(SIGNS, self._normals, sums, strict=True):
            ciphertext = ciphertext * gmpy2.powmod(normal, sign * part, self.key.modulus) % self.key.modulus
        return int(ciphertext)

    def partial_decryption(self, total: int) -> int:
        """Second round. This party's part of the decryption of the sum."""
        if self._blinding is None:
            raise ValueError("this party has sent no value")
        opened = gmpy2.powmod(total, self.share, self.key.modulus)
        unblinded = gmpy2.powmod(self.key.decryption, -self._blinding, self.key.modulus)
        return int(opened * unblinded % self.key.modulus)


def deal(parties: int, bits: int, rng: np.random.Generator) -> list[Party]:
    """Run by the trusted dealer. The parties of a new key.

    Args:
        parties: The number of parties.
        bits: The length of n; 2048 and more are secure.
        rng: The source of the key's shares, and of the parties' randomness.
    """
    p, q = _prime(bits // 2, rng), _prime(bits // 2, rng)
    while p == q or math.gcd(p * q, (p - 1) * (q - 1)) != 1:
        q = _prime(bits // 2, rng)
    n, secret = p * q, math.lcm(p - 1, q - 1)
    root = gmpy2.powmod(_below(n, rng), n, n * n)
    generator = gmpy2.powmod(1 + n, _below(n, rng), n * n) * root % (n * n)
    key = SharedKey(n, int(generator), int(gmpy2.powmod(generator, secret, n * n)))
    shares = [_below(n * secret, rng) for _ in range(parties - 1)]
    shares.append((secret - sum(shares)) % (n * secret))
    return [Party(key, share, rng) for share in shares]


def product(key: SharedKey, ciphertexts: Sequence[int]) -> int:
    """Run by the aggregator. A ciphertext of the sum."""
    total = mpz(1)
    for ciphertext in ciphertexts:
        total = total * ciphertext % key.modulus
    return int(total)


def decrypt(key: SharedKey, parts: Sequence[int]) -> float:
    """Run by the aggregator. The sum with its noise, from the partial decryptions of all parties.

    Raises:
        CannotDecrypt: A party is absent in the second round.
    """
    total = product(key, parts)
    if not parts or total % key.n != 1:
        raise CannotDecrypt("a partial decryption is missing: ask the absent party for it again")
    opened = (total - 1) // key.n * gmpy2.invert((key.decryption - 1) // key.n, key.n)
    return centred(int(opened), key.n) / SCALE**2


def _prime(bits: int, rng: np.random.Generator) -> int:
    """A random prime whose two highest bits are set."""
    while True:
        drawn = _below(1 << bits, rng) | (3 << (bits - 2)) | 1
        if gmpy2.is_prime(drawn, PRIME_TESTS):
            return drawn


def _below(limit: int, rng: np.random.Generator) -> int:
    """A random number from 1 to limit - 1."""
    return 1 + int.from_bytes(rng.bytes(limit.bit_length() // 8 + 16), "big") % (limit - 1)
