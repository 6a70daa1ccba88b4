"""The rates that an ad service has: exact ones, learned ones, and assumed ones where nothing is known yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from reticent.rates import RateTable
from reticent_sim.world.businesses import Floats, Numbers
from reticent_sim.world.town import ATTENTION, Town

__all__ = ["ASSUMED_RATE", "combined", "exact", "served"]

ASSUMED_RATE, ASSUMED_VIEWS = 0.12, 150
"""The rate of each ad before anything is known, and the number of views that it counts for."""
EXACT_VIEWS = 1e6
"""The views of an exact rate: more than any support."""


def exact(town: Town, frequency: Floats) -> RateTable:
    """The exact rates of all ads in all contexts that they bid on, and above.

    Args:
        town: The town.
        frequency: (contexts,): the probability of each context; all are above 0.
    """
    hierarchy = town.hierarchy
    total = hierarchy.sums(frequency)
    rates = [hierarchy.sums(frequency * appeal) / total for appeal in ATTENTION * town.appeal.T]  # of each ad
    ad, node = np.nonzero([_above(town, name) for name in town.ad_names])
    rate = np.minimum(np.array(rates)[ad, node], 1.0)
    return replace(
        _nothing_known(town),
        frequency=np.minimum(total, 1.0),
        ad=ad.astype(np.int32),
        node=node.astype(np.int32),
        rate=rate,
        low=rate,
        high=rate,
        views=np.full(len(rate), EXACT_VIEWS),
        epsilon=math.inf,
        source="exact",
    )


def combined(tables: Sequence[RateTable]) -> RateTable:
    """Several estimates in one: of each rate, the mean whose weights are the squared numbers of views.

    The noise of each estimate is about the same, so the standard error of a rate falls with the number of views. That
    is the best weighting where noise is most of the error.

    Phones choose from their whole logs each time, so a view may be in several estimates. The intervals hold all the
    same: their half-widths are added, as if the errors were equal. The number of views is the sum over the estimates.

    Args:
        tables: The estimates, of one hierarchy.
    """
    size = len(tables[0].frequency)
    keys = np.concatenate([table.ad.astype(np.int64) * size + table.node for table in tables])
    pairs, place = np.unique(keys, return_inverse=True)
    rates, lows, highs, views = (
        np.concatenate([getattr(table, name) for table in tables]) for name in ("rate", "low", "high", "views")
    )
    weights = views**2 / np.bincount(place, views**2)[place]
    rate = np.bincount(place, weights * rates).astype(np.float64)
    margin = np.bincount(place, weights * (highs - lows) / 2)
    frequencies = np.array([table.frequency for table in tables])
    known = ~np.isnan(frequencies)
    with np.errstate(invalid="ignore"):
        frequency = np.where(known, frequencies, 0).sum(axis=0) / known.sum(axis=0)  # no number where none is known
    return replace(
        tables[-1],
        frequency=frequency,
        ad=(pairs // size).astype(np.int32),
        node=(pairs % size).astype(np.int32),
        rate=rate,
        low=np.maximum(rate - margin, 0),
        high=np.minimum(rate + margin, 1),
        views=np.bincount(place, views).astype(np.float64),
        epsilon=sum(table.epsilon for table in tables),
        delta=sum(table.delta for table in tables),
        seeded=any(table.seeded for table in tables),
    )


def served(town: Town, learned: RateTable | None) -> RateTable:
    """The rates that the ad service loads.

    The service sends no ad without a rate. So its operator begins with an assumed rate, the same for all ads. It counts
    for some views, also beside a learned rate, which a few lucky clicks may have made too large.

    Args:
        town: The town.
        learned: The learned rates; None if there are none.
    """
    table = _nothing_known(town) if learned is None else learned
    size = len(table.frequency)
    keys = table.ad.astype(np.int64) * size + table.node
    pairs = np.union1d(keys, _bids(town, ~np.isnan(table.frequency)))
    place = np.searchsorted(pairs, keys)
    rate, views, low, high = np.zeros(len(pairs)), np.zeros(len(pairs)), np.zeros(len(pairs)), np.ones(len(pairs))
    rate[place], views[place], low[place], high[place] = table.rate, table.views, table.low, table.high
    rate = (rate * views + ASSUMED_RATE * ASSUMED_VIEWS) / (views + ASSUMED_VIEWS)
    return replace(
        table,
        ad=(pairs // size).astype(np.int32),
        node=(pairs % size).astype(np.int32),
        rate=rate,
        low=np.minimum(low, rate),
        high=np.maximum(high, rate),
        views=views + ASSUMED_VIEWS,
    )


def _nothing_known(town: Town) -> RateTable:
    """A table without any rate."""
    entries = {name: np.zeros(0) for name in ("rate", "low", "high", "views")}
    return RateTable(
        hierarchy=town.hierarchy.fingerprint,
        ads=town.ad_names,
        frequency=np.append(1.0, np.full(len(town.hierarchy.nodes) - 1, np.nan)),
        ad=np.zeros(0, dtype=np.int32),
        node=np.zeros(0, dtype=np.int32),
        **entries,
        epsilon=0.0,
        delta=0.0,
        level=0.95,
        seeded=False,
        source="assumed",
    )


def _bids(town: Town, known: npt.NDArray[np.bool_]) -> Numbers:
    """The pairs of each ad and the known nodes among the root and those that it bids on, as one number each."""
    nodes = [[0, *map(town.hierarchy.index, bids)] for bids in town.bids.values()]
    return np.array([ad * len(known) + node for ad, own in enumerate(nodes) for node in own if known[node]])


def _above(town: Town, ad: str) -> npt.NDArray[np.bool_]:
    """(nodes,): whether an ad bids on a context at or below each node."""
    leaves = np.zeros(len(town.hierarchy.contexts))
    for node in town.bids[ad]:
        leaves[town.hierarchy.leaves_below(town.hierarchy.index(node))] = 1
    return np.asarray(town.hierarchy.sums(leaves) > 0)
