"""The probability that cohorts are short of phones or have liars, and the cohorts and thresholds that are best.

Phones are absent independently of each other, and dealt into cohorts whose sizes differ by at most one. Results are
exact unless a function says that it is a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from reticent.privacy import min_liars, share_variance

__all__ = [
    "MAX_COHORTS",
    "MAX_PHONES",
    "CohortPlan",
    "allowance_exceeded",
    "check_cohorts",
    "choose_cohorts",
    "cohort_sizes",
    "hit_cohorts",
    "mean_contributors",
    "no_release",
    "no_release_with_liars",
    "short_cohorts",
    "short_probability",
    "tolerated_liars",
]

Floats = npt.NDArray[np.float64]

_LEVELS: list[float] = np.logspace(-12, math.log10(0.5), 80).tolist()
"""The probabilities of a short cohort that `choose_cohorts` tries."""

MAX_COHORTS = 5_001
"""The most cohorts that are planned for: more would take minutes."""

MAX_PHONES = 10**12
"""The largest population that is planned for: larger numbers lose digits here."""

_NOTHING = 1e-18  # a probability too small to change any sum here
_CERTAIN = 1e-15  # an event is certain if the probability of its contrary is below this
_FAR = 15  # standard deviations, beyond which a hypergeometric distribution has no mass
_AND_MORE = 60  # further counts, for skewed distributions


@dataclass(frozen=True)
class CohortPlan:
    """The cohorts of a query.

    Args:
        cohorts: The number of cohorts.
        min_contributions: The fewest contributions with which a cohort may be decrypted.
        liars: The number of liars per cohort against whom privacy holds.
    """

    cohorts: int
    min_contributions: int
    liars: int


def cohort_sizes(population: int, cohorts: int) -> dict[int, int]:
    """The number of cohorts of each size."""
    size, larger = divmod(population, cohorts)
    return {each: number for each, number in ((size + 1, larger), (size, cohorts - larger)) if number}


def short_probability(size: int, min_contributions: int, absent: float) -> float:
    """The probability that a cohort has fewer than `min_contributions`: a binomial tail."""
    return float(_special().bdtr(min(min_contributions - 1, size), size, 1 - absent))


def short_cohorts(population: int, cohorts: int, min_contributions: int, absent: float) -> Floats:
    """The distribution of the number of short cohorts.  # (G + 1,)."""
    parts = [
        _binomial(number, short_probability(size, min_contributions, absent))
        for size, number in cohort_sizes(population, cohorts).items()
    ]
    first, *rest = parts
    return np.asarray(np.convolve(first, rest[0])) if rest else first


def no_release(population: int, cohorts: int, min_contributions: int, absent: float) -> float:
    """The probability that fewer than half of the cohorts are left, if nobody lies."""
    return _probability_of_majority(short_cohorts(population, cohorts, min_contributions, absent))


