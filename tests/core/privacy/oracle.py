"""Privacy losses by their definitions alone: sums of SciPy's probabilities over every noise that matters."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
from scipy import signal, special

SMALL = 1e-250
DEVIATIONS = 9.5  # of the noise that are looked at on either side, and some integers more
RESOLUTION = 2000  # cells of a discretised loss per epsilon


def gaussian_tail(sigma: float, epsilon: float, sensitivity: float) -> float:
    """The exact two-sided tail of the normal loss; relative errors of 1e-10 at worst."""
    shift = sensitivity / sigma
    return float(special.ndtr(shift / 2 - epsilon / shift) + special.ndtr(-shift / 2 - epsilon / shift))


def log_mass(variance: float, noise: np.ndarray) -> np.ndarray:
    """The logarithm of Pr[Z = z], by scaled Bessel functions, and by a hypergeometric one where those are 0."""
    order = np.abs(noise)
    mass = special.ive(order, variance)
    log = order * math.log(variance / 2) - special.gammaln(order + 1.0) - variance
    small = mass < SMALL
    if small.any():
        log[small] += np.log(special.hyp0f1(order[small] + 1.0, variance**2 / 4))
    log[~small] = np.log(mass[~small])
    return np.asarray(log)


def loss(variance: float, change: int) -> tuple[np.ndarray, np.ndarray]:
    """What each noise loses when its counter changes by `change`, and its probability."""
    reach = int(DEVIATIONS * math.sqrt(variance)) + 30
    noise = np.arange(-reach, reach + 1)
    mass = log_mass(variance, noise)
    return mass - log_mass(variance, noise - change), np.exp(mass)


def one_counter(variance: float, epsilon: float, change: int = 1) -> float:
    """Pr[|loss| > epsilon] for one counter, ties counted as neither."""
    losses, chances = loss(variance, change)
    return float(chances[np.abs(losses) > epsilon].sum())


def vector(variance: float, epsilon: float, changes: tuple[int, ...], *, above: bool) -> float:
    """Pr[|sum of losses| > epsilon], convolved on a grid: an upper bound if `above`, else a lower one."""
    width = epsilon / RESOLUTION
    sums, lowest = np.ones(1), 0
    for change in changes:
        losses, chances = loss(variance, change)
        cells = np.rint(losses / width).astype(int)
        histogram = np.bincount(cells - cells.min(), weights=chances)
        sums, lowest = signal.fftconvolve(sums, histogram), lowest + int(cells.min())
    values = (np.arange(sums.size) + lowest) * width
    slack = len(changes) * width / 2 * (1 + 1e-9)
    return float(sums[np.abs(values) > (epsilon - slack if above else epsilon + slack)].sum())


def contributions(square: int, total: int) -> Iterator[tuple[int, ...]]:
    """All vectors of positive integers within the norms, each once up to order, by trying everything."""
    largest = min(math.isqrt(square), total)
    for length in range(1, total + 1):
        for changes in itertools.combinations_with_replacement(range(1, largest + 1), length):
            if sum(changes) <= total and sum(each**2 for each in changes) <= square:
                yield changes


def indistinguishability(variance: float, epsilon: float, change: int) -> float:
    """Delta of definition 4 for one counter: the sum of what is left of Pr[Z = z] - exp(epsilon) Pr[Z = z - change]."""
    losses, chances = loss(variance, change)
    return float((chances * np.maximum(-np.expm1(epsilon - losses), 0)).sum())


def renyi(order: float, variance: float, change: int) -> float:
    """The Rényi divergence between the noise and itself plus `change`."""
    reach = int(math.sqrt(variance) * (20 + 3 * order * change) + 100 + order * change * 3)
    noise = np.arange(-reach, reach + 1)
    mass = log_mass(variance, noise)
    near = np.isfinite(mass) & np.isfinite(log_mass(variance, noise - change))
    exponent = order * mass[near] - (order - 1) * log_mass(variance, noise - change)[near]
    return float(special.logsumexp(exponent)) / (order - 1)
