"""The greedy choice of ads that maximizes expected revenue: algorithm 6 and theorem 8 of Götz's dissertation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from reticent.arguments import checked_integer, checked_not_negative
from reticent.selection._rates import Floats, Integers, Rates, not_negative, ranges

__all__ = ["Revenues", "Selection", "best", "greedy"]

FIRST_POOL = 2**12
"""The ads that are looked at first, those with the largest gains while none is selected."""

FIRST_BLOCK = 256
"""The most gains that are computed anew at once, at first in each round."""

GROWTH = 4
"""Both grow by this factor when they are not enough."""

ROWS = 2**12
"""Ads whose first gains are computed at once."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Ads that were selected for a generalised context, the best first.

    The first j of them are the selection of j ads.

    Args:
        ads: Their numbers.
        gains: The expected revenue that each adds to that of the ads before it.
    """

    ads: Integers
    gains: Floats


@dataclass(frozen=True, eq=False)
class Revenues:
    """The expected revenue of each ad in each context: an index for the selections of many generalised contexts.

    The expected revenue of a set of ads in a context is that of its best ad, which the phone shows.

    Args:
        matrix: Payment times rate, a matrix (ads, contexts).
    """

    matrix: Rates

    @classmethod
    def of(
        cls,
        rates: Rates | ArrayLike,
        bids: Rates | ArrayLike,
        *,
        least_rate: float = 0.0,
        support: Rates | ArrayLike | None = None,
        least_support: float = 0.0,
    ) -> Revenues:
        """The expected revenue for the given rates and bids. A matrix is anything that `Rates.of` takes.

        Args:
            rates: The click-through rate of each ad in each context.
            bids: The payment for a click on each ad; or a matrix of the payments in each context, where advertisers
                bid on contexts.
            least_rate: Smaller rates count as 0.
            support: The views that each rate was estimated from.
            least_support: Rates from fewer views count as 0.

        Raises:
            ValueError: An argument has the wrong shape, a negative number, or one that is not finite.
        """
        matrix = Rates.of(rates)
        if isinstance(bids, Rates) or np.ndim(bids) == 2:
            revenue = Rates.of(bids).at_entries_of(matrix) * 1.0
        else:
            revenue = not_negative("bids", bids, matrix.shape[0]).take(matrix.ads)
        with np.errstate(over="ignore"):
            revenue *= matrix.values
        if not np.isfinite(revenue.max(initial=0.0)):
            raise ValueError("bids times rates must be finite: a product is too large for a float")
        if checked_not_negative("least_rate", least_rate):
            revenue[matrix.values < least_rate] = 0.0
        if checked_not_negative("least_support", least_support):
            if support is None:
                raise ValueError("least_support needs support, a matrix of the views of each rate: got None")
            revenue[Rates.of(support).at_entries_of(matrix) < least_support] = 0.0
        return cls(matrix.with_values(revenue))

    def columns(self, contexts: slice | ArrayLike) -> Revenues:
        """The expected revenue in some contexts, as `Rates.columns` takes them."""
        return Revenues(self.matrix.columns(contexts))

    def greedy(self, weights: ArrayLike, k: int, *, alpha: float = 0.0) -> Selection:
        """Select at most k ads, each with the greatest gain at its turn; of equal gains, the ad of the smaller number.

        Gains only shrink while ads are selected, so an earlier gain is a bound. A gain is computed anew only if its
        bound reaches the greatest gain that is known.

        Args:
            weights: The probability of each context, given the generalised one.
            k: The most ads.
            alpha: The cost of sending an ad. The selection ends when no gain exceeds it.
        """
        matrix = self.matrix
        most = checked_integer("k", k, 1)
        cost = checked_not_negative("alpha", alpha)
        probabilities = not_negative("weights", weights, matrix.shape[1])
        bounds = _first_gains(matrix, probabilities)  # (rows,), one for each ad with entries
        covered = np.zeros(matrix.shape[1])  # the weighted revenue of the ads that are selected
        size = FIRST_POOL
        pool, floor = _largest(bounds, size)
        rows: list[int] = []
        gains: list[float] = []
        while len(rows) < min(most, len(bounds)):
            row = _next(matrix, probabilities, covered, bounds, pool)
            if max(bounds[row], floor) <= cost:
                break
            if bounds[row] <= floor:  # a row outside the pool may have as much
                size *= GROWTH
                pool, floor = _largest(bounds, size)
                continue
            rows.append(row)
            gains.append(float(bounds[row]))
            bounds[row] = 0.0
            entries = slice(matrix.starts[row], matrix.starts[row] + matrix.lengths[row])
            places = matrix.contexts[entries]
            covered[places] = np.maximum(covered[places], probabilities[places] * matrix.values[entries])
        return Selection(matrix.ads[matrix.starts[rows]], np.array(gains))

    def revenue(self, ads: ArrayLike, weights: ArrayLike) -> float:
        """The expected revenue of these ads."""
        probabilities = not_negative("weights", weights, self.matrix.shape[1])
        return float(self.matrix.rows(ads).max(axis=0, initial=0.0) @ probabilities)


def greedy(
    rates: Rates | ArrayLike,
    weights: ArrayLike,
    bids: Rates | ArrayLike,
    k: int,
    *,
    alpha: float = 0.0,
    least_rate: float = 0.0,
    support: Rates | ArrayLike | None = None,
    least_support: float = 0.0,
) -> Selection:
    """Select at most k ads for a generalised context; see `Revenues.of` and `Revenues.greedy` for the arguments.

    The expected revenue is at least 1 - 1/e of the most that k ads can have (theorem 7), and with alpha, at least
    that part of the revenue of the best set, minus alpha for each of its ads (theorem 8).

    >>> rates = Rates.of([[0.3, 0.0], [0.2, 0.2], [0.0, 0.25]])
    >>> greedy(rates, weights=[0.5, 0.5], bids=[1.0, 1.0, 1.0], k=2).ads.tolist()
    [1, 0]
    """
    revenues = Revenues.of(rates, bids, least_rate=least_rate, support=support, least_support=least_support)
    return revenues.greedy(weights, k, alpha=alpha)


def best(rates: ArrayLike, bids: ArrayLike) -> int | None:
    """The choice of a phone among ads in its exact context: the place of the one with the greatest payment times rate.

    Of equal ones it is the first. It is None if no ad earns anything.
    """
    payments = np.asarray(bids, np.float64)
    revenue = not_negative("rates", rates, payments.size) * not_negative("bids", payments, payments.size)
    return int(revenue.argmax()) if revenue.any() else None


def _first_gains(matrix: Rates, weights: Floats) -> Floats:
    """The gains of all rows while no ad is selected, computed in blocks that fit into a processor's cache."""
    gains = np.empty(len(matrix.starts))
    for first in range(0, len(gains), ROWS):
        starts = matrix.starts[first : first + ROWS]
        entries = slice(starts[0], starts[-1] + matrix.lengths[first : first + ROWS][-1])
        terms = weights.take(matrix.contexts[entries])
        with np.errstate(over="ignore"):
            terms *= matrix.values[entries]
            np.add.reduceat(terms, starts - starts[0], out=gains[first : first + ROWS])
    if not np.isfinite(gains.max(initial=0.0)):
        raise ValueError("weights times revenue must be finite: a sum is too large for a float")
    return gains


