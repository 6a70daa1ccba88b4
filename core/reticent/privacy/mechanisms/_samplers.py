"""Integer noise whose probabilities are exactly those of its formula, given a generator of uniform bits.

A coin is thrown by comparing a uniform number with a probability. The first 53 bits of the uniform decide wherever
floating point is sure of the answer. Where it is not, about once in 10^11 throws, more bits are drawn and the
probability is computed to as many digits as it takes. So parameters count as the exact value of their float,
rounding never decides, and every integer can occur. The number of draws depends on the noise: do not let anybody time
them.

The algorithms for the discrete Laplace and Gaussian are those of Canonne, Kamath and Steinke, "The Discrete Gaussian
for Differential Privacy" (2020).
"""

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import checked_positive

__all__ = ["Size", "discrete_gaussian", "discrete_laplace", "poisson"]

Size = int | tuple[int, ...]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

WORD = 53  # bits of a uniform that are drawn at first, as many as a float holds
MORE = 128  # bits that are drawn at a time after that
DOUBT = 2.0**-37  # exp(-x) computed in floating point is this close to the truth, and closer
TABLE_DOUBT = 2.0**-32  # the same for a sum of probabilities
DIGITS = 40  # decimal digits at first, where floating point does not decide
MIN_SCALE, MAX_SCALE = 2.0**-40, 2.0**40
MAX_MEAN = 2.0**30
MAX_TABLE_MEAN = 2.0**20  # a Poisson variable of a larger mean is the sum of several
MAX_SHIFT = 62  # nothing is left of a 64-bit integer
SLACK = 60.0  # nats of a Poisson distribution's tails that its table leaves out


def discrete_laplace(scale: float, size: Size, rng: np.random.Generator) -> Integers:
    """Integers x with probabilities proportional to exp(-|x| / scale).

    >>> from reticent.randomness import seeded
    >>> discrete_laplace(2.0, 5, seeded(1, "laplace")).shape
    (5,)
    """
    numerator, denominator = _checked("scale", scale, MAX_SCALE).as_integer_ratio()
    return _laplace(numerator, denominator.bit_length() - 1, math.prod(np.atleast_1d(size)), rng).reshape(size)


def discrete_gaussian(sigma: float, size: Size, rng: np.random.Generator) -> Integers:
    """Integers x with probabilities proportional to exp(-x² / (2 sigma²)).

    >>> from reticent.randomness import seeded
    >>> discrete_gaussian(2.0, (2, 3), seeded(1, "gaussian")).shape
    (2, 3)
    """
    sigma = _checked("sigma", sigma, MAX_SCALE)
    scale = math.floor(sigma) + 1
    square = Fraction(sigma) ** 2
    found: Integers = np.zeros(math.prod(np.atleast_1d(size)), dtype=np.int64)
    open_ = np.arange(found.size)
    while open_.size:
        draws = _laplace(scale, 0, open_.size, rng)
        exponents = (np.abs(draws) - sigma * (sigma / scale)) ** 2 / (2 * sigma * sigma)
        kept = _survives(exponents, _gaussian_exponent(draws, square, scale), rng)
        found[open_[kept]] = draws[kept]
        open_ = open_[~kept]
    return found.reshape(size)


def poisson(mean: float, size: Size, rng: np.random.Generator) -> Integers:
    """Integers with the Poisson distribution, found in a table of its distribution function.

    >>> from reticent.randomness import seeded
    >>> poisson(2.0, 5, seeded(1, "poisson")).shape
    (5,)
    """
    mean = _checked("mean", mean, MAX_MEAN)
    parts = 1
    while mean > MAX_TABLE_MEAN:
        mean, parts = mean / 2, parts * 2
    first, table = _poisson_table(mean)
    total: Integers = np.zeros(math.prod(np.atleast_1d(size)), dtype=np.int64)
    for _ in range(parts):
        total += _look_up(first, table, mean, total.size, rng)
    return total.reshape(size)


def _checked(name: str, value: float, largest: float) -> float:
    number = checked_positive(name, value)
    if not MIN_SCALE <= number <= largest:
        raise ValueError(f"{name} must lie between 2^-40 and 2^{math.log2(largest):g}: got {value!r}")
    return number


def _laplace(numerator: int, shift: int, size: int, rng: np.random.Generator) -> Integers:
    """Discrete Laplace noise of scale numerator / 2^shift."""
    found: Integers = np.zeros(size, dtype=np.int64)
    open_ = np.arange(size)
    while open_.size:
        draws, kept = _laplace_draws(numerator, min(shift, MAX_SHIFT), open_.size, rng)
        found[open_[kept]] = draws[kept]
        open_ = open_[~kept]
    return found


