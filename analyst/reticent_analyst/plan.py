"""What to expect of a query before anything is spent: errors, aborts, what liars can do, what it costs phones."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from reticent.privacy import Counter, Query, Release, gaussian_sigma, share_variance, thesis_sigma
from reticent.privacy.counts import FAR, MORE, variance_of_normal_median
from reticent.privacy.defaults import min_liars
from reticent.privacy.gaussian import THESIS_EPSILON
from reticent_analyst import cohort_odds
from reticent_analyst.expected_refusals import Refusal, refusals
from reticent_analyst.resource_estimate import Load, load_of

__all__ = ["LEVEL", "Crowding", "Estimate", "Plan", "plan"]

LEVEL = 0.95
"""Of the intervals."""

SURELY = 0.95
"""With this chance liars are in no more cohorts than a plan says."""

_ALL_LEFT = 0.99  # where so likely all cohorts are left, the noise's own distribution says how far estimates stray
_MIN_MEDIAN_COHORTS = 3  # cohorts, of which one stands out
_NORMAL = NormalDist()

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """How good the estimate of one counter will be, if nobody lies.

    Args:
        counter: Its name.
        standard_error: The root of the mean squared error.
        reach: How far the 95 % interval reaches to either side.
        worst: The standard error where just half of the cohorts are left; as above where there is one.
        by_median: The standard error where one cohort stands out, so that the median of the others is taken; None where
            there are fewer than three.
        pull: How far liars who stay unnoticed can move it, in as many cohorts as they will most likely be; infinite
            where nothing bounds it.
    """

    counter: str
    standard_error: float
    reach: float
    worst: float
    by_median: float | None
    pull: float


@dataclass(frozen=True)
class Crowding:
    """What a number of liars can do.

    Args:
        liars: How many there are.
        hit: In how many cohorts they are, most likely at most. Each can void its own.
        hit_on_average: In how many on average.
        lost: That the query ends without an answer, if all of them want that.
        crowded: That some cohort has more of them than the query allows for, so that they know more of its noise than
            was accounted for. At most this.
        bearable: So many liars leave the chance of no answer within the risk, whatever they do.
        allowed: The privacy of all others holds against so many liars or colluders among the fewest contributions of a
            cohort.
        is_default: Whether that is the allowance of a question that says nothing of liars.
    """

    liars: int
    hit: int
    hit_on_average: float
    lost: float
    crowded: float
    bearable: int
    allowed: int
    is_default: bool


@dataclass(frozen=True)
class Plan:
    """What to expect of a query.

    Args:
        query: Which one.
        absent: How likely each phone is taken to be absent.
        risk: How likely the query may be to end without an answer.
        contributors: How many phones will contribute, on average.
        estimates: Of each counter.
        short: That a given cohort, one of the smallest, has too few contributions.
        any_left_out: That any has.
        lost: That fewer than half of the cohorts are left, and so the query is burnt.
        liars: What liars can do.
        load: What it takes of machines.
        refusals: Why phones and key servers with default settings would refuse it; empty if they would not.
        trusted: The standard error that a server that is trusted with everything would need.
        published: The one that theorem 1 of Götz's dissertation would have in this query; None for epsilon above 1.
    """

    query: Query
    absent: float
    risk: float
    contributors: float
    estimates: tuple[Estimate, ...]
    short: float
    any_left_out: float
    lost: float
    liars: Crowding
    load: Load
    refusals: tuple[Refusal, ...]
    trusted: float
    published: float | None

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data; what nothing bounds is null."""
        query = self.query
        asked = {
            "id": query.id,
            "population": query.population,
            "cohorts": query.cohorts,
            "min_contributions": query.min_contributions,
            "liars": query.liars,
            "epsilon": query.epsilon,
            "delta": query.delta,
            "l2_squared": query.l2_squared,
            "l1": query.l1,
            "noise": query.noise,
            "fraction_bits": query.fraction_bits,
            "variance": query.variance,
            "closes_after": query.closes_after,
            "sequence": query.sequence,
        }
        rest = {name: value for name, value in asdict(self).items() if name != "query"}
        rest["estimates"] = [
            {name: None if value == math.inf else value for name, value in asdict(each).items()}
            for each in self.estimates
        ]
        return {"query": asked, **rest}


