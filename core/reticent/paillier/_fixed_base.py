"""Many powers of one base from a table: the slow part of an encryption.

The table is a comb (Lim and Lee, "More flexible exponentiation with precomputation", CRYPTO 1994): the exponent is
written as a matrix with a row for each tooth, and every digit is a column of it. The form of the entries
makes products cheap. Any number a < n is a product a = (1 + n)^-t · c of some power c of the base and a little too
much of the plaintext's generator, so an entry is the pair (a, t): the a of two entries multiply without a reduction
modulo n², and the t are added and paid back once, with the plaintext.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import gmpy2
import numpy as np
from gmpy2 import mpz

__all__ = ["Blinding", "Comb", "FixedBase"]

# Twice as much memory would save an eighth of the products, and take twice as long to build.
TABLE_BYTES = 8_000_000
OBJECT_BYTES = 72  # the memory of a number in a list, without its digits
MAX_TEETH = 12
# Building the table takes as long as about six powers without it. Callers that need fewer never build it; others lose
# at most about as much time again.
POWERS_WITHOUT_TABLE = 6


class Blinding(NamedTuple):
    """An n-th power modulo n², as factor · (1 + n)^owed."""

    factor: mpz
    owed: mpz


@dataclass(frozen=True)
class Comb:
    """The division of exponents into digits: digit (k, s) has a bit in each row, at column `depth` · s + k."""

    teeth: int  # rows: the bits of a digit
    blocks: int  # parts of a row with their own tables; even
    depth: int  # columns in a block

    @classmethod
    def for_key(cls, key_bits: int) -> Comb:
        """The comb with the fewest products whose table is small enough."""
        exponent_bits = key_bits // 2
        entry_bytes = 2 * (key_bits // 8 + OBJECT_BYTES)
        combs = [
            cls(teeth, blocks + blocks % 2, depth)
            for teeth in range(1, MAX_TEETH + 1)
            for columns in [_ceil(exponent_bits, teeth)]
            for depth in range(1, columns + 1)
            for blocks in [_ceil(columns, depth)]
        ]
        small = [comb for comb in combs if comb.entries * entry_bytes <= TABLE_BYTES]
        return min(small, key=lambda comb: (comb.products, comb.entries))

    @property
    def entries(self) -> int:
        """The size of the table."""
        return self.blocks << self.teeth

    @property
    def products(self) -> int:
        """Products modulo n² for one power: one for two digits each, and the squarings."""
        return self.depth * self.blocks // 2 + self.depth - 1

    @property
    def bits(self) -> int:
        """The longest exponent."""
        return self.teeth * self.blocks * self.depth

    def rows(self, exponent: int) -> list[list[int]]:
        """The places in the table of an exponent's digits, by column of a block: `depth` rows of `blocks`."""
        content = np.frombuffer(exponent.to_bytes(_ceil(self.bits, 8), "little"), dtype=np.uint8)
        bits = np.unpackbits(content, count=self.bits, bitorder="little").reshape(self.teeth, -1)
        digits = (1 << np.arange(self.teeth)) @ bits  # (blocks · depth,)
        places = digits.reshape(self.blocks, self.depth).T + (np.arange(self.blocks) << self.teeth)
        found: list[list[int]] = places.tolist()
        return found


class FixedBase:
    """Powers of an n-th power modulo n², for exponents of half the bits of n.

    Several threads may use it. It computes the first few powers without the table.

    Args:
        n: The modulus whose square everything is computed in.
        base: An n-th power modulo n².
    """

    def __init__(self, n: mpz, base: mpz) -> None:
        self._n = n
        self._n_squared = n * n
        self._base = base
        self._building = threading.Lock()
        self._without_table = 0
        self._table: _Table | None = None

    def prepare(self) -> None:
        """Build the table now."""
        with self._building:
            if self._table is None:
                self._table = _Table(self._n, self._base)

    def powers(self, exponents: Sequence[int]) -> list[Blinding]:
        """The base to each of the exponents."""
        if self._table is None and not self._worth_a_table(len(exponents)):
            found = gmpy2.powmod_exp_list(self._base, exponents, self._n_squared)  # other threads run meanwhile
            return [Blinding(power, mpz(0)) for power in found]
        self.prepare()
        assert self._table is not None  # noqa: S101  # prepare() has built it
        return [self._table.power(exponent) for exponent in exponents]

    def _worth_a_table(self, more: int) -> bool:
        with self._building:
            self._without_table += more
            return self._without_table > POWERS_WITHOUT_TABLE


class _Table:
    def __init__(self, n: mpz, base: mpz) -> None:
        self._n_squared = n * n
        self._comb = comb = Comb.for_key(n.bit_length())
        powers = [base]  # to 1, 2, 4, 8, ...
        while len(powers) < comb.bits:
            powers.append(powers[-1] * powers[-1] % self._n_squared)
        row = comb.blocks * comb.depth
        self._factors: list[mpz] = []
        self._owed: list[mpz] = []
        for start in range(0, row, comb.depth):
            block = _products([_Factored.of(power, n) for power in powers[start::row]], n)
            self._factors += [_trimmed(entry.factor) for entry in block]
            self._owed += [_trimmed(entry.owed) for entry in block]

    def power(self, exponent: int) -> Blinding:
        factors, n_squared = self._factors, self._n_squared
        factor, owed = mpz(1), mpz(0)
        for row in reversed(self._comb.rows(exponent)):
            factor = factor * factor % n_squared
            for one, other in zip(row[::2], row[1::2], strict=True):
                factor = factor * (factors[one] * factors[other]) % n_squared
            owed = 2 * owed + sum(map(self._owed.__getitem__, row))
        return Blinding(factor, owed)


class _Factored(NamedTuple):
    """A number modulo n², as factor · (1 + n)^owed with a factor below n, whose inverse modulo n is at hand."""

    factor: mpz
    owed: mpz
    inverse: mpz

    @classmethod
    def of(cls, number: mpz, n: mpz) -> _Factored:
        rest, factor = gmpy2.f_divmod(number, n)
        inverse = gmpy2.invert(factor, n)
        return cls(factor, rest * inverse % n, inverse)

    def times(self, other: _Factored, n: mpz) -> _Factored:
        rest, factor = gmpy2.f_divmod(self.factor * other.factor, n)
        inverse = self.inverse * other.inverse % n
        return _Factored(factor, (self.owed + other.owed + rest * inverse) % n, inverse)


def _products(generators: list[_Factored], n: mpz) -> list[_Factored]:
    """The products of all subsets; the product of generators i, j, ... is at place 2^i + 2^j + ..."""
    products = [_Factored(mpz(1), mpz(0), mpz(1))]
    for generator in generators:
        products += [product.times(generator, n) for product in products]
    return products


def _trimmed(number: mpz) -> mpz:
    """A copy in no more memory than needed: the result of a computation may hold twice as much."""
    return number + 0


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)
