"""Private sums under keys that add up to zero.

Shi, Chan, Rieffel, Chow and Song, "Privacy-preserving aggregation of time-series data" (NDSS 2011). A trusted dealer
gives a key to each party and to the aggregator; all keys add up to zero. If one party is absent, the others' keys do
not cancel, and nobody can decrypt the sum.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import gmpy2
import numpy as np
from gmpy2 import mpz

from reticent_sim.rivals.errors import CannotDecrypt

__all__ = ["RFC_3526", "GeometricNoise", "Keys", "PrimeOrderGroup", "deal", "decrypt", "encrypt"]

SECURITY_BYTES = 16  # more random bytes than a number needs, so that its remainder is uniform
HASH = b"reticent.rivals.shi\x00"  # separates these hashes from other uses of SHAKE


@dataclass(frozen=True)
class PrimeOrderGroup:
    """The squares modulo a safe prime: a group of prime order in which discrete logarithms are hard.

    Args:
        prime: A prime p such that (p - 1)/2 is prime, too.
        generator: A square other than 0 and 1.
    """

    prime: int
    generator: int

    @property
    def order(self) -> int:
        """The number of squares."""
        return (self.prime - 1) // 2

    def hashed(self, period: int) -> mpz:
        """A random square for a period; nobody knows its logarithm."""
        size = self.prime.bit_length() // 8 + SECURITY_BYTES
        digest = hashlib.shake_256(HASH + period.to_bytes(8, "big")).digest(size)
        return gmpy2.powmod(int.from_bytes(digest, "big"), 2, self.prime)

    def logarithm(self, element: int, bound: int) -> int | None:
        """The x from -bound to bound whose power of the generator is `element`; None if there is none.

        Shanks' baby steps and giant steps: it takes time and memory for the square root of the range.
        """
        steps = math.isqrt(2 * bound) + 1
        baby, power = {}, mpz(1)
        for number in range(steps):
            baby[power] = number
            power = power * self.generator % self.prime
        stride = gmpy2.invert(power, self.prime)
        shifted = element * gmpy2.powmod(self.generator, bound, self.prime) % self.prime
        for giant in range(steps + 1):
            if shifted in baby:
                found = giant * steps + baby[shifted] - bound
                return found if found <= bound else None
            shifted = shifted * stride % self.prime
        return None


RFC_3526 = PrimeOrderGroup(
    int(
        "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DDEF9519B3"
        "CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7EDEE386BFB5A899FA5"
        "AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356"
        "208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3BE39E772C180E86039B2783A2EC07A28F"
        "B5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF",
        16,
    ),
    2,
)
"""The group of 2048 bits of RFC 3526."""


@dataclass(frozen=True)
class Keys:
    """The keys of one setup. They add up to zero modulo the order of the group."""

    aggregator: int
    parties: tuple[int, ...]


def deal(group: PrimeOrderGroup, parties: int, rng: np.random.Generator) -> Keys:
    """Run by the trusted dealer. New keys."""
    size = group.order.bit_length() // 8 + SECURITY_BYTES
    keys = tuple(int.from_bytes(rng.bytes(size), "big") % group.order for _ in range(parties))
    return Keys(-sum(keys) % group.order, keys)


@dataclass(frozen=True)
class GeometricNoise:
    """The noise that a party adds to its value.

    With probability beta, it is symmetric geometric: k has a probability proportional to exp(-epsilon |k|).

    Args:
        epsilon: The privacy parameter of a sum whose values differ by at most 1.
        delta: The probability with which no honest party adds noise.
        parties: The number of parties.
        honest: The least share of the parties that are honest.

    >>> GeometricNoise(epsilon=0.5, delta=0.01, parties=20, honest=1).beta
    0.23025850929940458
    """

    epsilon: float
    delta: float
    parties: int
    honest: float = 1

    @property
    def beta(self) -> float:
        """The probability with which a party adds noise."""
        return min(1.0, math.log(1 / self.delta) / (self.honest * self.parties))

    @property
    def variance(self) -> float:
        """The variance of the noise of all parties together."""
        alpha = math.exp(self.epsilon)
        return self.parties * self.beta * 2 * alpha / (alpha - 1) ** 2

    def draw(self, rng: np.random.Generator) -> int:
        """Run by a party. Its noise, the difference of two geometric numbers."""
        if rng.random() >= self.beta:
            return 0
        one, other = rng.geometric(1 - math.exp(-self.epsilon), size=2)
        return int(one) - int(other)


def encrypt(group: PrimeOrderGroup, key: int, period: int, value: int) -> int:
    """Run by a party. The ciphertext of its value with noise. A key serves once in each period."""
    hidden = gmpy2.powmod(group.hashed(period), key, group.prime)
    return int(gmpy2.powmod(group.generator, value, group.prime) * hidden % group.prime)


def decrypt(group: PrimeOrderGroup, key: int, period: int, ciphertexts: Sequence[int], bound: int) -> int:
    """Run by the aggregator. The sum of the values of a period.

    Args:
        group: The group of the keys.
        key: The aggregator's key.
        period: The period of the ciphertexts.
        ciphertexts: The ciphertexts of all parties.
        bound: The largest absolute value that the sum can have.

    Raises:
        CannotDecrypt: A party is absent, or the sum is out of range.
    """
    product = gmpy2.powmod(group.hashed(period), key, group.prime)
    for ciphertext in ciphertexts:
        product = product * ciphertext % group.prime
    found = group.logarithm(int(product), bound)
    if found is None:
        raise CannotDecrypt(f"no sum from {-bound} to {bound} fits: a party is absent, or the sum is out of range")
    return found