def _laplace_draws(numerator: int, shift: int, size: int, rng: np.random.Generator) -> tuple[Integers, Flags]:
    """Draws of scale numerator / 2^shift, and which of them count: not those of a negative zero.

    Below, whole + part is geometric with ratio exp(-1 / numerator): the part is kept with probability
    exp(-part / numerator), and the whole ones are as many as coins of exp(-1) come up in a row.
    """
    part = rng.integers(numerator, size=size)
    kept = _survives(part / numerator, lambda each: Fraction(int(part[each]), numerator), rng)
    whole: Integers = np.zeros(size, dtype=np.int64)
    running = np.flatnonzero(kept)
    while running.size:
        running = running[_survives(np.ones(running.size), lambda _: Fraction(1), rng)]
        whole[running] += 1
    magnitude = (part + numerator * whole) >> shift
    negative = rng.integers(2, size=size) == 1
    return np.where(negative, -magnitude, magnitude), kept & ~(negative & (magnitude == 0))


def _gaussian_exponent(draws: Integers, square: Fraction, scale: int) -> Callable[[int], Fraction]:
    return lambda each: (abs(int(draws[each])) - square / scale) ** 2 / (2 * square)


def _survives(exponents: NDArray[np.float64], exactly: Callable[[int], Fraction], rng: np.random.Generator) -> Flags:
    """Coins that come up with probability exp(-exponent), where `exactly` tells the exponents without rounding."""
    words = rng.integers(1 << WORD, size=exponents.size)
    chances, uniforms = np.exp(-exponents), words * 2.0**-WORD
    heads: Flags = uniforms < chances
    for each in np.flatnonzero(np.abs(uniforms - chances) < DOUBT):
        heads[each] = _Uniform(int(words[each]), rng).below_exp(exactly(int(each)))
    return heads


def _poisson_table(mean: float) -> tuple[int, NDArray[np.float64]]:
    """The smallest integer of a table, and Pr[X <= x] from it on; what is left out on either side is below exp(-60)."""
    width = math.sqrt(2 * SLACK * mean)
    first, last = max(0, math.floor(mean - width)), math.ceil(mean + width + SLACK)
    steps = np.arange(first + 1, last + 1)
    log_mass = np.concatenate([[0.0], np.cumsum(math.log(mean) - np.log(steps))])
    mass = np.exp(log_mass - log_mass.max())
    return first, np.cumsum(mass) / mass.sum()


def _look_up(first: int, table: NDArray[np.float64], mean: float, size: int, rng: np.random.Generator) -> Integers:
    """Poisson variables, each the first integer at which the distribution function exceeds a uniform number."""
    words = rng.integers(1 << WORD, size=size)
    uniforms = words * 2.0**-WORD
    found: Integers = first + np.searchsorted(table, uniforms, side="right")
    edges = np.concatenate([[0.0], table, [1.0]])
    sure = np.searchsorted(edges, uniforms - TABLE_DOUBT) == np.searchsorted(edges, uniforms + TABLE_DOUBT)
    for each in np.flatnonzero(~sure):
        found[each] = _Uniform(int(words[each]), rng).quantile(Fraction(mean), int(found[each]))
    return found


class _Uniform:
    """A uniform number between 0 and 1 of which only so many bits are known as were asked for."""

    def __init__(self, word: int, rng: np.random.Generator) -> None:
        self._word, self._bits, self._rng = word, WORD, rng

    def below_exp(self, exponent: Fraction) -> bool:
        """Whether the number is below exp(-exponent)."""
        return self._below(lambda digits: _exp(exponent, _context(digits)))

    def quantile(self, mean: Fraction, guess: int) -> int:
        """The Poisson variable of that mean whose distribution function first exceeds the number."""
        found = guess
        while not self._below_cdf(mean, found):
            found += 1
        while found > 0 and self._below_cdf(mean, found - 1):
            found -= 1
        return found

    def _below_cdf(self, mean: Fraction, last: int) -> bool:
        return self._below(lambda digits: _poisson_cdf(mean, last, digits))

    def _below(self, value: Callable[[int], Fraction]) -> bool:
        """Whether the number is below a real one, known to any number of decimal digits but the last three."""
        digits = DIGITS
        while True:
            bound, error = value(digits), Fraction(1, 10 ** (digits - 3))
            low, high = Fraction(self._word, 1 << self._bits), Fraction(self._word + 1, 1 << self._bits)
            if high <= bound - error:
                return True
            if low >= bound + error:
                return False
            self._word = (self._word << MORE) | int.from_bytes(self._rng.bytes(MORE // 8), "big")
            self._bits += MORE
            digits *= 2


def _context(digits: int) -> Context:
    return Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _exp(exponent: Fraction, context: Context) -> Fraction:
    """exp(-exponent), off by a few units in the last digit of the exponent."""
    quotient = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(context.exp(-quotient))


def _poisson_cdf(mean: Fraction, last: int, digits: int) -> Fraction:
    """Pr[X <= last], with digits to spare for the mean's own size and for the sum of its terms."""
    context = _context(digits + math.ceil(math.log10(mean + last + 10)) + 5)
    term = total = Decimal(1)
    rate = context.divide(Decimal(mean.numerator), Decimal(mean.denominator))
    for number in range(1, last + 1):
        term = context.divide(context.multiply(term, rate), Decimal(number))
        total = context.add(total, term)
    return _exp(mean, context) * Fraction(total)
