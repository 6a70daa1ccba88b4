"""Ciphertexts as they come off the wire: which of them are none, and the sum of those that are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import gmpy2
from gmpy2 import mpz

__all__ = ["BadCiphertexts", "faults", "hidden", "product"]


class BadCiphertexts(ValueError):
    """Some of the numbers are no ciphertexts under this key.

    Args:
        found: What is wrong with them, by their places.
        among: How many numbers there were.
    """

    def __init__(self, found: Mapping[int, str], among: int) -> None:
        first = next(iter(found))
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        super().__init__(f"ciphertext {first} of {among} {found[first]}{more}")
        self.faults = dict(found)


def hidden(plaintext: mpz | int, power: mpz | int, n: mpz | int) -> mpz:
    """The ciphertext (1 + n)^plaintext · power modulo n²: `power` is an n-th power that nobody can guess."""
    return (1 + plaintext % n * mpz(n)) * power % (n * n)


def product(ciphertexts: Sequence[int], n: mpz) -> mpz:
    """The product modulo n², which is the ciphertext of the sum.

    Whether the ciphertexts have a factor in common with n is asked of the product: it has one if and only if one of
    them has. Only when that is so are they looked at singly.

    Raises:
        BadCiphertexts: Some are not between 0 and n², or have a factor in common with n.
    """
    n_squared = n * n
    limit = int(n_squared)
    total = mpz(1)
    for ciphertext in ciphertexts:
        if not (_is_whole(ciphertext) and 0 < ciphertext < limit):
            break
        total = total * ciphertext % n_squared
    else:
        if gmpy2.gcd(total, n) == 1:
            return total
    raise BadCiphertexts(faults(ciphertexts, n), among=len(ciphertexts))


def faults(ciphertexts: Iterable[int], n: mpz) -> dict[int, str]:
    """What is wrong with the bad ones among the ciphertexts, by their places, each looked at on its own."""
    found = {place: _fault(ciphertext, n) for place, ciphertext in enumerate(ciphertexts)}
    return {place: fault for place, fault in found.items() if fault}


def _is_whole(number: object) -> bool:
    return type(number) is int or isinstance(number, mpz)  # a truth value is an int as well, and no ciphertext


def _fault(ciphertext: int, n: mpz) -> str:
    if not _is_whole(ciphertext):
        return "is no whole number"
    if ciphertext <= 0:
        return "is not positive"
    if ciphertext >= n * n:
        return "is not below n²"
    if gmpy2.gcd(ciphertext, n) != 1:
        return "has a factor in common with n"
    return ""
