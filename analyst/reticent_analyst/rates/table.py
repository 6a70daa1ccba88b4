"""From the released counts of all levels to a table of click-through rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reticent.hierarchy import Hierarchy
from reticent.privacy import Query, Release
from reticent_analyst.rates.candidates import Candidates, Numbers
from reticent_analyst.rates.consistency import EXACT, Estimates, Floats, Indices, consistent

__all__ = ["CountedLevel", "PairRates", "ScaledCounts", "frequencies", "rate_intervals", "rates_of", "scaled"]


class ScaledCounts(NamedTuple):
    """Counts as if all phones of the population had contributed.

    Args:
        value: The counts.
        noise: The variances of their noise.
        sampling: Bounds on the variances of their sampling errors, from absent phones.
    """

    value: Floats
    noise: Floats
    sampling: Floats

    @property
    def variance(self) -> Floats:
        """The variances of all errors."""
        return self.noise + self.sampling

    def consistent(self, parent: Indices, depth: Indices) -> Estimates:
        """The consistent counts, with variances that hold whether the same phones are absent at all levels or not.

        If other phones are absent at each level, all errors are independent. If the same ones are, their entries are
        missing in consistent counts as well, and only the noise is reduced.
        """
        value, variance = consistent(self.value, self.variance, parent, depth)
        noise = consistent(self.value, self.noise, parent, depth).variance
        return Estimates(value, np.maximum(variance, noise + self.sampling))


@dataclass(frozen=True, eq=False)
class CountedLevel:
    """The released counts of a level, as if all phones of the population had contributed.

    Args:
        candidates: The nodes and pairs that were counted.
        entries: The counts of the nodes' entries.
        clicks: The counts of clicks of each pair.
        others: The counts of views without a click.
        seeded: Whether anybody can replay the noise.
    """

    candidates: Candidates
    entries: ScaledCounts
    clicks: ScaledCounts
    others: ScaledCounts
    seeded: bool

    @property
    def views(self) -> ScaledCounts:
        """The counts of views of each pair, with or without a click."""
        return ScaledCounts(*(one + other for one, other in zip(self.clicks, self.others, strict=True)))

    @classmethod
    def of(cls, candidates: Candidates, query: Query, release: Release, population: int, most: int) -> CountedLevel:
        """The counts of a release.

        Args:
            candidates: The nodes and pairs, whose `counters` the release has.
            query: The query.
            release: Its release.
            population: The population that the counts are scaled to.
            most: The most entries of a user.
        """
        released = 1 - len(release.cohorts_left_out) / query.cohorts
        counts = scaled(release, population, most, released)
        nodes, pairs = len(candidates.nodes), len(candidates.ad)
        ends = np.array([nodes, nodes + pairs])
        entries, clicks, others = map(ScaledCounts, *(np.split(array, ends) for array in counts))
        return cls(candidates, entries, clicks, others, release.seeded)


@dataclass(frozen=True, eq=False)
class PairRates:
    """The click-through rates of pairs of an ad and a node, sorted by ad, then by node.

    Args:
        ad: The number of the ad of each pair.
        node: The number of the node.
        rate: The rate.
        low: The lower end of its interval.
        high: The upper end.
        views: The views, with or without a click.
    """

    ad: Numbers
    node: Numbers
    rate: Floats
    low: Floats
    high: Floats
    views: Floats


def scaled(release: Release, population: int, entries: int, released: float = 1.0) -> ScaledCounts:
    """The totals over the whole population, if the phones that contributed are a random part of it.

    Other phones may be absent at each level, so levels are comparable only per contributor. The sampling variance is
    the largest mean square: that of phones with all `entries` in one counter. The same phones are absent from all
    counts of a level, but with this bound, counts may be combined as if their errors were independent: no phone has
    more entries in all of them than in one.

    Args:
        release: The release.
        population: The population.
        entries: The most entries of a phone.
        released: The share of the cohorts that were decrypted; the others' phones are like absent ones.
    """
    phones = release.contributors
    value = np.array(release.value) * (population / phones)
    mean = np.clip(value / population, 1 / phones, entries)  # a count of 0 may have missed a phone
    drawn = max(0.0, 1 / (phones * released) - 1 / population) * population**3 / max(1, population - 1)
    return ScaledCounts(value, np.array(release.variance) * (population / phones) ** 2, drawn * entries * mean)


def frequencies(levels: Sequence[CountedLevel], hierarchy: Hierarchy) -> Floats:
    """The frequency of each node, from consistent counts; NaN for a node that was not counted.

    No frequency is negative, and those of children sum to their parent's: they are the nearest such numbers to the
    counts. The positive noise of many empty siblings is not left to take a part from the others.
    """
    nodes = np.concatenate([each.candidates.nodes for each in levels]).astype(np.int64)
    depth = np.repeat([each.candidates.depth for each in levels], [len(each.candidates.nodes) for each in levels])
    parent = np.searchsorted(nodes, hierarchy.parents[nodes]) - (depth == 0)
    value, variance = _stacked([each.entries for each in levels]).consistent(parent, depth)
    value[0] = max(1.0, value[0])
    for number in range(1, depth.max() + 1):
        here = depth == number
        value[here] = _nearest_parts(Estimates(value[here], variance[here]), parent[here], value)
    frequency = np.full(len(hierarchy.nodes), np.nan)
    frequency[nodes] = np.minimum(value / value[0], 1.0)  # a child may have all, and more by rounding
    return frequency


def _nearest_parts(counts: Estimates, parent: npt.NDArray[np.intp], totals: Floats) -> Floats:
    """The nearest numbers of at least 0 that sum to their parents' totals, in deviations of the counts.

    Siblings lose as many of their variances, except those that end at 0.
    """
    deviations = counts.value / counts.variance
    order = np.lexsort((-deviations, parent))
    value, variance, deviations = counts.value[order], counts.variance[order], deviations[order]
    first, family = np.unique(parent[order], return_index=True, return_inverse=True)[1:]
    sums = [np.cumsum(each) - (np.cumsum(each) - each)[first][family] for each in (value, variance)]
    loss = (sums[0] - totals[parent[order]]) / sums[1]  # if the siblings up to this one are left
    left = np.bincount(family, loss < deviations).astype(np.intp)
    parts = np.maximum(value - loss[first + np.maximum(left, 1) - 1][family] * variance, 0.0)
    return parts[np.argsort(order)]


def rates_of(levels: Sequence[CountedLevel], hierarchy: Hierarchy, level: float) -> PairRates:
    """The click-through rates of all pairs whose views can be told from 0, from consistent counts.

    Args:
        levels: The levels from the root down.
        hierarchy: The hierarchy.
        level: Of the intervals of a depth, the share that is expected to contain the rate among all phones.
    """
    ad = np.concatenate([each.candidates.ad for each in levels]).astype(np.int64)
    node = np.concatenate([each.candidates.node for each in levels]).astype(np.int64)
    depth = np.repeat([each.candidates.depth for each in levels], [len(each.candidates.ad) for each in levels])
    parent = _parents(ad, node, depth, hierarchy)
    counted = [_stacked([each.clicks for each in levels]), _stacked([each.others for each in levels])]
    clicks, others = (each.consistent(parent, depth) for each in counted)
    quantile = _quantiles(np.minimum(_deviations(*counted), _deviations(clicks, others)), depth, level)
    kept = np.flatnonzero(np.isfinite(quantile))
    kept = kept[np.lexsort((node[kept], ad[kept]))]
    clicks, others = (Estimates(each.value[kept], each.variance[kept]) for each in (clicks, others))
    views = clicks.value + others.value
    low, high = rate_intervals(clicks, others, quantile[kept])
    rate = clicks.value / views
    rate, low, high = (np.clip(each, 0.0, 1.0) for each in (rate, low, high))
    return PairRates(ad[kept].astype(np.int32), node[kept].astype(np.int32), rate, low, high, views)


def rate_intervals(clicks: Estimates, others: Estimates, quantile: Floats) -> tuple[Floats, Floats]:
    """The intervals of clicks / (clicks + others), by Fieller's theorem, for independent errors.

    The theorem for independent errors is that of `reticent_analyst.intervals`. Here, clicks are a part of the
    denominator: what they have in common with its error is taken off first, and added to the ends.

    Args:
        clicks: The clicks.
        others: The views without a click. Together, they are more than `quantile` deviations of their error.
        quantile: Half the width of each interval, in standard deviations.
    """
    views, variance = clicks.value + others.value, clicks.variance + others.variance
    common = clicks.variance / variance
    a, s_squared = clicks.value - common * views, quantile**2 * clicks.variance * others.variance / variance
    square = views**2 - quantile**2 * variance
    root = np.sqrt(s_squared * square + quantile**2 * variance * a**2)
    return common + (a * views - root) / square, common + (a * views + root) / square


def _deviations(clicks: Estimates | ScaledCounts, others: Estimates | ScaledCounts) -> Floats:
    """The views, in standard deviations of their error."""
    variance = np.maximum(clicks.variance + others.variance, EXACT)
    return np.asarray((clicks.value + others.value) / np.sqrt(variance))


def _quantiles(deviations: Floats, depth: npt.NDArray[np.intp], level: float) -> Floats:
    """Half the width of each pair's interval, in standard deviations; infinite for a pair that has no rate.

    A pair has a rate if its views can be told from 0, by the step-up procedure of Benjamini and Hochberg (1995) over
    the pairs of its depth. Most pairs of low levels were never seen, so a test of each on its own would find many by
    chance. Of those found, at most (1 - level) / 2 are expected to be such.

    The pairs with the luckiest noise are found, so intervals of `level` on their own would miss more often. These are
    wider, after Benjamini and Yekutieli (2005): of the intervals of a depth, at most 1 - level are expected to miss. A
    pair is found if its interval has ends.

    Args:
        deviations: Those of the views from 0, as counted and when consistent, whichever are fewer: children are counted
            if their parent's noise is large, and a consistent count has a part of it.
        depth: The depth of each pair.
        level: The share of the intervals that contain the rate.
    """
    quantiles = np.full(len(deviations), np.inf)
    for number in np.unique(depth):
        here = depth == number
        own, before, quantile = deviations[here], -1, 0.0
        found = len(own)
        while found not in {0, before}:
            before, quantile = found, NormalDist().inv_cdf(1 - (1 - level) / 2 * found / len(own))
            found = int((own > quantile).sum())
        quantiles[here] = np.where((own > quantile) & (found > 0), quantile, np.inf)
    return quantiles


def _stacked(totals: Sequence[ScaledCounts]) -> ScaledCounts:
    return ScaledCounts(*map(np.concatenate, zip(*totals, strict=True)))


def _parents(
    ad: npt.NDArray[np.int64], node: npt.NDArray[np.int64], depth: npt.NDArray[np.intp], hierarchy: Hierarchy
) -> npt.NDArray[np.intp]:
    """The place of the pair of the same ad and the parent, if all children of it were counted for this ad; else -1."""
    size = len(hierarchy.nodes)
    above = hierarchy.parents[node].astype(np.int64)
    own, wanted = ad * size + node, ad * size + above
    order = np.argsort(own)
    place = order[np.minimum(np.searchsorted(own, wanted, sorter=order), len(own) - 1)]
    found = (own[place] == wanted) & (depth > 0)
    children = np.bincount(hierarchy.parents[1:], minlength=size)
    counted = np.bincount(place[found], minlength=len(own))
    return np.where(found & (counted[place] == children[above]), place, -1)
