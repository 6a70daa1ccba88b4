"""Skellam noise: integers only, and the sum of many shares has exactly this noise.

The promise is that of `gaussian`: definition 3 of Götz's dissertation. Neighbours add or remove one user, who changes a
vector of integers. Skellam's delta is not monotone in its variance, and every phone above the fewest makes the variance
larger. A calibrated variance is safe for every larger one too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import checked_delta, checked_positive
from reticent.privacy.mechanisms._calibration import MIN_PROBABILITY, bounded_epsilon
from reticent.privacy.mechanisms._samplers import MAX_MEAN, MIN_SCALE, Size, poisson
from reticent.privacy.mechanisms._skellam_bound import (
    one_counter_from,
    one_counter_variance,
    shift_of,
    skellam_renyi,
    smallest_variance,
    worst_from,
)
from reticent.privacy.mechanisms._skellam_loss import beyond, last_variance, losses, threshold, upper_tails
from reticent.privacy.mechanisms.mechanism import Integers, Mechanism

__all__ = ["Skellam", "skellam_delta", "skellam_share", "skellam_variance"]

MIN_VARIANCE, MAX_VARIANCE = 2 * MIN_SCALE, 2 * MAX_MEAN  # of a share that can be drawn
MAX_SAMPLED_VARIANCE = 2.0**21  # a simulation rounds normal numbers above
MAX_EXACT_VARIANCE = 10_000  # from here on the noise is as good as normal: a step is a hundredth of its deviation
POISSON_DEVIATIONS = 12  # of a Poisson variable beyond which nothing is left to count
ALMOST_WHOLE = 1e-9  # a squared norm this far, in parts, below a whole number was meant to be it
MAX_STEPS = 4000.0  # counted exactly up to here; beyond, the steps of the noise are fine and the bound is taken
MAX_COUNTED_VARIANCE = 3e5  # and up to here, as the tails of larger noise are too long
MAX_ENTRIES = 4  # a contribution of more than these is not enumerated
MAX_ATOMS = 20_000  # pairs of noises that are listed, at most
LEFT_OUT = 1e-10  # of the bound: the mass that an enumeration may cut off, and counts as lost
NATS = 25.0  # a tail is summed until less than exp(-25) of it is left


class Skellam(Mechanism):
    """Skellam noise, for whole numbers."""

    name = "skellam"
    whole = True

    def variance(self, epsilon: float, delta: float, l2: float, l1: float, fraction_bits: int | None = None) -> float:
        return _variance(epsilon, delta, l2, l1)

    def sequence_variance(self, epsilon: float, delta: float, l2: float, l1: float) -> float:
        return _variance(epsilon, delta, l2, l1)

    def delta(self, variance: float, epsilon: float, l2: float, l1: float, fraction_bits: int) -> float:
        return skellam_delta(variance, epsilon, l2, l1=l1)

    def renyi(self, order: int, variance: float, l2: float, l1: float) -> float:
        return _renyi(order, variance, l2, l1)

    def check_share(self, variance: float, fraction_bits: int) -> None:
        problem = f"each phone would add Skellam noise of variance {variance:.3g}"
        if variance > MAX_VARIANCE:
            raise ValueError(
                f"{problem}, and can draw 2^{math.log2(MAX_VARIANCE):g} at most: count in larger steps, ask more "
                f"phones, or take noise = 'gaussian'"
            )
        if variance < MIN_VARIANCE:
            raise ValueError(
                f"{problem}, and can draw 2^{math.log2(MIN_VARIANCE):g} at least: take more cohorts, or a lower epsilon"
            )

    def share(self, variance: float, size: Size, rng: np.random.Generator, fraction_bits: int) -> Integers:
        mean = checked_positive("variance", variance) / 2
        self.check_share(variance, fraction_bits)
        return poisson(mean, size, rng) - poisson(mean, size, rng)

    def is_sampled(self, variance: float, fraction_bits: int) -> bool:
        return variance <= MAX_SAMPLED_VARIANCE

    def half_width(self, variance: float, level: float) -> float:
        return (
            float(_half_width(variance, level))
            if variance < MAX_EXACT_VARIANCE
            else super().half_width(variance, level)
        )


def skellam_share(variance: float, size: Size, rng: np.random.Generator) -> Integers:
    """Run by the phone. Skellam noise: the difference of two Poisson variables of mean `variance` / 2 each.

    Sums of shares are Skellam noise again, of the sum of the variances, exactly and for any number of phones.

    Args:
        variance: Of the share, which may be far below 1.
        size: The shape of the array, one number for each counter.
        rng: `reticent.randomness.secure()` on a phone.
    """
    return Skellam().share(variance, size, rng, 0)


def skellam_delta(variance: float, epsilon: float, sensitivity: float, *, l1: float | None = None) -> float:
    """The probability that Skellam noise of exactly this variance breaks `epsilon`, never below the truth.

    A larger variance can have a larger delta: only `skellam_variance` speaks for all larger ones.

    Args:
        variance: Of the noise in each counter.
        epsilon: The loss that counts as a breach, in nats.
        sensitivity: The largest L2 norm of what one user changes.
        l1: The largest L1 norm of it; integers never have more than the squared L2 norm.

    Returns:
        The exact value for one counter, up to a variance of 300,000, and for vectors of few entries and noise that is
        not too large (the worst of all vectors within the norms); a bound on it otherwise.

    >>> round(skellam_delta(5.0, epsilon=1, sensitivity=1), 4)
    0.03
    """
    variance, epsilon = checked_positive("variance", variance), bounded_epsilon(epsilon)
    square, total = _norms(sensitivity, l1)
    bound = worst_from(math.sqrt(square) * shift_of(variance), epsilon)
    if total == 1:
        bound = min(bound, one_counter_from(variance, epsilon))
        return min(bound, _one_counter(variance, epsilon)) if _is_countable(variance, epsilon) else bound
    if total <= MAX_ENTRIES:
        return min(bound, _enumerated(variance, epsilon, square, total, bound))
    return bound


def skellam_variance(epsilon: float, delta: float, sensitivity: float, *, l1: float | None = None) -> float:
    """A variance of Skellam noise that keeps (epsilon, delta), as does every larger one.

    For one counter that changes by 1 it is the smallest such variance, up to a variance of 300,000. For vectors, and
    beyond, it is the smallest that the comparison with Gaussian noise proves: 8 % above the Gaussian's variance
    for delta = 10^-6, 31 % for .02, more for epsilon above 2. For epsilon below .01, `skellam_delta` of it may say more
    than delta by a part in 10^5, since each rounds upwards on its own.

    Args:
        epsilon: The loss that counts as a breach, in nats.
        delta: The probability with which a breach is allowed.
        sensitivity: The largest L2 norm of what one user changes.
        l1: The largest L1 norm of it; integers never have more than the squared L2 norm.

    >>> round(skellam_variance(epsilon=1, delta=1e-6, sensitivity=1), 2)
    19.47
    """
    epsilon, delta = bounded_epsilon(epsilon), checked_delta(delta)
    square, total = _norms(sensitivity, l1)
    bound = smallest_variance(epsilon, delta, square)
    if total > 1:
        return bound
    bound = min(bound, one_counter_variance(epsilon, delta))
    return _last_unsafe(bound, epsilon, delta) if _is_countable(bound, epsilon) else bound


def _norms(sensitivity: float, l1: float | None) -> tuple[int, int]:
    """The largest squared L2 norm and the largest L1 norm that an integer vector within both bounds has."""
    square = math.floor(checked_positive("sensitivity", sensitivity) ** 2 * (1 + ALMOST_WHOLE))
    total = square if l1 is None else math.floor(checked_positive("l1", l1) * (1 + ALMOST_WHOLE))
    if square < 1:
        raise ValueError(f"an integer vector that is not 0 has an L2 norm of at least 1: got {sensitivity!r}")
    if total < 1:
        raise ValueError(f"an integer vector that is not 0 has an L1 norm of at least 1: got l1 = {l1!r}")
    return min(square, total**2), min(total, square)


def _steps(variance: float, epsilon: float) -> float:
    """About the noise at which one counter loses epsilon."""
    return variance * math.sinh(epsilon)


def _is_countable(variance: float, epsilon: float) -> bool:
    """Whether one counter's noise is counted step by step within a few milliseconds."""
    return variance <= MAX_COUNTED_VARIANCE and _steps(variance, epsilon) <= MAX_STEPS


