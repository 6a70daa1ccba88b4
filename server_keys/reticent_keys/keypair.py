"""The key pair of the key server: generation, encryption at rest, and decryption of sums."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Never

import gmpy2
import phe
from cryptography.hazmat.primitives.asymmetric import rsa

from reticent.paillier import KEY_BITS, SIMULATION_KEY_BITS, PublicKey, centred
from reticent.storage.files import create
from reticent_keys import sealing
from reticent_keys.errors import KeyFileError

__all__ = ["KeyPair"]

RSA_EXPONENT = 65537  # unused: the generator requires one


class KeyPair:
    """Two secret primes, and their public key. It never prints the primes.

    Args:
        p: A prime, 3 modulo 4.
        q: Another of the same length, such that p - 1 and q - 1 have only the factor 2 in common.
        base: Minus a square modulo p · q.
        simulation: Accept lengths that are only good for simulation as well.

    Raises:
        ValueError: These make no key pair.
    """

    def __init__(self, p: int, q: int, base: int, *, simulation: bool = False) -> None:
        _check_primes(p, q)
        if not gmpy2.jacobi(-base, p) == gmpy2.jacobi(-base, q) == 1:
            raise ValueError("the base must be minus a square modulo both primes")
        self.public = PublicKey(p * q, base, simulation=simulation)
        self._private = phe.PaillierPrivateKey(phe.PaillierPublicKey(p * q), p, q)

    @classmethod
    def generate(cls, bits: int = KEY_BITS[0], *, simulation: bool = False) -> KeyPair:
        """Run by the key server. A new key pair, in some seconds: one pair of primes in six is suitable.

        Args:
            bits: The length of the public key's n.
            simulation: Accept lengths that are only good for simulation as well.
        """
        allowed = KEY_BITS + SIMULATION_KEY_BITS if simulation else KEY_BITS
        if bits not in allowed:
            raise ValueError(f"bits must be one of {', '.join(map(str, allowed))}: got {bits}")
        p, q = _primes(bits)
        while not _are_suitable(p, q):
            p, q = _primes(bits)
        root = 2 + secrets.randbelow(p * q - 3)  # between 2 and n - 2; one that is no unit would factor n
        return cls(p, q, -root * root % (p * q), simulation=simulation)

    def decrypt(self, ciphertexts: Sequence[int]) -> list[int]:
        """Run by the key server. The plaintexts, between -n/2 and n/2, computed on all cores.

        Raises:
            BadCiphertexts: Some are not ciphertexts under this key; its `faults` lists them.
        """
        self.public.check(ciphertexts)
        numbers = [int(ciphertext) for ciphertext in ciphertexts]  # the only type that phe accepts
        with ThreadPoolExecutor(max_workers=os.cpu_count(), initializer=_release_the_gil) as pool:
            found = list(pool.map(self._private.raw_decrypt, numbers))
        return [centred(plaintext, self.public.n) for plaintext in found]

    def to_bytes(self, passphrase: str) -> bytes:
        """The key pair, sealed with a passphrase, which must not be empty."""
        size = self.public.bits // 8
        numbers = (self._private.p, self._private.q, self.public.base)
        return sealing.sealed(b"".join(number.to_bytes(size, "big") for number in numbers), passphrase)

    @classmethod
    def from_bytes(cls, data: bytes, passphrase: str, *, simulation: bool = False) -> KeyPair:
        """The key pair that `to_bytes` sealed.

        Raises:
            WrongPassphrase: It was sealed with another passphrase.
            KeyFileError: It is damaged, foreign or of a newer version.
            ValueError: Its length is only good for simulation, and `simulation` is not set.
        """
        content = sealing.opened(data, passphrase)
        size = len(content) // 3
        p, q, base = (int.from_bytes(content[start : start + size], "big") for start in (0, size, 2 * size))
        if not 8 * len(content) == 3 * (p * q).bit_length() > 0:
            raise KeyFileError("this does not hold a key pair")
        return cls(p, q, base, simulation=simulation)

    def save(self, path: str | Path, passphrase: str) -> None:
        """Write the sealed key pair to a new file, readable by its owner only, whole or not at all.

        Raises:
            FileExistsError: The file exists, perhaps with the only copy of a key.
            ValueError: The passphrase is empty, or not text.
        """
        create(Path(path), self.to_bytes(passphrase))

    @classmethod
    def load(cls, path: str | Path, passphrase: str, *, simulation: bool = False) -> KeyPair:
        """The key pair of a file that `save` wrote. Raises what `from_bytes` does."""
        return cls.from_bytes(Path(path).read_bytes(), passphrase, simulation=simulation)

    def __repr__(self) -> str:
        return f"KeyPair({self.public!r})"

    def __reduce__(self) -> Never:
        raise TypeError("a key pair cannot be copied or pickled, which would write its primes in plain: use to_bytes")


def _primes(bits: int) -> tuple[int, int]:
    """Two primes from the generator of RSA keys, which ensures their lengths and their distance."""
    numbers = rsa.generate_private_key(RSA_EXPONENT, bits).private_numbers()
    return numbers.p, numbers.q


def _are_suitable(p: int, q: int) -> bool:
    """Whether the proof of Damgård, Jurik and Nielsen holds, by which half-length exponents hide plaintexts."""
    return p % 4 == q % 4 == 3 and gmpy2.gcd(p - 1, q - 1) == 2


def _check_primes(p: int, q: int) -> None:
    if not (gmpy2.is_prime(p) and gmpy2.is_prime(q)):
        raise ValueError("p and q must be prime")
    if p.bit_length() != q.bit_length():
        raise ValueError(f"p and q must be of one length: got {p.bit_length()} and {q.bit_length()} bits")
    if not _are_suitable(p, q):
        raise ValueError("p and q must be 3 modulo 4, and p - 1 and q - 1 have only the factor 2 in common")


def _release_the_gil() -> None:
    gmpy2.set_context(gmpy2.context(allow_release_gil=True))
