"""Key pairs that all tests share: to find primes takes seconds."""

from __future__ import annotations

import functools

from reticent_keys import KeyPair


@functools.cache
def pair(bits: int = 1024, number: int = 0) -> KeyPair:
    """One of several key pairs of this length, the same in the whole run."""
    del number  # tells them apart in the cache
    return KeyPair.generate(bits, simulation=True)


def primes(pair: KeyPair) -> tuple[int, int]:
    """The secret primes."""
    return pair._private.p, pair._private.q