def _one_counter(variance: float, epsilon: float) -> float:
    """Pr[Z <= -c] + Pr[Z >= c + 1], where c is the threshold."""
    step = threshold(variance, epsilon)
    above = upper_tails(variance, step, NATS).above
    return _two_tails(above[step], above[step + 1])


def _two_tails(first: float, second: float) -> float:
    return min(1.0, max(float(first + second), MIN_PROBABILITY))


def _last_unsafe(bound: float, epsilon: float, delta: float) -> float:
    """The variance at which delta is exceeded for the last time, given one from which on it never is.

    While the threshold stays at c, the two tails grow with the variance, so the end of that step is its worst. Every
    step whose tails at a variance that is safe are small enough is safe as well; then the same from its beginning.
    """
    step = math.ceil(_steps(bound, epsilon))
    while True:
        variance = last_variance(step, epsilon)
        above = upper_tails(variance, step, NATS).above
        safe = above[: step + 1] + above[1 : step + 2] <= delta
        if not safe.any():
            return variance
        step = int(safe.argmax()) - 1


def _enumerated(variance: float, epsilon: float, square: int, total: int, bound: float) -> float:
    """The worst of all contributions within the norms, or infinity where listing its losses would take too long."""
    if 4 * variance > MAX_ATOMS:
        return math.inf
    cut = max(bound * LEFT_OUT, MIN_PROBABILITY)
    tails = upper_tails(variance, MAX_ENTRIES, NATS - math.log(cut))
    reach = int((tails.above > cut).sum())
    if (2 * reach + 1) ** 2 > MAX_ATOMS:
        return math.inf
    atoms = {change: losses(tails, change, reach) for change in range(1, MAX_ENTRIES + 1)}
    worst = max(beyond([atoms[change] for change in each], epsilon) for each in _contributions(square, total, total))
    return worst * (1 + ALMOST_WHOLE) + 2 * MAX_ENTRIES * cut


