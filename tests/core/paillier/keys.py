"""Keys in the classes of phe, and files of vectors."""

import json
from pathlib import Path
from typing import Any

import phe

from reticent_keys import KeyPair
from tests.parties.key_pairs import primes

VECTORS = Path(__file__).parents[2] / "vectors"


def as_phe(pair: KeyPair) -> tuple[phe.PaillierPublicKey, phe.PaillierPrivateKey]:
    """The same key pair in phe's own classes."""
    public = phe.PaillierPublicKey(pair.public.n)
    return public, phe.PaillierPrivateKey(public, *primes(pair))


def vectors(name: str) -> dict[str, Any]:
    """A file of vectors."""
    found: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text())
    return found


def number(text: str) -> int:
    """A number of the vectors: hexadecimal, with a sign."""
    return int(text, 16)
