"""How likely cohorts are to be short of phones, or to have liars in them; and with which thresholds a query is best.

Phones are absent independently of each other, and dealt into cohorts whose sizes differ by at most one. What is said
here is exact, except where a function says that it is a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, bdtrc, gammaln, xlog1py, xlogy

from reticent.privacy import share_variance
from reticent.privacy.defaults import min_liars

__all__ = [
    "MAX_COHORTS",
    "MAX_PHONES",
    "Crowd",
    "choose",
    "crowded",
    "hit_cohorts",
    "left_out",
    "lost",
    "lost_to_liars",
    "max_liars",
    "mean_contributors",
    "refuse_too_many",
    "short",
    "sizes",
]

Floats = npt.NDArray[np.float64]

_LEVELS: list[float] = np.logspace(-12, math.log10(0.5), 80).tolist()
"""Chances of a short cohort that are tried for the most accurate threshold."""

MAX_COHORTS = 5_001
"""More are not chosen, and nothing is said of them: it would take minutes."""

MAX_PHONES = 10**12
"""More than there will ever be; numbers beyond lose their digits in what follows."""

_NOTHING = 1e-18  # a chance that no sum here would show
_CERTAIN = 1e-15  # of the contrary of what is taken as certain
_FAR = 15  # standard deviations, beyond which there is nothing left of a hypergeometric distribution
_AND_MORE = 60  # counts beyond that, for those that are skewed


@dataclass(frozen=True)
class Crowd:
    """How phones are asked.

    Args:
        cohorts: Into how many they are dealt.
        min_contributions: With how few contributions one of them may be decrypted.
        liars: How many of a cohort may lie without harm to anybody's privacy.
    """

    cohorts: int
    min_contributions: int
    liars: int


def sizes(population: int, cohorts: int) -> dict[int, int]:
    """How many cohorts there are of each size."""
    size, larger = divmod(population, cohorts)
    return {each: number for each, number in ((size + 1, larger), (size, cohorts - larger)) if number}


def short(size: int, min_contributions: int, absent: float) -> float:
    """That a cohort of this size has fewer than the fewest contributions: a binomial tail."""
    return float(bdtr(min(min_contributions - 1, size), size, 1 - absent))


def left_out(population: int, cohorts: int, min_contributions: int, absent: float) -> Floats:
    """How many cohorts are short: the chance of none, of one, and so on.  # (G + 1,)."""
    parts = [
        _binomial(number, short(size, min_contributions, absent)) for size, number in sizes(population, cohorts).items()
    ]
    first, *rest = parts
    return np.asarray(np.convolve(first, rest[0])) if rest else first


def lost(population: int, cohorts: int, min_contributions: int, absent: float) -> float:
    """That fewer than half of the cohorts are left, if nobody lies."""
    return _more_than_half(left_out(population, cohorts, min_contributions, absent))


