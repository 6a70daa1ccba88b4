"""Key pairs that all tests share: to find primes takes seconds."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from reticent_keys import KeyPair

FOUND = [
    tuple(int(number, 16) for number in numbers)
    for numbers in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
]
"""Two primes and a base of key pairs of 1024 bits, which were generated once: good for tests only."""


@functools.cache
def pair(bits: int = 1024, number: int = 0) -> KeyPair:
    """One of several key pairs of this length, the same in the whole run."""
    if bits == 1024 and number < len(FOUND):
        p, q, base = FOUND[number]
        return KeyPair(p, q, base, simulation=True)
    return generated(bits, number)


@functools.cache
def generated(bits: int = 1024, number: int = 0) -> KeyPair:
    """One of several key pairs of this length, generated in this run."""
    del number  # tells them apart in the cache
    return KeyPair.generate(bits, simulation=True)


def primes(pair: KeyPair) -> tuple[int, int]:
    """The secret primes."""
    return pair._private.p, pair._private.q