def plan(
    query: Query,
    *,
    absent: float = 0.0,
    lying: int = 0,
    risk: float = 1e-3,
    key_bits: int = 3072,
    phone_seconds: float | None = None,
) -> Plan:
    """What to expect of a query.

    Args:
        query: Which one.
        absent: How likely each phone is not to contribute, independently of the others.
        lying: How many phones lie.
        risk: How likely the query may be to end without an answer: how many liars are borne is said for it.
        key_bits: The length of the key that phones encrypt under.
        phone_seconds: What `encryption_seconds` measured.

    >>> counters = [Counter("visits", 0, 1)]
    >>> query = Query(
    ...     id="gym", counters=counters, epsilon=1.0, delta=1e-6, l2_squared=1, l1=1, noise="skellam",
    ...     population=10_000, cohorts=1, min_contributions=6_858, liars=343, key_id="k1", closes_after=3600,
    ... )
    >>> foreseen = plan(query, absent=0.3)
    >>> round(foreseen.estimates[0].standard_error, 2), foreseen.lost < 1e-3
    (4.57, True)
    """
    cohort_odds.refuse_too_many(query.cohorts)
    if not 0 <= absent < 1:
        raise ValueError(f"absent is a part of the phones, in [0, 1): got {absent!r}")
    if not 0 <= lying <= query.population:
        raise ValueError(f"among {query.population} phones {lying!r} cannot lie")
    if not 0 < risk < 1:
        raise ValueError(f"risk must lie in (0, 1): got {risk!r}")
    asked = (query.population, query.cohorts, query.min_contributions, absent)
    out = cohort_odds.left_out(*asked)
    contributors = query.population * (1 - absent)
    liars = _crowding(query, absent, lying, risk)
    load = load_of(query, contributors, key_bits, phone_seconds)
    return Plan(
        query=query,
        absent=absent,
        risk=risk,
        contributors=contributors,
        estimates=_estimates(query, absent, out, liars.hit),
        short=cohort_odds.short(min(query.cohort_populations), query.min_contributions, absent),
        any_left_out=1.0 - float(out[0]) if out[0] < 0.5 else float(out[1:].sum()),
        lost=cohort_odds.lost(*asked),
        liars=liars,
        load=load,
        refusals=refusals(query, load.ciphertexts),
        trusted=gaussian_sigma(query.epsilon, query.delta, query.l2),
        published=_published(query, contributors),
    )


def _estimates(query: Query, absent: float, out: Floats, hit: int) -> tuple[Estimate, ...]:
    spread = np.array([_spread(counter, query.l2_squared) for counter in query.counters])
    with_all = _variance(query, absent, 0, spread)
    bearable = query.cohorts // 2
    left = np.array(out[: bearable + 1])
    cases = np.array([_variance(query, absent, number, spread) for number in range(bearable + 1)])  # (G/2 + 1, d)
    mean = left @ cases / left.sum() if left.sum() > 0 else cases[-1]
    is_noise = query.cohorts == 1 or out[0] / left.sum() > _ALL_LEFT
    variance = np.where(is_noise, with_all, mean)
    reach = _reach(query, variance, is_noise=bool(is_noise))
    pull = _pull(query, absent, hit, spread)
    median = _variance_of_median(query, absent, spread)
    return tuple(
        Estimate(
            counter=counter.name,
            standard_error=float(np.sqrt(mean[place])),
            reach=float(reach[place]),
            worst=float(np.sqrt(cases[-1, place])),
            by_median=None if median is None else float(np.sqrt(median[place])),
            pull=float(pull[place]),
        )
        for place, counter in enumerate(query.counters)
    )


def _variance(query: Query, absent: float, left_out: int, spread: Floats) -> Floats:
    """Of the sum over all contributors, when so many cohorts are left out, as `Release` will say it."""
    kept_mean, short_mean = _contributors(query, absent)
    kept = (query.cohorts - left_out) * kept_mean
    return _scaled(query, kept, kept + left_out * short_mean, spread)