def hit_cohorts(population: int, cohorts: int, liars: int) -> Floats:
    """In how many cohorts there is a liar: the chance of none, of one, and so on.  # (G + 1,).

    As if all cohorts had one size; they have, but for one phone.
    """
    hit = np.zeros(cohorts + 1)
    liars = min(liars, population)
    if cohorts * _more_dealt(population, population // cohorts, liars, -1, most=0) < _CERTAIN:
        hit[-1] = 1.0  # there is one in each
        return hit
    first, window = next(islice(_hits(population, cohorts), liars, None))
    hit[first : first + len(window)] = window
    return hit


def lost_to_liars(population: int, cohorts: int, min_contributions: int, absent: float, liars: int) -> float:
    """That fewer than half of the cohorts are left, if each liar voids its own.

    As if each of the others were as likely to be short as they are on average.
    """
    if liars == 0:
        return lost(population, cohorts, min_contributions, absent)
    return float(
        hit_cohorts(population, cohorts, liars) @ _lost_given_hits(population, cohorts, min_contributions, absent)
    )


def max_liars(population: int, cohorts: int, min_contributions: int, absent: float, risk: float) -> int:
    """How many liars, each of whom voids its cohort, leave the chance of no answer within the risk."""
    given_hits = _lost_given_hits(population, cohorts, min_contributions, absent)
    for liars, (first, window) in enumerate(islice(_hits(population, cohorts), 1, population + 1)):
        if window @ given_hits[first : first + len(window)] > risk:
            return liars
    return population


def crowded(population: int, cohorts: int, allowed: int, liars: int) -> float:
    """That a cohort has more liars than are allowed for. At most this: the sum over the cohorts."""
    total = sum(
        number * _more_dealt(population, size, liars, allowed) for size, number in sizes(population, cohorts).items()
    )
    return min(1.0, total)


def mean_contributors(size: int, min_contributions: int, absent: float) -> tuple[float, float]:
    """How many phones of a cohort contribute on average where they are at least the fewest, and where they are not."""
    present = 1 - absent
    is_short = short(size, min_contributions, absent)
    # The binomial distribution of one phone fewer gives partial means without a sum.
    below = size * present * short(size - 1, min_contributions - 1, absent) if min_contributions > 1 else 0.0
    enough = (size * present - below) / (1 - is_short) if is_short < 1 else 0.0
    return enough, below / is_short if is_short > 0 else 0.0


def choose(
    *,
    population: int,
    absent: float,
    lying: int,
    risk: float,
    variance: float,
    cohorts: int | None = None,
    min_contributions: int | None = None,
    liars: int | None = None,
) -> Crowd:
    """The most accurate way to ask, of those that end without an answer no more often than the risk.

    Args:
        population: How many phones are asked.
        absent: How likely each is not to contribute.
        lying: How many lie, wherever they are dealt.
        risk: How likely the query may be to end without an answer, and a cohort to have more liars than are allowed.
        variance: Of the noise that hides a user.
        cohorts: Into how many they are dealt, if that is not to be chosen.
        min_contributions: With how few contributions a cohort may be decrypted, if that is not.
        liars: How many of a cohort may lie, if that is not; then it is the default part of `min_contributions`, or
            more, where `lying` and `risk` ask for more.

    Raises:
        ValueError: There is no such way.
    """
    if population < 1:
        raise ValueError(f"nobody can be asked: population = {population}")
    if cohorts is None:
        cohorts = _bearing(population, lying, risk)
    if not 1 <= cohorts <= population:
        raise ValueError(f"{population} phones cannot be dealt into {cohorts!r} cohorts")
    if liars is None or min_contributions is None:
        refuse_too_many(cohorts)
    expected = _enough_allowed(population, cohorts, lying, risk) if liars is None else 0

    def allowed(min_contributions: int) -> int:
        return max(expected, min_liars(min_contributions)) if liars is None else liars

    if min_contributions is None:
        min_contributions = _most_accurate(
            population, cohorts, absent=absent, lying=lying, allowed=allowed, risk=risk, variance=variance
        )
    return Crowd(cohorts, min_contributions, allowed(min_contributions))


def refuse_too_many(cohorts: int) -> None:
    """Say that nothing can be said of so many.

    Raises:
        ValueError: That.
    """
    if cohorts > MAX_COHORTS:
        raise ValueError(f"what to expect is only said of up to {MAX_COHORTS:,} cohorts: got {cohorts:,}")


def _bearing(population: int, lying: int, risk: float) -> int:
    """The fewest cohorts, an odd number, of which liars void less than half; half of the risk is left to absence."""

    def bears(half: int) -> bool:
        return _more_than_half(hit_cohorts(population, 2 * half + 1, lying)) <= risk / 2

    # As many liars as cohorts are in most of them.
    half = _first(range(min(lying, MAX_COHORTS) // 2, min(lying, MAX_COHORTS // 2) + 1), bears)
    if 2 * half + 1 > population or lying > MAX_COHORTS or not bears(half):
        raise ValueError(
            f"no number of cohorts up to {min(population, MAX_COHORTS)} bears {lying} liars among {population} phones "
            f"with a risk of {risk:g}: expect fewer of them, or say how many cohorts there are"
        )
    return 2 * half + 1


def _most_accurate(
    population: int,
    cohorts: int,
    *,
    absent: float,
    lying: int,
    allowed: Callable[[int], int],
    risk: float,
    variance: float,
) -> int:
    """How many contributions to insist on."""
    smallest = population // cohorts
    most = _max_threshold(population, cohorts, absent, lying, risk)
    if most < allowed(most) + 2:
        raise ValueError(
            f"of cohorts of {smallest} phones {most} may be counted on with a risk of {risk:g}, and {allowed(most)} of "
            f"those may lie: two honest ones more are needed; absent = {absent:g}, cohorts = {cohorts}"
        )
    if cohorts == 1:
        return most
    at_levels = (_threshold(smallest, absent, level) for level in _LEVELS)
    tried = {most} | {threshold for threshold in at_levels if allowed(threshold) + 2 <= threshold < most}

    def noise(min_contributions: int) -> float:
        """Of the sum, with what scaling adds, as if phones differed no more than by their noise."""
        is_short = short(smallest, min_contributions, absent)
        return (
            share_variance(variance, min_contributions, allowed(min_contributions))
            * (1 + is_short)
            / max(1 - is_short, _LEVELS[0])
        )

    return min(tried, key=noise)


def _enough_allowed(population: int, cohorts: int, lying: int, risk: float) -> int:
    """The fewest liars to allow for in each cohort, such that more are as unlikely as the risk."""
    return _first(range(lying + 1), lambda allowed: crowded(population, cohorts, allowed, lying) <= risk)


def _max_threshold(population: int, cohorts: int, absent: float, lying: int, risk: float) -> int:
    """The most contributions to insist on; 0 if there is no such number."""
    hit = hit_cohorts(population, cohorts, lying)
    if _more_than_half(hit) > risk:  # what is not borne anyway is no reason to insist on fewer contributions
        hit = hit_cohorts(population, cohorts, 0)

    def is_too_many(min_contributions: int) -> bool:
        return float(hit @ _lost_given_hits(population, cohorts, min_contributions, absent)) > risk

    return _first(range(1, population // cohorts + 2), is_too_many) - 1


def _threshold(size: int, absent: float, level: float) -> int:
    """The most contributions to insist on that a cohort of this size misses no more often than this."""
    return _first(range(1, size + 2), lambda min_contributions: short(size, min_contributions, absent) > level) - 1


def _first(numbers: range, holds: Callable[[int], bool]) -> int:
    """The first number of which it holds, where it holds of all after it; the last of them, if of none."""
    low, high = numbers[0], numbers[-1]
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _hits(population: int, cohorts: int) -> Iterator[tuple[int, Floats]]:
    """How many cohorts have a liar, when no phone lies, when one does, and so on.

    Each time the first number that is likely, and the chances from there on; the others have none to speak of.
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


def _lost_given_hits(population: int, cohorts: int, min_contributions: int, absent: float) -> Floats:
    """That fewer than half are left, when so many cohorts are void.  # (G + 1,)."""
    is_short = sum(
        number * short(size, min_contributions, absent) / cohorts for size, number in sizes(population, cohorts).items()
    )
    chances = np.ones(cohorts + 1)
    void = np.arange(cohorts // 2 + 1)
    chances[: len(void)] = bdtrc(cohorts // 2 - void, cohorts - void, min(1.0, is_short))
    return chances


def _more_than_half(counts: Floats) -> float:
    """That more than half of the cohorts are left out."""
    return min(1.0, float(counts[(len(counts) - 1) // 2 + 1 :].sum()))


def _more_dealt(population: int, size: int, liars: int, allowed: int, most: int | None = None) -> float:
    """That more than so many of the liars, and at most `most`, are dealt to one cohort: a hypergeometric tail."""
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
    return np.asarray(np.exp(_log_choices(number, counts) + xlogy(counts, chance) + xlog1py(number - counts, -chance)))


def _log_choices(number: int, counts: npt.NDArray[np.int_]) -> Floats:
    return np.asarray(gammaln(number + 1) - gammaln(counts + 1) - gammaln(number - counts + 1))
