"""Gaussian noise: theorem 1 of Götz's dissertation with the exact tail, and fixed-point numbers on a grid.

The promise is probabilistic differential privacy (definition 3 there). The noise has deviation sigma, on a vector that
one user changes by at most `sensitivity` in L2. Outputs whose probability changes by more than a factor of
exp(epsilon), up or down, come with probability at most delta. Neighbours add or remove one user.
"""

from __future__ import annotations

import math

import numpy as np

from reticent.arguments import checked_delta, checked_integer, checked_positive
from reticent.privacy.mechanisms._calibration import MIN_PROBABILITY, ULP, bounded_epsilon, smallest
from reticent.privacy.mechanisms._samplers import MAX_SCALE, Size, discrete_gaussian
from reticent.privacy.mechanisms.mechanism import Integers, Mechanism

__all__ = [
    "THESIS_EPSILON",
    "Gaussian",
    "fixed_point_delta",
    "fixed_point_sigma",
    "gaussian_delta",
    "gaussian_share",
    "gaussian_sigma",
    "sequence_sigma",
    "thesis_sigma",
]

THESIS_EPSILON = 1.0
"""The largest epsilon for which theorem 1 is stated."""

MIN_DEVIATION = 4.0  # of a share, in steps of its grid: sums of such shares are discrete Gaussians
MAX_DEVIATION = MAX_SCALE  # of a share that can be drawn, in the same steps


class Gaussian(Mechanism):
    """Discrete Gaussian noise on a grid, for fixed-point numbers."""

    name = "gaussian"
    min_share_deviation = MIN_DEVIATION

    def variance(self, epsilon: float, delta: float, l2: float, l1: float, fraction_bits: int | None = None) -> float:
        if fraction_bits is None:
            return gaussian_sigma(epsilon, delta, l2) ** 2
        return fixed_point_sigma(epsilon, delta, l2, l1=l1, fraction_bits=fraction_bits) ** 2

    def sequence_variance(self, epsilon: float, delta: float, l2: float, l1: float) -> float:
        return sequence_sigma(epsilon, delta, l2) ** 2

    def delta(self, variance: float, epsilon: float, l2: float, l1: float, fraction_bits: int) -> float:
        return fixed_point_delta(math.sqrt(variance), epsilon, l2, l1=l1, fraction_bits=fraction_bits)

    def renyi(self, order: int, variance: float, l2: float, l1: float) -> float:
        return order * l2**2 / (2 * variance)

    def check_share(self, variance: float, fraction_bits: int) -> None:
        deviation = math.sqrt(variance)
        steps = math.ldexp(deviation, fraction_bits)
        if steps < MIN_DEVIATION:
            enough = math.ceil(math.log2(MIN_DEVIATION / deviation))
            raise ValueError(
                f"shares of deviation {deviation:.3g} need at least {enough} fraction bits: got {fraction_bits}, "
                f"a deviation of {steps:.3g} steps where {MIN_DEVIATION:g} are needed"
            )
        if steps > MAX_DEVIATION:
            raise ValueError(
                f"shares of deviation {deviation:.3g} have more than 2^{math.log2(MAX_DEVIATION):g} steps with "
                f"{fraction_bits} fraction bits: take fewer, or count in larger steps"
            )

    def share(self, variance: float, size: Size, rng: np.random.Generator, fraction_bits: int) -> Integers:
        deviation = math.sqrt(checked_positive("variance", variance))
        fraction_bits = checked_integer("fraction_bits", fraction_bits, 0)
        self.check_share(variance, fraction_bits)
        return discrete_gaussian(math.ldexp(deviation, fraction_bits), size, rng)

    def is_sampled(self, variance: float, fraction_bits: int) -> bool:
        return math.ldexp(math.sqrt(variance), fraction_bits) <= MAX_DEVIATION


def gaussian_share(variance: float, size: Size, rng: np.random.Generator, fraction_bits: int) -> Integers:
    """Run by the phone. Discrete Gaussian noise on the grid of multiples of 2^-fraction_bits, in steps of the grid.

    The values that it hides are scaled alike. `fixed_point_sigma` says how much a sum needs.

    Args:
        variance: Of the share, before scaling.
        size: The shape of the array, one number for each counter.
        rng: `reticent.randomness.secure()` on a phone.
        fraction_bits: How fine the grid is; a share's deviation must be at least four of its steps.
    """
    return Gaussian().share(variance, size, rng, fraction_bits)


