"""Key pairs for the tests, made once in a run, and what phe makes of the same primes."""

import functools
import json
from pathlib import Path
from typing import Any

import phe

from reticent_keys import KeyPair

VECTORS = Path(__file__).parents[2] / "vectors"


@functools.cache
def pair(bits: int = 1024, number: int = 0) -> KeyPair:
    """One of several key pairs of this length."""
    del number  # tells them apart in the cache
    return KeyPair.generate(bits, simulation=True)


def as_phe(pair: KeyPair) -> tuple[phe.PaillierPublicKey, phe.PaillierPrivateKey]:
    """The same key pair in phe's own classes."""
    public = phe.PaillierPublicKey(pair.public.n)
    return public, phe.PaillierPrivateKey(public, *primes(pair))


def primes(pair: KeyPair) -> tuple[int, int]:
    """The secret primes."""
    return pair._private.p, pair._private.q


def vectors(name: str) -> dict[str, Any]:
    """A file of vectors."""
    found: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text())
    return found


def number(text: str) -> int:
    """A number of the vectors: hexadecimal, with a sign."""
    return int(text, 16)
