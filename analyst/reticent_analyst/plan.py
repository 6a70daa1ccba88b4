"""The expected results of a query before it is announced: errors, the risk of no release, liars, resources."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from reticent.privacy import (
    DEFAULT_BUDGET,
    OUTLIER_DEVIATIONS,
    OUTLIER_PHONES,
    THESIS_EPSILON,
    Counter,
    Query,
    Release,
    gaussian_sigma,
    min_liars,
    share_variance,
    thesis_sigma,
    variance_of_normal_median,
)
from reticent_analyst import cohort_odds
from reticent_analyst.expected_refusals import ExpectedRefusal, expected_refusals
from reticent_analyst.phone_budget import BudgetForecast, forecast_budget
from reticent_analyst.resource_estimate import ResourceEstimate, estimate_resources

__all__ = ["LEVEL", "CounterAccuracy", "LiarRisk", "Plan", "plan"]

LEVEL = 0.95
"""The level of the intervals."""

HIT_QUANTILE = 0.95
"""The quantile that a plan gives of the number of cohorts with a liar."""

SIMILAR = 4
"""A plan warns of counters whose scaled bounds differ by more than this factor."""

_ALL_LEFT = 0.99  # if all cohorts are left with this probability, the interval is that of the noise itself
_MIN_MEDIAN_COHORTS = 3  # of which one is an outlier
_NORMAL = NormalDist()

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CounterAccuracy:
    """The expected errors of one counter's estimate.

    Args:
        counter: The counter's name.
        standard_error: The root of the mean squared error, if nobody lies.
        half_width: Half the width of the 95 % interval.
        error_half_left: The standard error if only half of the cohorts are left; of one cohort, the standard error.
        error_by_median: The standard error if one cohort is an outlier, and the median of the others is taken. None if
            there are fewer than three cohorts.
        max_shift: The most that undetected liars shift the estimate, in as many cohorts as they most likely reach.
            Infinite if nothing bounds it.
    """

    counter: str
    standard_error: float
    half_width: float
    error_half_left: float
    error_by_median: float | None
    max_shift: float


@dataclass(frozen=True)
class LiarRisk:
    """The possible effect of a number of liars.

    Args:
        count: The number of liars.
        cohorts_hit: The 95 % quantile of the number of cohorts with a liar. Each liar can void its own cohort.
        mean_cohorts_hit: The mean of that number.
        no_release: The probability that nothing is released, if all liars want that.
        allowance_exceeded: An upper bound on the probability that some cohort has more liars than `allowed`. They then
            know more of its noise than was accounted for.
        tolerated: The most liars that keep the probability of no release within the risk, whatever they do.
        allowed: The liars or colluders among `min_contributions` against whom the privacy of all others holds.
        is_default: Whether `allowed` is the default of a question that does not set `liars`.
    """

    count: int
    cohorts_hit: int
    mean_cohorts_hit: float
    no_release: float
    allowance_exceeded: float
    tolerated: int
    allowed: int
    is_default: bool


@dataclass(frozen=True)
class Plan:
    """The expected errors, risks and resources of a query.

    Args:
        query: The query.
        absent: The probability that a phone does not contribute.
        risk: The accepted probability that nothing is released.
        contributors: The expected number of contributions.
        accuracy: The expected errors of each counter.
        cohort_short: The probability that a given cohort, one of the smallest, has too few contributions.
        any_cohort_short: The probability that any cohort has.
        no_release: The probability that fewer than half of the cohorts are left, so that the query is burnt.
        liars: What liars can do.
        resources: What the query takes of phones and of the aggregation server.
        budget: What is left of the default budget of a phone that contributed to all earlier queries.
        expected_refusals: The default limits of phones and key servers that the query breaks.
        trusted_error: The standard error of a trusted server's noise, for a counter of scale 1.
        theorem1_error: The same by theorem 1 of Götz's dissertation; None for epsilon above 1.
    """

    query: Query
    absent: float
    risk: float
    contributors: float
    accuracy: tuple[CounterAccuracy, ...]
    cohort_short: float
    any_cohort_short: float
    no_release: float
    liars: LiarRisk
    resources: ResourceEstimate
    budget: BudgetForecast
    expected_refusals: tuple[ExpectedRefusal, ...]
    trusted_error: float
    theorem1_error: float | None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The reasons why the query is not worth its cost, or gets few contributions; a sentence each."""
        return tuple(_warnings(self))

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data. An infinite number is null."""
        query = self.query
        plain_query = {
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
        rest["accuracy"] = [
            {name: None if value == math.inf else value for name, value in asdict(each).items()}
            for each in self.accuracy
        ]
        return {"query": plain_query, **rest, "warnings": list(self.warnings)}


def plan(
    query: Query,
    *,
    absent: float = 0.0,
    lying: int = 0,
    risk: float = 1e-3,
    key_bits: int = 3072,
    phone_seconds: float | None = None,
    earlier: Iterable[Query] = (),
) -> Plan:
    """Compute the plan of a query.

    Args:
        query: The query.
        absent: The probability that a phone does not contribute, independently of the others.
        lying: The number of phones that lie.
        risk: The accepted probability that nothing is released; it decides how many liars are tolerated.
        key_bits: The length of the key that phones encrypt under.
        phone_seconds: The result of `encryption_seconds`, if it was measured.
        earlier: The analyst's earlier queries on which the same phones have spent budget.

    >>> counters = [Counter("visits", 0, 1)]
    >>> query = Query(
    ...     id="gym", counters=counters, epsilon=1.0, delta=1e-6, l2_squared=1, l1=1, noise="skellam",
    ...     population=10_000, cohorts=1, min_contributions=6_858, liars=343, key_id="k1", closes_after=3600,
    ... )
    >>> expected = plan(query, absent=0.3)
    >>> round(expected.accuracy[0].standard_error, 2), expected.no_release < 1e-3
    (4.57, True)
    """
    cohort_odds.check_cohorts(query.cohorts)
    if not 0 <= absent < 1:
        raise ValueError(f"absent must lie in [0, 1): got {absent!r}")
    if not 0 <= lying <= query.population:
        raise ValueError(f"lying must lie between 0 and the population, {query.population}: got {lying!r}")
    if not 0 < risk < 1:
        raise ValueError(f"risk must lie in (0, 1): got {risk!r}")
    odds = (query.population, query.cohorts, query.min_contributions, absent)
    short_cohorts = cohort_odds.short_cohorts(*odds)
    contributors = query.population * (1 - absent)
    liars = _liar_risk(query, absent, lying, risk)
    resources = estimate_resources(query, contributors, key_bits, phone_seconds)
    return Plan(
        query=query,
        absent=absent,
        risk=risk,
        contributors=contributors,
        accuracy=_accuracy(query, absent, short_cohorts, liars.cohorts_hit),
        cohort_short=cohort_odds.short_probability(min(query.cohort_populations), query.min_contributions, absent),
        any_cohort_short=1.0 - float(short_cohorts[0]) if short_cohorts[0] < 0.5 else float(short_cohorts[1:].sum()),
        no_release=cohort_odds.no_release(*odds),
        liars=liars,
        resources=resources,
        budget=forecast_budget(query, earlier),
        expected_refusals=expected_refusals(query, resources.ciphertexts),
        trusted_error=gaussian_sigma(query.epsilon, query.delta, query.l2),
        theorem1_error=_theorem1_error(query, contributors),
    )


def _accuracy(query: Query, absent: float, short_cohorts: Floats, hit: int) -> tuple[CounterAccuracy, ...]:
    spread = np.array([_spread(counter, query.l2_squared) for counter in query.counters])
    scales = np.array([counter.scale for counter in query.counters], dtype=np.float64)
    with_all = _variance(query, absent, 0, spread) / scales**2
    half = query.cohorts // 2
    left = np.array(short_cohorts[: half + 1])
    cases = (
        np.array([_variance(query, absent, number, spread) for number in range(half + 1)]) / scales**2
    )  # (G/2 + 1, d)
    mean = left @ cases / left.sum() if left.sum() > 0 else cases[-1]
    is_noise = query.cohorts == 1 or short_cohorts[0] / left.sum() > _ALL_LEFT
    half_width = _half_width(query, np.where(is_noise, with_all, mean), is_noise=bool(is_noise))
    max_shift = _max_shift(query, absent, hit, spread) / scales
    median = _variance_of_median(query, absent, spread)
    return tuple(
        CounterAccuracy(
            counter=counter.name,
            standard_error=float(np.sqrt(mean[place])),
            half_width=float(half_width[place]),
            error_half_left=float(np.sqrt(cases[-1, place])),
            error_by_median=None if median is None else float(np.sqrt(median[place])) / counter.scale,
            max_shift=float(max_shift[place]),
        )
        for place, counter in enumerate(query.counters)
    )


def _variance(query: Query, absent: float, left_out: int, spread: Floats) -> Floats:
    """The variance of a sum over all contributors if so many cohorts are left out, as in `estimate`; scaled."""
    kept_mean, short_mean = _contributors(query, absent)
    kept = (query.cohorts - left_out) * kept_mean
    return _scaled(query, kept, kept + left_out * short_mean, spread)


def _variance_of_median(query: Query, absent: float, spread: Floats) -> Floats | None:
    """The variance if no cohort is left out and one is an outlier, for scaled counters."""
    if query.cohorts < _MIN_MEDIAN_COHORTS:
        return None
    each, _ = _contributors(query, absent)
    others = query.cohorts - 1
    everyone = query.cohorts * each
    added = others * float(variance_of_normal_median(np.array([others]))[0]) - 1
    one = (query.share_variance + spread) / (others * each)
    return np.asarray(_scaled(query, others * each, everyone, spread) + everyone**2 * one * max(0.0, added))


def _contributors(query: Query, absent: float) -> tuple[float, float]:
    """The mean number of contributors of a cohort that is left, and of one that is short."""
    of_sizes = cohort_odds.cohort_sizes(query.population, query.cohorts)
    means = [cohort_odds.mean_contributors(size, query.min_contributions, absent) for size in of_sizes]
    kept, few = np.average(means, axis=0, weights=list(of_sizes.values()))
    return max(float(kept), query.min_contributions), float(few)


def _scaled(query: Query, kept: float, everyone: float, spread: Floats) -> Floats:
    """The variance of a sum over some, scaled to all."""
    drawn = (1 / kept - 1 / everyone) * everyone / max(1.0, everyone - 1)
    return np.asarray(everyone**2 * (query.share_variance / kept + spread * drawn))


def _spread(counter: Counter, l2_squared: int) -> float:
    """The largest variance that a scaled counter can have among phones, whatever its mean."""
    low, high = counter.scaled
    middle = (low + high) / 2
    if l2_squared >= (high - middle) * (middle - low) + middle**2:
        return ((high - low) / 2) ** 2
    if low + high == 0 or l2_squared <= -low * high:
        return float(l2_squared)
    return l2_squared - ((l2_squared + low * high) / (low + high)) ** 2


def _half_width(query: Query, variance: Floats, *, is_noise: bool) -> Floats:
    names = tuple(counter.name for counter in query.counters)
    expected = Release(
        query=query.id,
        counters=names,
        value=(0.0,) * query.size,
        variance=tuple(variance.tolist()),
        noise=query.noise if is_noise else None,
        contributors=query.population,
        epsilon=query.epsilon,
        delta=query.delta,
        scales=tuple(counter.scale for counter in query.counters),
    )
    return expected.interval(LEVEL)[:, 1]


def _liar_risk(query: Query, absent: float, lying: int, risk: float) -> LiarRisk:
    population, cohorts, min_contributions = query.population, query.cohorts, query.min_contributions
    hit = cohort_odds.hit_cohorts(population, cohorts, lying)
    return LiarRisk(
        count=lying,
        cohorts_hit=int(np.searchsorted(np.cumsum(hit), HIT_QUANTILE)),
        mean_cohorts_hit=float(hit @ np.arange(cohorts + 1)),
        no_release=cohort_odds.no_release_with_liars(population, cohorts, min_contributions, absent, lying),
        allowance_exceeded=cohort_odds.allowance_exceeded(population, cohorts, query.liars, lying),
        tolerated=cohort_odds.tolerated_liars(population, cohorts, min_contributions, absent, risk),
        allowed=query.liars,
        is_default=query.liars == min_liars(min_contributions),
    )


def _max_shift(query: Query, absent: float, hit: int, spread: Floats) -> Floats:
    """The most, about, that liars in so many cohorts shift the scaled estimates.

    Cohorts within `OUTLIER_DEVIATIONS` deviations, and `OUTLIER_PHONES` phones at their bounds, of the median are added
    up. Beyond that, the median is taken: it shifts by the distance between the honest cohorts' quantiles that liars
    push it over. The first limit moves along with the median.
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
    most = np.array([min(counter.most, query.l2) for counter in query.counters])
    added_up = deviation * hit / query.cohorts * (OUTLIER_DEVIATIONS + median) + hit * OUTLIER_PHONES * most
    return np.asarray(np.maximum(added_up, deviation * median))


