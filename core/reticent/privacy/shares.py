"""The noise that each phone adds to its own counters, so that the sum has what was promised and nobody knows it.

Shares are integers, since what is encrypted is, and since floating-point noise tells by its last bits what it hides
(Mironov, "On Significance of the Least Significant Bits for Differential Privacy", 2012). A share may be tiny: with
100,000 phones its deviation is a three-hundredth of the sum's, and a rounded normal number would be 0 every time.
"""

import math

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import checked_integer, checked_positive
from reticent.privacy.samplers import MAX_MEAN, MAX_SCALE, MIN_SCALE, Size, discrete_gaussian, poisson

__all__ = [
    "MAX_DEVIATION",
    "gaussian_share",
    "refuse_gaussian_share",
    "refuse_skellam_share",
    "share_variance",
    "skellam_share",
]

MIN_DEVIATION = 4.0  # of a Gaussian share, in steps of its grid: sums of such shares are discrete Gaussians
MAX_DEVIATION = MAX_SCALE  # of one, in the same steps, that can be drawn
MIN_VARIANCE, MAX_VARIANCE = 2 * MIN_SCALE, 2 * MAX_MEAN  # of a Skellam share that can be drawn


def share_variance(variance: float, min_contributions: int, liars: int) -> float:
    """The variance of each phone's share, such that the sum keeps `variance` against who knows some shares.

    Args:
        variance: What the noise of the sum needs.
        min_contributions: The fewest contributions that are ever decrypted together.
        liars: The most phones among them that add no noise, or tell theirs.

    Returns:
        variance / (min_contributions - liars - 1): a curious phone knows its own share, too.

    >>> share_variance(20.0, min_contributions=100, liars=19)
    0.25
    """
    variance = checked_positive("variance", variance)
    min_contributions, liars = (
        checked_integer("min_contributions", min_contributions, 2),
        checked_integer("liars", liars, 0),
    )
    if min_contributions - liars < 2:
        raise ValueError(f"of {min_contributions} contributions at least 2 must be honest: got {liars} liars")
    return variance / (min_contributions - liars - 1)


def skellam_share(variance: float, size: Size, rng: np.random.Generator) -> NDArray[np.int64]:
    """Run by the phone. Skellam noise: the difference of two Poisson variables of mean `variance` / 2 each.

    Sums of shares are Skellam noise again, of the sum of the variances, exactly and for any number of phones.

    Args:
        variance: Of the share, which may be far below 1.
        size: The shape of the array, one number for each counter.
        rng: `reticent.randomness.secure()` on a phone.
    """
    mean = checked_positive("variance", variance) / 2
    refuse_skellam_share(variance)
    return poisson(mean, size, rng) - poisson(mean, size, rng)


def gaussian_share(variance: float, size: Size, rng: np.random.Generator, fraction_bits: int) -> NDArray[np.int64]:
    """Run by the phone. Discrete Gaussian noise on the grid of multiples of 2^-fraction_bits, in steps of the grid.

    The values that it hides are scaled alike. `fixed_point_sigma` says how much a sum needs.

    Args:
        variance: Of the share, before scaling.
        size: The shape of the array, one number for each counter.
        rng: `reticent.randomness.secure()` on a phone.
        fraction_bits: How fine the grid is; a share's deviation must be at least four of its steps.
    """
    deviation = math.sqrt(checked_positive("variance", variance))
    fraction_bits = checked_integer("fraction_bits", fraction_bits, 0)
    refuse_gaussian_share(variance, fraction_bits)
    return discrete_gaussian(math.ldexp(deviation, fraction_bits), size, rng)


def refuse_skellam_share(variance: float) -> None:
    """Refuse Skellam noise that no phone can draw, as a query of such shares is refused before anybody is asked."""
    said = f"each phone would add Skellam noise of variance {variance:.3g}"
    if variance > MAX_VARIANCE:
        raise ValueError(
            f"{said}, and can draw 2^{math.log2(MAX_VARIANCE):g} at most: count in larger steps, ask more phones, "
            f"or take noise = 'gaussian'"
        )
    if variance < MIN_VARIANCE:
        raise ValueError(
            f"{said}, and can draw 2^{math.log2(MIN_VARIANCE):g} at least: take more cohorts, or a lower epsilon"
        )


def refuse_gaussian_share(variance: float, fraction_bits: int) -> None:
    """Refuse Gaussian noise whose grid is too coarse for it, or finer than phones can draw."""
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
