"""The guarantee of Skellam noise at every variance from a given one on, for any vector that one user may change.

Two bounds that only fall as the variance grows. The first compares with Gaussian noise: whatever can be told
from Skellam noise of variance mu can be told from Gaussian noise of a variance near mu - 1/3 (docs/privacy.md has the
proof). The second is the Rényi bound of Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially
Private Federated Learning" (2021), theorem 3.5.
"""

import math

from reticent.arguments import checked_positive
from reticent.privacy.mechanisms._calibration import MIN_PROBABILITY, ULP, smallest
from reticent.privacy.mechanisms._skellam_loss import mass_at_zero

__all__ = [
    "comparable_gaussian",
    "one_counter_from",
    "one_counter_variance",
    "shift_of",
    "skellam_renyi",
    "smallest_variance",
    "worst_from",
]

ROUNDING = 1e-13  # what the mass at zero may be off by
SEARCH = 44  # steps of a golden section, each 0.62 of the one before
SPAN = 3.0  # how far, in nats, around a guess it searches
SLOWEST = 0.1
GOLDEN = (math.sqrt(5) - 1) / 2


def comparable_gaussian(variance: float) -> float:
    """The variance of Gaussian noise that hides no more than Skellam noise of `variance` does.

    Blackwell's order: any test between two neighbours, any f-divergence (Rényi's of every order among them) and any
    composition of these is no larger than with that Gaussian noise, for all integer vectors alike.

    >>> round(comparable_gaussian(100.0), 3)
    99.666
    """
    shift = shift_of(checked_positive("variance", variance))
    return 0.0 if math.isinf(shift) else shift**-2


def shift_of(variance: float) -> float:
    """The shift between two unit Gaussians that can be told apart as well as Skellam noise from itself plus 1."""
    mass = mass_at_zero(variance) * (1 + ROUNDING)
    if mass >= 1:
        return math.inf
    return smallest(lambda shift: math.erf(shift / math.sqrt(8)) >= mass, 1 / math.sqrt(variance))


def smallest_variance(epsilon: float, delta: float, square: int) -> float:
    """The smallest variance from which on `worst_from` is at most delta, for vectors of that squared L2 norm."""
    inverse = smallest(lambda inverse: worst_from(1 / inverse, epsilon) <= delta, 1 / math.sqrt(2 * epsilon))
    mass = math.erf(1 / (inverse * math.sqrt(8 * square)))
    found = smallest(lambda variance: mass_at_zero(variance) * (1 + ROUNDING) <= mass, square * inverse**2)
    return found * (1 + 10 * ROUNDING)


def worst_from(shift: float, epsilon: float) -> float:
    """The largest delta of any noise that hides at least as much as Gaussian noise with that shift.

    Let H(x) be that Gaussian noise's delta of definition 4 at x. It bounds H of the noise, and a loss above
    epsilon has at most the probability H(epsilon - t) / (1 - exp(-t)), for any t > 0; a loss below -epsilon at most
    exp(-epsilon) times that.
    """
    rate = max(epsilon / shift**2 - 0.5, SLOWEST)  # at which the loss's density falls near epsilon
    guess = math.log(math.log1p(1 / rate))
    low, high = guess - SPAN, guess + SPAN
    values = {x: _bound(shift, epsilon, math.exp(x)) for x in _inside(low, high)}
    for _ in range(SEARCH):
        left, right = sorted(values)
        if values[left] < values[right]:
            high = right
        else:
            low = left
        values = {x: values.get(x) or _bound(shift, epsilon, math.exp(x)) for x in _inside(low, high)}
    return min(1.0, max(min(values.values()), MIN_PROBABILITY) * (1 + math.exp(-epsilon)))


def one_counter_from(variance: float, epsilon: float) -> float:
    """Chernoff's bound on delta for one counter that changes by 1, at this variance and every larger one."""
    return min(1.0, max(math.exp(epsilon - variance * _rate(epsilon)), MIN_PROBABILITY) * (1 + math.exp(-epsilon)))


def one_counter_variance(epsilon: float, delta: float) -> float:
    """The smallest variance from which on `one_counter_from` is at most delta."""
    return (epsilon + math.log1p(math.exp(-epsilon)) - math.log(delta)) / _rate(epsilon) * (1 + ROUNDING)


def skellam_renyi(order: float, variance: float, sensitivity: float, l1: float) -> float:
    """A bound on the Rényi divergence of `order` > 1, either way, between neighbours under Skellam noise.

    `sensitivity` and `l1` bound the L2 and the L1 norm of what one user changes, an integer vector.

    >>> round(skellam_renyi(2.0, variance=100.0, sensitivity=1.0, l1=1.0), 5)
    0.01003
    """
    if not order > 1:
        raise ValueError(f"a Rényi order must be above 1: got {order!r}")
    variance = checked_positive("variance", variance)
    square = checked_positive("sensitivity", sensitivity) ** 2
    l1 = checked_positive("l1", l1)
    whole = math.ceil(order)  # the published bound is proved for whole orders, and divergences grow with the order
    published = whole * square / (2 * variance) + min(
        ((2 * whole - 1) * square + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance)
    )
    return min(published, order * square * shift_of(variance) ** 2 / 2)


def _rate(epsilon: float) -> float:
    """The nats by which exp(-mu) in the bound on Pr[Z >= mu sinh(epsilon)] falls as the variance mu grows by 1."""
    half = math.sinh(epsilon / 2)
    return epsilon * math.sinh(epsilon) - 2 * half**2


def _inside(low: float, high: float) -> tuple[float, float]:
    return high - GOLDEN * (high - low), low + GOLDEN * (high - low)


def _bound(shift: float, epsilon: float, earlier: float) -> float:
    """H(epsilon - earlier) / (1 - exp(-earlier)), with H's rounding errors on top."""
    x = epsilon - earlier
    gain, cost = _cdf(shift / 2 - x / shift), math.exp(x) * _cdf(-shift / 2 - x / shift)
    allowance = ULP * (8 + 4 * (shift / 2 + abs(x) / shift) * (1 + abs(shift / 2 - x / shift)))
    return (max(gain - cost, 0.0) + allowance * (gain + cost)) / -math.expm1(-earlier)


def _cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