def _warnings(plan: Plan) -> Iterator[str]:
    query = plan.query
    for counter, accuracy in zip(query.counters, plan.accuracy, strict=True):
        most = plan.contributors * min(counter.most, query.l2) / counter.scale
        if accuracy.half_width >= most:
            yield (
                f"the 95 % interval of {counter.name!r}, ± {accuracy.half_width:,.0f}, exceeds all that can be "
                f"counted, {most:,.0f}: ask more phones, allow a larger epsilon, or set smaller bounds"
            )
    largest = max(counter.most for counter in query.counters)
    small = [counter.name for counter in query.counters if counter.most * SIMILAR < largest]
    if small:
        names = ", ".join(map(repr, small[:3])) + (f" and {len(small) - 3} others" if len(small) > 3 else "")
        yield (
            f"all counters get the same noise, and the bounds of {names} are more than {SIMILAR} "
            f'times smaller than the largest: scaling = "balanced" gives each counter the same relative error'
        )
    if plan.budget.is_exhausted:
        yield (
            f"a phone with the default budget ({DEFAULT_BUDGET.epsilon:g}, {DEFAULT_BUDGET.delta:g}) that contributed "
            f"to all earlier queries has spent up to ({plan.budget.epsilon_spent:g}, {plan.budget.delta_spent:g}) and "
            f"declines this query"
        )


def _theorem1_error(query: Query, contributors: float) -> float | None:
    """The error of this query with noise by the bound as printed in the dissertation."""
    if query.epsilon > THESIS_EPSILON:
        return None
    variance = thesis_sigma(query.epsilon, query.delta, query.l2) ** 2
    return math.sqrt(contributors * share_variance(variance, query.min_contributions, query.liars))