def _variance_of_median(query: Query, absent: float, spread: Floats) -> Floats | None:
    """The same, when no cohort is left out and one stands out."""
    if query.cohorts < _MIN_MEDIAN_COHORTS:
        return None
    each, _ = _contributors(query, absent)
    others = query.cohorts - 1
    everyone = query.cohorts * each
    added = others * float(variance_of_normal_median(np.array([others]))[0]) - 1
    one = (query.share_variance + spread) / (others * each)
    return np.asarray(_scaled(query, others * each, everyone, spread) + everyone**2 * one * max(0.0, added))


def _contributors(query: Query, absent: float) -> tuple[float, float]:
    """Of a cohort that is left, and of one that is short, on average."""
    of_sizes = cohort_odds.sizes(query.population, query.cohorts)
    means = [cohort_odds.mean_contributors(size, query.min_contributions, absent) for size in of_sizes]
    kept, few = np.average(means, axis=0, weights=list(of_sizes.values()))
    return max(float(kept), query.min_contributions), float(few)


def _scaled(query: Query, kept: float, everyone: float, spread: Floats) -> Floats:
    """The variance of a sum over some, scaled to all."""
    drawn = (1 / kept - 1 / everyone) * everyone / max(1.0, everyone - 1)
    return np.asarray(everyone**2 * (query.share_variance / kept + spread * drawn))


def _spread(counter: Counter, l2_squared: int) -> float:
    """The largest variance that a counter can have among phones, whatever its mean."""
    low, high = counter.low, counter.high
    middle = (low + high) / 2
    if l2_squared >= (high - middle) * (middle - low) + middle**2:
        return ((high - low) / 2) ** 2
    if low + high == 0 or l2_squared <= -low * high:
        return float(l2_squared)
    return l2_squared - ((l2_squared + low * high) / (low + high)) ** 2


def _reach(query: Query, variance: Floats, *, is_noise: bool) -> Floats:
    names = tuple(counter.name for counter in query.counters)
    foreseen = Release(
        query=query.id,
        counters=names,
        value=(0.0,) * query.size,
        variance=tuple(variance.tolist()),
        noise=query.noise if is_noise else None,
        contributors=query.population,
        epsilon=query.epsilon,
        delta=query.delta,
    )
    return foreseen.interval(LEVEL)[:, 1]


def _crowding(query: Query, absent: float, lying: int, risk: float) -> Crowding:
    population, cohorts, min_contributions = query.population, query.cohorts, query.min_contributions
    hit = cohort_odds.hit_cohorts(population, cohorts, lying)
    return Crowding(
        liars=lying,
        hit=int(np.searchsorted(np.cumsum(hit), SURELY)),
        hit_on_average=float(hit @ np.arange(cohorts + 1)),
        lost=cohort_odds.lost_to_liars(population, cohorts, min_contributions, absent, lying),
        crowded=cohort_odds.crowded(population, cohorts, query.liars, lying),
        bearable=cohort_odds.max_liars(population, cohorts, min_contributions, absent, risk),
        allowed=query.liars,
        is_default=query.liars == min_liars(min_contributions),
    )


def _pull(query: Query, absent: float, hit: int, spread: Floats) -> Floats:
    """How far liars in so many cohorts move the estimates, at most about.

    Those who stay within `FAR` deviations, and `MORE` phones at their bounds, of the median are added up; liars beyond
    have the median taken, and it moves as far as the honest cohorts' quantiles lie apart that they push it over. The
    median also carries the first along.
    """
    if hit == 0:
        return np.zeros(query.size)
    honest = query.cohorts - hit
    if honest <= hit:
        return np.full(query.size, math.inf)
    contributors = query.population * (1 - absent)
    size = contributors / query.cohorts
    deviation = contributors * np.sqrt((query.share_variance + spread) / size)  # of a cohort's mean, times everyone
    median = _NORMAL.inv_cdf(0.5 + hit / (2 * honest))
    most = np.array([min(max(-counter.low, counter.high), query.l2) for counter in query.counters])
    added_up = deviation * hit / query.cohorts * (FAR + median) + hit * MORE * most
    return np.asarray(np.maximum(added_up, deviation * median))


def _published(query: Query, contributors: float) -> float | None:
    """Shares by the printed bound, and otherwise this query."""
    if query.epsilon > THESIS_EPSILON:
        return None
    variance = thesis_sigma(query.epsilon, query.delta, query.l2) ** 2
    return math.sqrt(contributors * share_variance(variance, query.min_contributions, query.liars))