def _largest(bounds: Floats, size: int) -> tuple[Integers, float]:
    """The rows with the largest bounds, in their order, and the largest bound of the others."""
    if size >= len(bounds):
        return np.arange(len(bounds)), -1.0
    order = np.argpartition(bounds, -size)
    return np.sort(order[-size:]), float(bounds[order[:-size]].max())


def _next(matrix: Rates, weights: Floats, covered: Floats, bounds: Floats, pool: Integers) -> int:
    """The row of a pool with the greatest gain, the first of equal ones. The bounds that may reach it become gains."""
    within = bounds[pool]
    block = np.array([within.argmax()])  # places in the pool
    found, gain, size = len(pool), -1.0, FIRST_BLOCK
    while block.size:
        within[block] = gains = _gains(matrix, weights, covered, pool[block])
        first = int(gains.argmax())
        if gains[first] >= gain:
            found, gain = int(block[first]), float(gains[first])
        block = np.flatnonzero(within >= gain)
        block = block[(within[block] > gain) | (block < found)]
        if block.size > size:
            block = np.sort(block[np.argpartition(within[block], -size)[-size:]])
            size *= GROWTH
    bounds[pool] = within
    return int(pool[found])


def _gains(matrix: Rates, weights: Floats, covered: Floats, rows: Integers) -> Floats:
    """The gains of some rows."""
    lengths = matrix.lengths[rows]
    entries = ranges(matrix.starts[rows], lengths)
    contexts = matrix.contexts.take(entries)
    gains = weights.take(contexts)
    gains *= matrix.values.take(entries)
    gains -= covered.take(contexts)
    np.maximum(gains, 0.0, out=gains)
    return np.add.reduceat(gains, np.cumsum(lengths) - lengths)
