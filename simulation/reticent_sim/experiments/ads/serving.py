"""A service that selects ads for generalised contexts, phones that choose among them, and the reaction of users.

The service is that of section 4.2: it knows the node that a phone sends, the frequency of each context and the rates.
The phone chooses by its exact context. Server-only and client-only personalization are those of section 4.4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reticent.rates import RateTable, resolve
from reticent.selection import Rates, Revenues
from reticent_sim.world.ads import AdData

Indices: TypeAlias = npt.NDArray[np.integer]
Floats: TypeAlias = npt.NDArray[np.float64]

LEVEL, ADS, LEAST_RATE, SUPPORT = 8, 10, 0.3, 2.0
"""The published defaults: the level (4, 2, 2), the ads that are sent, the least rate, the fewest views of a rate."""

NONE = -1
"""Shown where a phone shows no ad."""

QUERY = 2
"""The place of the query among the attributes of a context."""


class Measures(NamedTuple):
    """The results of ads in some test contexts. Without any ad, the precision is not a number."""

    precision: float
    """The share of ads that are clicked."""
    coverage: float
    """The share of contexts with an ad."""
    revenue: float
    """The payment for a context, on average."""


@dataclass(frozen=True)
class AdTrial:
    """Test contexts, and the reaction of their users to ads.

    Args:
        data: The data.
        tests: The places of the contexts among the tests of the data.
    """

    data: AdData
    tests: Indices

    @cached_property
    def contexts(self) -> Indices:
        """(tests,): the contexts."""
        return self.data.tests[self.tests]

    def measure(self, shown: Indices) -> Measures:
        """The results of showing an ad in each context, or `NONE`."""
        (places,) = np.nonzero(shown != NONE)
        if not len(places):
            return Measures(float("nan"), 0.0, 0.0)
        clicks = self.data.clicks(self.tests[places], shown[places])
        paid = float((clicks * self.data.payments[shown[places]]).sum())
        return Measures(float(clicks.mean()), len(places) / len(shown), paid / len(shown))


class _SameKnowledge(NamedTuple):
    """The test contexts about which the service knows the same."""

    places: Indices
    """Of the tests."""
    columns: Indices
    """The columns in which they may be."""
    weights: Floats
    """The frequency of the columns."""


class SimulatedService:
    """The rates of all ads in all columns, which are the lowest nodes with an estimate, and their frequencies.

    Args:
        data: The payments, the bids and the hierarchy.
        table: The rates.
        support: The fewest views of a rate; a context with fewer takes that of an ancestor.
    """

    def __init__(self, data: AdData, table: RateTable, support: float) -> None:
        hierarchy = data.training.hierarchy
        self._data, self._hierarchy = data, hierarchy
        resolved = resolve(table, hierarchy, support)
        self._columns, self._column_of, self._weights = resolved.columns, resolved.column_of, resolved.weights
        starts, ends = hierarchy.leaf_starts, hierarchy.leaf_ends
        node, bid = resolved.columns[resolved.column], data.bids[resolved.ad]
        kept = (starts[bid] <= starts[node]) & (ends[node] <= ends[bid]) & (resolved.rate > 0)
        shape = len(data.training.ads), len(resolved.columns)
        self._rates = Rates(resolved.ad[kept], resolved.column[kept], resolved.rate[kept], shape)

    def revenues(self, least_rate: float) -> Revenues:
        """The expected revenue of each ad in each column where its rate is at least this."""
        return Revenues.of(self._rates, self._data.payments, least_rate=least_rate)

    def hybrid(
        self, trial: AdTrial, cut: Indices, revenues: Revenues, most: Sequence[int], *, rates_per_ad: int | None = None
    ) -> list[Indices]:
        """The ads that phones choose among at most so many that the service sends, for each of these numbers.

        Args:
            trial: The contexts.
            cut: (contexts,): the node that each context of the hierarchy generalises to.
            revenues: Of the service.
            most: The numbers of ads.
            rates_per_ad: The most rates that the service sends with an ad, chosen as `reticent_agg.ads` does. If None,
                the phone knows all rates.
        """
        return self._chosen(trial, self._by_node(trial, cut), revenues, most, rates_per_ad)

    def client_only(self, trial: AdTrial, revenues: Revenues, most: Sequence[int]) -> list[Indices]:
        """The same if the service knows the query only."""
        return self._chosen(trial, self._by_query(trial), revenues, most, None)

    def server_only(self, trial: AdTrial, cut: Indices, revenues: Revenues) -> Indices:
        """The ad that a service sends alone, which every phone shows."""
        shown = np.full(len(trial.tests), NONE)
        for places, columns, weights in self._by_node(trial, cut):
            shown[places] = [*revenues.columns(columns).greedy(weights, 1).ads, NONE][0]
        return shown

    def _chosen(
        self,
        trial: AdTrial,
        groups: Iterator[_SameKnowledge],
        revenues: Revenues,
        most: Sequence[int],
        rates_per_ad: int | None,
    ) -> list[Indices]:
        known = self._best(trial, revenues)
        found = [np.full(len(trial.tests), NONE) for _ in most]
        for places, columns, weights in groups:
            if len(columns) == 1:  # the service knows as much as the phone
                for shown in found:
                    shown[places] = known[places]
                continue
            below = revenues.columns(columns)
            ads: Indices = below.greedy(weights, max(most)).ads
            if rates_per_ad is not None:
                ads = _with_reserves(below, weights, ads, max(most))
            if not len(ads):
                continue
            own, place = np.unique(self._column_of[trial.contexts[places]], return_inverse=True)
            if rates_per_ad is None:
                revenue = revenues.columns(own).matrix.rows(ads)  # (ads, own columns)
            else:
                revenue = _sent(below.matrix.rows(ads), weights, self._bids_on_all(ads, columns), rates_per_ad)
                revenue = revenue[:, np.searchsorted(columns, own)]
            for shown, k in zip(found, most, strict=True):
                best = revenue[:k].argmax(axis=0)  # the first of equal ones
                earns = revenue[:k].max(axis=0) > 0
                shown[places] = np.where(earns, ads[best], NONE)[place]
        return found

    def _bids_on_all(self, ads: Indices, columns: Indices) -> npt.NDArray[np.bool_]:
        """(ads,): whether each bids on all of some columns."""
        starts, ends = self._hierarchy.leaf_starts, self._hierarchy.leaf_ends
        nodes, bids = self._columns[columns], self._data.bids[ads]
        return np.asarray((starts[bids] <= starts[nodes].min()) & (ends[nodes].max() <= ends[bids]))

    def _best(self, trial: AdTrial, revenues: Revenues) -> Indices:
        """(tests,): the best ad in the column of each test."""
        own, place = np.unique(self._column_of[trial.contexts], return_inverse=True)
        matrix = revenues.columns(own).matrix
        order = np.lexsort((matrix.ads, -matrix.values, matrix.contexts))
        first = order[np.flatnonzero(np.diff(matrix.contexts[order], prepend=-1))]
        best = np.full(len(own), NONE)
        best[matrix.contexts[first]] = np.where(matrix.values[first] > 0, matrix.ads[first], NONE)
        return best[place]

    def _by_node(self, trial: AdTrial, cut: Indices) -> Iterator[_SameKnowledge]:
        starts, ends = self._hierarchy.leaf_starts, self._hierarchy.leaf_ends
        nodes, group = np.unique(cut[trial.contexts], return_inverse=True)
        order = np.argsort(group, kind="stable")
        for node, places in zip(nodes, np.split(order, np.cumsum(np.bincount(group))[:-1]), strict=True):
            columns = np.unique(self._column_of[starts[node] : ends[node]])
            yield _SameKnowledge(places, columns, _or_equal(self._weights[columns]))

    def _by_query(self, trial: AdTrial) -> Iterator[_SameKnowledge]:
        contexts = self._hierarchy.contexts
        queries = np.unique([context[QUERY] for context in contexts], return_inverse=True)[1]  # (contexts,)
        records = np.bincount(self._data.training.context, minlength=len(contexts)).astype(np.float64)
        of_query = np.argsort(queries, kind="stable")
        starts = np.searchsorted(queries[of_query], np.arange(queries.max() + 2))
        wanted = queries[trial.contexts]
        for query in np.unique(wanted):
            own = of_query[starts[query] : starts[query + 1]]
            columns, column = np.unique(self._column_of[own], return_inverse=True)
            weights = np.bincount(column, records[own])
            yield _SameKnowledge(np.flatnonzero(wanted == query), columns, _or_equal(weights.astype(np.float64)))


def _or_equal(weights: Floats) -> Floats:
    """The weights; all equal where nothing is known about any of them."""
    return weights if weights.any() else np.ones(len(weights))


def _with_reserves(revenues: Revenues, weights: Floats, ads: Indices, most: int) -> Indices:
    """The ads, then others by the revenue that each has on its own, up to a number."""
    matrix = revenues.matrix
    own = np.bincount(matrix.ads, weights[matrix.contexts] * matrix.values, matrix.shape[0])
    own[ads] = 0.0
    (others,) = np.nonzero(own)
    return np.append(ads, others[np.argsort(-own[others], kind="stable")][: most - len(ads)])


def _sent(revenue: Floats, weights: Floats, general: npt.NDArray[np.bool_], most: int) -> Floats:
    """(ads, columns): the revenue as the phone knows it from the rates that a service sends.

    An ad that bids on all columns has a general rate, the weighted median. The others are those of the columns with the
    most revenue that the general rate misses.

    Args:
        revenue: (ads, columns): the revenue by all rates.
        weights: (columns,): their frequency.
        general: (ads,): whether an ad has a general rate.
        most: The most rates of an ad.
    """
    ascending = np.argsort(revenue, axis=1, kind="stable")
    reached = np.cumsum(weights[ascending], axis=1)
    median = (reached < reached[:, -1:] / 2).sum(axis=1)
    base = np.take_along_axis(revenue, np.take_along_axis(ascending, median[:, None], 1), 1) * general[:, None]
    missed = np.abs(revenue - base)
    frequent = np.argsort(-weights, kind="stable")
    order = frequent[np.argsort(-(missed * weights)[:, frequent], axis=1, kind="stable")]
    listed = np.take_along_axis(missed, order, 1) > 0
    listed &= np.cumsum(listed, axis=1) <= most - (base > 0)
    is_sent = np.empty_like(listed)
    np.put_along_axis(is_sent, order, listed, axis=1)
    return np.where(is_sent, revenue, base)
