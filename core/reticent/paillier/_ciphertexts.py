"""Checks of received ciphertexts, and their product, which encrypts the sum of their plaintexts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import gmpy2
from gmpy2 import mpz

__all__ = ["BadCiphertexts", "faults", "hidden", "product"]


class BadCiphertexts(ValueError):
    """Some numbers are not ciphertexts under this key.

    Args:
        found: The fault of each, by its place.
        among: The number of numbers that were checked.
    """

    def __init__(self, found: Mapping[int, str], among: int) -> None:
        first = next(iter(found))
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        super().__init__(f"ciphertext {first} of {among} {found[first]}{more}")
        self.faults = dict(found)


def hidden(plaintext: mpz | int, power: mpz | int, n: mpz | int) -> mpz:
    """The ciphertext (1 + n)^plaintext · power modulo n²; `power` is an unguessable n-th power."""
    return (1 + plaintext % n * mpz(n)) * power % (n * n)


def product(ciphertexts: Sequence[int], n: mpz) -> mpz:
    """The product modulo n², a ciphertext of the sum.

    The product has a factor in common with n if and only if one of the ciphertexts has one. So single ciphertexts are
    checked only if the product fails.

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
    """The faults of the bad ciphertexts, by their places."""
    found = {place: _fault(ciphertext, n) for place, ciphertext in enumerate(ciphertexts)}
    return {place: fault for place, fault in found.items() if fault}


def _is_whole(number: object) -> bool:
    return type(number) is int or isinstance(number, mpz)  # bool is a subclass of int, and not a ciphertext


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