def _contributions(square: int, total: int, largest: int) -> Iterator[list[int]]:
    """All that one user may add to counters, up to order and sign, largest entry first."""
    for entry in range(1, min(largest, total, math.isqrt(square)) + 1):
        yield [entry]
        for rest in _contributions(square - entry**2, total - entry, entry):
            yield [entry, *rest]


@lru_cache(maxsize=1024)
def _variance(epsilon: float, delta: float, l2: float, l1: float) -> float:
    """Cached: every reader of a query needs it, and it takes milliseconds."""
    return skellam_variance(epsilon, delta, l2, l1=l1)


@lru_cache(maxsize=4096)
def _renyi(order: int, variance: float, l2: float, l1: float) -> float:
    return skellam_renyi(order, variance, l2, l1)


@lru_cache(maxsize=1024)
def _half_width(variance: float, level: float) -> int:
    """The smallest number that the noise exceeds, on either side, with probability 1 - level at most."""
    noise = _probabilities(variance)
    middle = len(noise) // 2
    within = noise[middle] + np.concatenate([[0.0], 2 * np.cumsum(noise[middle + 1 :])])
    return int(np.searchsorted(within, level))


def _probabilities(variance: float) -> NDArray[np.float64]:
    """Those of -m, ..., m, as a difference of two Poisson variables; m is so large that no more is left."""
    mean = variance / 2
    counts = np.arange(math.ceil(mean + POISSON_DEVIATIONS * math.sqrt(mean) + 4 * POISSON_DEVIATIONS))
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])
    one = np.exp(counts * math.log(mean) - mean - log_factorials)
    return np.asarray(np.convolve(one, one[::-1]))