def gaussian_delta(sigma: float, epsilon: float, sensitivity: float) -> float:
    """The probability that Gaussian noise of deviation `sigma` breaks `epsilon`.

    The privacy loss is normal with deviation d = sensitivity / sigma and mean d² / 2; this is its exact two-sided
    tail. What rounding may have hidden is added, a part in 10^11 at most for epsilon up to 10^6: never below the truth.

    >>> round(gaussian_delta(2.376, epsilon=1, sensitivity=1), 4)
    0.02
    """
    sigma = checked_positive("sigma", sigma)
    epsilon = checked_positive("epsilon", epsilon)
    return _two_sided(checked_positive("sensitivity", sensitivity) / sigma, epsilon)


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The smallest deviation of Gaussian noise with which `gaussian_delta` is at most `delta`.

    >>> round(gaussian_sigma(epsilon=1, delta=0.02, sensitivity=1), 3)
    2.376
    """
    epsilon, delta = checked_positive("epsilon", epsilon), checked_delta(delta)
    sensitivity = checked_positive("sensitivity", sensitivity)
    return smallest(
        lambda sigma: _two_sided(sensitivity / sigma, epsilon) <= delta, sensitivity / math.sqrt(2 * epsilon)
    )


def thesis_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The deviation that theorem 1 prints, for epsilon up to 1: larger than needed, kept to compare with.

    >>> round(thesis_sigma(epsilon=1, delta=0.02, sensitivity=1), 3)
    3.255
    """
    epsilon, delta = checked_positive("epsilon", epsilon), checked_delta(delta)
    if epsilon > THESIS_EPSILON:
        raise ValueError(f"theorem 1 holds for epsilon up to 1 only: got {epsilon!r}; gaussian_sigma holds for any")
    return checked_positive("sensitivity", sensitivity) * math.sqrt(2 * math.log(4 / delta)) / epsilon


def fixed_point_delta(sigma: float, epsilon: float, sensitivity: float, *, l1: float, fraction_bits: int) -> float:
    """The same as `gaussian_delta` for sums on the grid of multiples of 2^-fraction_bits, never below the truth.

    What is added up are discrete Gaussian shares (`gaussian_share`), so the sum has steps, and a step can put
    more than the continuous tail beyond epsilon. `l1` bounds the L1 norm of what one user changes.
    """
    sigma, epsilon = checked_positive("sigma", sigma), bounded_epsilon(epsilon)
    sensitivity = checked_positive("sensitivity", sensitivity)
    return _on_grid(sigma, epsilon, sensitivity, _cell(l1, fraction_bits))


def fixed_point_sigma(epsilon: float, delta: float, sensitivity: float, *, l1: float, fraction_bits: int) -> float:
    """The smallest deviation of a fixed-point Gaussian sum with which `fixed_point_delta` is at most `delta`."""
    epsilon, delta = bounded_epsilon(epsilon), checked_delta(delta)
    sensitivity = checked_positive("sensitivity", sensitivity)
    cell = _cell(l1, fraction_bits)
    return smallest(lambda sigma: _on_grid(sigma, epsilon, sensitivity, cell) <= delta, sensitivity)


def sequence_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """A deviation of (fixed-point) Gaussian noise for queries that may depend on the answers to those before them.

    `gaussian_sigma` holds for a fixed vector. An analyst who queries its parts one by one can stop when the loss
    happens to be large, which makes large losses likelier. Rényi divergences at one order add up whatever is asked
    next; this is the smallest deviation that the best order gives.

    Args:
        epsilon: The loss that counts as a breach, in nats.
        delta: The probability with which a breach is allowed.
        sensitivity: The largest L2 norm of what one user changes in all the queries together.

    >>> round(sequence_sigma(epsilon=1, delta=0.02, sensitivity=1), 3)
    3.07
    """
    epsilon, delta = checked_positive("epsilon", epsilon), checked_delta(delta)
    sensitivity = checked_positive("sensitivity", sensitivity)
    c = math.log1p(math.exp(-epsilon)) - math.log(delta)
    order = 1 + (c + math.sqrt(c * (c + epsilon))) / epsilon
    divergence = epsilon - c / (order - 1)  # what may be spent: `log_delta_of` makes delta of it
    return sensitivity * math.sqrt(order / (2 * divergence)) * (1 + 16 * ULP)


def _two_sided(shift: float, epsilon: float) -> float:
    """Phi(shift/2 - epsilon/shift) + Phi(-shift/2 - epsilon/shift), with its rounding errors on top."""
    root = math.sqrt(2 * epsilon)
    near = (shift - root) * (shift + root) / (2 * shift)
    far = -shift / 2 - epsilon / shift
    return min(1.0, _cdf(near, far) + _cdf(far, far))


def _cdf(x: float, far: float) -> float:
    """Phi(x), no less: x may be off by some ulps of `far`, the sum of the parts that it is the difference of."""
    allowance = 1 + ULP * (8 + 4 * abs(far) * (1 + abs(x)))
    return max(math.erfc(-x / math.sqrt(2)) / 2 * allowance, MIN_PROBABILITY)


def _cell(l1: float, fraction_bits: int) -> float:
    """The step of the grid times `l1`."""
    return math.ldexp(checked_positive("l1", l1), -checked_integer("fraction_bits", fraction_bits, 0))


def _on_grid(sigma: float, epsilon: float, sensitivity: float, cell: float) -> float:
    """The continuous tail from half a step earlier on; see docs/privacy.md, "Shares"."""
    half_step = cell / (2 * sigma**2)
    if half_step >= epsilon:
        return 1.0
    return min(1.0, math.exp(half_step / 12) * _two_sided(sensitivity / sigma, epsilon - half_step) * (1 + 16 * ULP))