def hit_cohorts(population: int, cohorts: int, liars: int) -> Floats:
    """The distribution of the number of cohorts with a liar.  # (G + 1,).

    All cohorts are taken to have the same size; they differ by one phone at most.
    """
    hit = np.zeros(cohorts + 1)
    liars = min(liars, population)
    if cohorts * _probability_of_more_liars(population, population // cohorts, liars, -1, most=0) < _CERTAIN:
        hit[-1] = 1.0  # each cohort has one
        return hit
    first, window = next(islice(_hit_distributions(population, cohorts), liars, None))
    hit[first : first + len(window)] = window
    return hit


def no_release_with_liars(population: int, cohorts: int, min_contributions: int, absent: float, liars: int) -> float:
    """The probability that fewer than half of the cohorts are left, if each liar voids its own.

    Each of the others is taken to be short with their mean probability.
    """
    if liars == 0:
        return no_release(population, cohorts, min_contributions, absent)
    return float(
        hit_cohorts(population, cohorts, liars) @ _no_release_given_hits(population, cohorts, min_contributions, absent)
    )


def tolerated_liars(population: int, cohorts: int, min_contributions: int, absent: float, risk: float) -> int:
    """The most liars, each of whom voids its cohort, that keep the probability of no release within the risk."""
    given_hits = _no_release_given_hits(population, cohorts, min_contributions, absent)
    for liars, (first, window) in enumerate(islice(_hit_distributions(population, cohorts), 1, population + 1)):
        if window @ given_hits[first : first + len(window)] > risk:
            return liars
    return population


def allowance_exceeded(population: int, cohorts: int, allowed: int, liars: int) -> float:
    """An upper bound on the probability that some cohort has more liars than allowed: the sum over the cohorts."""
    total = sum(
        number * _probability_of_more_liars(population, size, liars, allowed)
        for size, number in cohort_sizes(population, cohorts).items()
    )
    return min(1.0, total)


def mean_contributors(size: int, min_contributions: int, absent: float) -> tuple[float, float]:
    """The mean number of contributors of a cohort with enough contributions, and of a short one."""
    present = 1 - absent
    is_short = short_probability(size, min_contributions, absent)
    # The binomial distribution of one phone fewer gives partial means without a sum.
    below = (
        size * present * short_probability(size - 1, min_contributions - 1, absent) if min_contributions > 1 else 0.0
    )
    enough = (size * present - below) / (1 - is_short) if is_short < 1 else 0.0
    return enough, below / is_short if is_short > 0 else 0.0


def choose_cohorts(
    *,
    population: int,
    absent: float,
    lying: int,
    risk: float,
    variance: float,
    cohorts: int | None = None,
    min_contributions: int | None = None,
    liars: int | None = None,
) -> CohortPlan:
    """The most accurate cohorts of those that keep the probability of no release within the risk.

    Args:
        population: The number of phones.
        absent: The probability that a phone does not contribute.
        lying: The number of phones that lie, in any cohort.
        risk: The accepted probability that nothing is released, and that some cohort has more liars than allowed.
        variance: The variance of the noise that hides a user.
        cohorts: The number of cohorts; chosen if None.
        min_contributions: The fewest contributions with which a cohort may be decrypted; chosen if None.
        liars: The number of liars per cohort against whom privacy holds. If None, it is the default share of
            `min_contributions`, or more if `lying` and `risk` need more.

    Raises:
        ValueError: No cohorts keep it within the risk.
    """
    if population < 1:
        raise ValueError(f"population must be at least 1: got {population}")
    if cohorts is None:
        cohorts = _cohorts_tolerating(population, lying, risk)
    if not 1 <= cohorts <= population:
        raise ValueError(f"{population} phones cannot be dealt into {cohorts!r} cohorts")
    if liars is None or min_contributions is None:
        check_cohorts(cohorts)
    expected = _min_allowance(population, cohorts, lying, risk) if liars is None else 0

    def allowed(min_contributions: int) -> int:
        return max(expected, min_liars(min_contributions)) if liars is None else liars

    if min_contributions is None:
        min_contributions = _best_min_contributions(
            population, cohorts, absent=absent, lying=lying, allowed=allowed, risk=risk, variance=variance
        )
    return CohortPlan(cohorts, min_contributions, allowed(min_contributions))


def check_cohorts(cohorts: int) -> None:
    """Refuse more cohorts than are planned for.

    Raises:
        ValueError: There are more.
    """
    if cohorts > MAX_COHORTS:
        raise ValueError(f"a plan has at most {MAX_COHORTS:,} cohorts: got {cohorts:,}")


def _cohorts_tolerating(population: int, lying: int, risk: float) -> int:
    """The fewest cohorts, an odd number, of which liars void less than half. Half of the risk is left to absence."""

    def tolerates(half: int) -> bool:
        return _probability_of_majority(hit_cohorts(population, 2 * half + 1, lying)) <= risk / 2

    # As many liars as there are cohorts hit most of them.
    half = _first_true(range(min(lying, MAX_COHORTS) // 2, min(lying, MAX_COHORTS // 2) + 1), tolerates)
    if 2 * half + 1 > population or lying > MAX_COHORTS or not tolerates(half):
        raise ValueError(
            f"no number of cohorts up to {min(population, MAX_COHORTS)} tolerates {lying} liars among {population} "
            f"phones with a risk of {risk:g}: lower [expected] lying, or set cohorts"
        )
    return 2 * half + 1


def _best_min_contributions(
    population: int,
    cohorts: int,
    *,
    absent: float,
    lying: int,
    allowed: Callable[[int], int],
    risk: float,
    variance: float,
) -> int:
    """The `min_contributions` with the smallest error."""
    smallest = population // cohorts
    most = _max_min_contributions(population, cohorts, absent, lying, risk)
    if most < allowed(most) + 2:
        raise ValueError(
            f"with a risk of {risk:g}, at least {most} of {smallest} phones in a cohort contribute, "
            f"{allowed(most)} of them liars: at least 2 must be honest; absent = {absent:g}, cohorts = {cohorts}"
        )
    if cohorts == 1:
        return most
    at_levels = (_min_contributions_at(smallest, absent, level) for level in _LEVELS)
    tried = {most} | {threshold for threshold in at_levels if allowed(threshold) + 2 <= threshold < most}

    def noise(min_contributions: int) -> float:
        """The variance of a scaled sum, if phones differ by their noise only."""
        is_short = short_probability(smallest, min_contributions, absent)
        return (
            share_variance(variance, min_contributions, allowed(min_contributions))
            * (1 + is_short)
            / max(1 - is_short, _LEVELS[0])
        )

    return min(tried, key=noise)


def _min_allowance(population: int, cohorts: int, lying: int, risk: float) -> int:
    """The fewest liars to allow per cohort such that more are no likelier than the risk."""
    return _first_true(
        range(lying + 1), lambda allowed: allowance_exceeded(population, cohorts, allowed, lying) <= risk
    )


def _max_min_contributions(population: int, cohorts: int, absent: float, lying: int, risk: float) -> int:
    """The largest `min_contributions` within the risk; 0 if there is none."""
    hit = hit_cohorts(population, cohorts, lying)
    if _probability_of_majority(hit) > risk:  # liars that are not tolerated anyway do not lower it
        hit = hit_cohorts(population, cohorts, 0)

    def is_too_many(min_contributions: int) -> bool:
        return float(hit @ _no_release_given_hits(population, cohorts, min_contributions, absent)) > risk

    return _first_true(range(1, population // cohorts + 2), is_too_many) - 1


def _min_contributions_at(size: int, absent: float, level: float) -> int:
    """The largest `min_contributions` that a cohort of this size misses with at most this probability."""
    return (
        _first_true(
            range(1, size + 2), lambda min_contributions: short_probability(size, min_contributions, absent) > level
        )
        - 1
    )


def _first_true(numbers: range, holds: Callable[[int], bool]) -> int:
    """The first number for which a monotone condition holds; the last number if it holds for none."""
    low, high = numbers[0], numbers[-1]
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _hit_distributions(population: int, cohorts: int) -> Iterator[tuple[int, Floats]]:
    """The distribution of the number of cohorts with a liar, for no liar, one liar, and so on.

    Each item is the first likely number and the probabilities from there on; all others are negligible.
    """
    first, hit = 0, np.ones(1)
    size = population / cohorts
    for dealt in range(population):
        yield first, hit
        untouched = (cohorts - first - np.arange(len(hit))) * size
        moved = hit * np.minimum(1.0, untouched / (population - dealt))  # the next liar is dealt into a new cohort
        hit = np.append(hit - moved, 0.0)
        hit[1:] += moved
        if first + len(hit) > cohorts + 1 or hit[-1] < _NOTHING:
            hit = hit[:-1]
        if hit[0] < _NOTHING:
            first, hit = first + 1, hit[1:]
    yield first, hit


def _no_release_given_hits(population: int, cohorts: int, min_contributions: int, absent: float) -> Floats:
    """The probability that fewer than half are left, by the number of void cohorts.  # (G + 1,)."""
    is_short = sum(
        number * short_probability(size, min_contributions, absent) / cohorts
        for size, number in cohort_sizes(population, cohorts).items()
    )
    probabilities = np.ones(cohorts + 1)
    void = np.arange(cohorts // 2 + 1)
    probabilities[: len(void)] = _special().bdtrc(cohorts // 2 - void, cohorts - void, min(1.0, is_short))
    return probabilities


def _probability_of_majority(counts: Floats) -> float:
    """The probability of more than half of the cohorts."""
    return min(1.0, float(counts[(len(counts) - 1) // 2 + 1 :].sum()))


def _probability_of_more_liars(population: int, size: int, liars: int, allowed: int, most: int | None = None) -> float:
    """The probability that one cohort has more liars than allowed, and at most `most`: a hypergeometric tail."""
    mean = size * liars / population
    reach = _FAR * math.sqrt(mean) + _AND_MORE  # the variance is below the mean
    low = max(allowed + 1, size - (population - liars), math.floor(mean - reach) if most is None else 0)
    high = min(liars, size, math.ceil(max(allowed + 1, mean) + reach) if most is None else most)
    if low > high:
        return 0.0
    dealt = np.arange(low, high + 1)
    logs = (
        _log_choices(liars, dealt)
        + _log_choices(population - liars, size - dealt)
        - _log_choices(population, np.array([size]))
    )
    return float(np.exp(logs).sum())


def _binomial(number: int, chance: float) -> Floats:
    """The probabilities of 0, 1, ..., number."""
    counts = np.arange(number + 1)
    special = _special()
    logs = special.xlogy(counts, chance) + special.xlog1py(number - counts, -chance)
    return np.asarray(np.exp(_log_choices(number, counts) + logs))


def _log_choices(number: int, counts: npt.NDArray[np.int_]) -> Floats:
    gammaln = _special().gammaln
    return np.asarray(gammaln(number + 1) - gammaln(counts + 1) - gammaln(number - counts + 1))


def _special() -> Any:
    """SciPy's functions. Only plans need SciPy: releases are read and drawn without it."""
    return import_module("scipy.special")
