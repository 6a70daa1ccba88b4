"""The distribution of Skellam noise and of the privacy loss that it leaves, exactly, for what one user changes.

The noise Z of variance mu has the probabilities p(z) = exp(-mu) I_z(mu). Whoever sees Z + k instead of Z
gains the loss ln p(z) - ln p(z - k). All of it follows from the ratios I_z / I_(z-1), which a continued fraction
gives to the last digits however small they make the probabilities.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Atoms", "Tails", "beyond", "last_variance", "losses", "mass_at_zero", "threshold", "upper_tails"]

SERIES_UP_TO = 40.0  # the variance from which on the asymptotic series has all digits
FORGOTTEN = 16.0  # nats after which a continued fraction does not remember where it began, twice over
GROWING = 37.0  # over sqrt(37 variance) + 37 growing terms, asinh(n / variance) adds up to FORGOTTEN or more
TIE = 1e-12  # a loss this close to epsilon counts as above it
ULP = 2.0**-52
FEW = 5  # ulps by which a term or a partial sum may be off
MARGIN = 1e-9  # by how much a variance that ends a step is raised, such that no rounding is on the wrong side

Atoms = tuple[NDArray[np.float64], NDArray[np.float64]]  # the values of a loss, and their probabilities


@dataclass(frozen=True)
class Tails:
    """The distribution of the noise on 0, 1, ..., which is that of its negative."""

    log_mass: NDArray[np.float64]
    above: NDArray[np.float64]  # Pr[Z >= z], never below the truth


def mass_at_zero(variance: float) -> float:
    """The probability that the noise is 0: exp(-mu) I_0(mu), to some 15 digits."""
    if variance < SERIES_UP_TO:
        term = total = math.exp(-variance)
        number = 0
        while term > total * 1e-18:
            number += 1
            term *= (variance / (2 * number)) ** 2
            total += term
        return total
    term = total = 1.0
    number = 0
    while term > 1e-18:
        number += 1
        term *= (2 * number - 1) ** 2 / (8 * number * variance)
        total += term
    return total / math.sqrt(2 * math.pi * variance)


def upper_tails(variance: float, start: int, nats: float) -> Tails:
    """The noise's distribution up to where less than exp(-nats) of what lies above `start` is left."""
    top = math.ceil(math.sqrt(start**2 + 2 * nats * variance) + 1.5 * nats)
    ratio = _ratios(variance, top + 1)
    log_mass = math.log(mass_at_zero(variance)) + np.concatenate([[0.0], np.cumsum(np.log(ratio[1 : top + 1]))])
    rounding = ULP * (np.cumsum(np.abs(log_mass)) + FEW * (top + 16))  # of the sums of logarithms, and of all else
    mass = np.exp(log_mass) * (1 + rounding)
    rest = mass[-1] * ratio[top + 1] / (1 - ratio[top + 1])  # the ratios fall, so a geometric series is above
    above = np.cumsum(np.append(mass, rest)[::-1])[:0:-1]
    return Tails(log_mass, above)


def threshold(variance: float, epsilon: float) -> int:
    """The smallest c such that the noise -c loses more than epsilon when one counter changes by 1.

    Amos' bounds on the ratio of Bessel functions leave two candidates.
    """
    candidate = max(0, math.floor(variance * math.sinh(epsilon)) - 1)
    while _ratio(variance, candidate + 1) >= math.exp(-epsilon) * (1 + TIE):
        candidate += 1
    return candidate


def last_variance(step: int, epsilon: float) -> float:
    """The variance up to which `threshold` is `step` or less, raised by a part in 10^9."""
    target = math.exp(-epsilon)
    least, most = (step + 0.5) / math.sinh(epsilon), (step + 1) / math.sinh(epsilon)
    variance = (least + most) / 2
    while abs((ratio := _ratio(variance, step + 1)) / target - 1) > TIE:  # Newton's, from within half a step
        slope = 1 - ratio**2 - (2 * step + 1) / variance * ratio
        variance, last = min(max(variance - (ratio - target) / slope, least), most), variance
        if variance == last:
            break
    variance *= 1 + MARGIN
    while _ratio(variance, step + 1) < target * (1 + TIE):
        variance *= 1 + MARGIN
    return variance


def losses(tails: Tails, change: int, reach: int) -> Atoms:
    """The privacy loss of each noise of at most `reach` either way when one counter changes by `change`."""
    noise = np.arange(-reach, reach + 1)
    log_mass = tails.log_mass[np.abs(noise)]
    return log_mass - tails.log_mass[np.abs(noise - change)], np.exp(log_mass)


def beyond(entries: list[Atoms], epsilon: float) -> float:
    """The probability that the sum of independent losses, at most four, is above epsilon or below -epsilon."""
    first, second = _sums(entries[::2]), _sums(entries[1::2])
    order = np.argsort(second[0])
    values, chances = second[0][order], second[1][order]
    below = np.concatenate([[0.0], np.cumsum(chances)])
    above = np.concatenate([np.cumsum(chances[::-1])[::-1], [0.0]])
    edge = epsilon * (1 - TIE)
    up = above[np.searchsorted(values, edge - first[0], side="left")]
    down = below[np.searchsorted(values, -edge - first[0], side="right")]
    return float(first[1] @ (up + down))


def _sums(entries: list[Atoms]) -> Atoms:
    """The sums of independent losses, each with its probability, in no order."""
    values, chances = np.zeros(1), np.ones(1)
    for more, probabilities in entries:
        values = np.add.outer(values, more).ravel()
        chances = np.multiply.outer(chances, probabilities).ravel()
    return values, chances


def _ratios(variance: float, top: int) -> NDArray[np.float64]:
    """I_n / I_(n-1) at n = 0 (which is not used), 1, ..., top."""
    found = [1.0] * (top + 1)
    ratio = _ratio(variance, top)
    found[top] = ratio
    for order in range(top - 1, 0, -1):
        ratio = 1 / (2 * order / variance + ratio)
        found[order] = ratio
    return np.array(found)


def _ratio(variance: float, order: int) -> float:
    """I_order / I_(order-1), by its continued fraction backwards from where it is known well enough.

    Going back over n, what is wrong shrinks by exp(-2 asinh(n / variance)) or more. There are enough such steps even
    if all were like that at `order`, or, where the noise is large and that would take long, as they grow.
    """
    equal = FORGOTTEN / math.asinh(order / variance)
    growing = math.sqrt(GROWING * variance) + GROWING
    begin = order + math.ceil(min(equal, growing)) + 4
    ratio = math.exp(-math.asinh((begin + 0.5) / variance))
    for each in range(begin, order - 1, -1):
        ratio = 1 / (2 * each / variance + ratio)
    return ratio
