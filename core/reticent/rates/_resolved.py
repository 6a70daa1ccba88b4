"""The rates of all ads in the lowest nodes with estimates; rare ones are an ancestor's (Götz, section 4.4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from reticent.arguments import checked_not_negative
from reticent.hierarchy import Hierarchy
from reticent.rates._table import Floats, Numbers, RateTable

__all__ = ["MAX_RATES", "Resolved", "resolve"]

Places = npt.NDArray[np.int64]

MAX_RATES = 2 * 10**7
"""The most pairs of an ad and a column that `resolve` gives."""


@dataclass(frozen=True, eq=False)
class Resolved:
    """A sparse matrix of rates: a row for each ad, a column for each of the lowest nodes with an estimate.

    Its elements are sorted by ad, then by column.

    Args:
        table: The table of the rates.
        columns: (columns,) the number of each column's node, ordered by the first context below it. Where only some
            children of a node have an estimate, its column is about the contexts below the others.
        weights: (columns,) the probability of each column's contexts.
        column_of: (contexts,) the column of each context: every context has one.
        ad: (elements,) the ad.
        column: (elements,) the column.
        entry: (elements,) the entry of the table that gives the rate.
    """

    table: RateTable
    columns: Numbers
    weights: Floats
    column_of: Numbers
    ad: Numbers
    column: Numbers
    entry: Numbers

    @cached_property
    def rate(self) -> Floats:
        """(elements,): the rate of the ad in the column."""
        return self.table.rate[self.entry]

    @cached_property
    def low(self) -> Floats:
        """(elements,): the lower end of the rate's interval."""
        return self.table.low[self.entry]

    @cached_property
    def high(self) -> Floats:
        """(elements,): the upper end of the rate's interval."""
        return self.table.high[self.entry]

    @cached_property
    def views(self) -> Floats:
        """(elements,): the estimated number of views that the rate comes from."""
        return self.table.views[self.entry]


def resolve(table: RateTable, hierarchy: Hierarchy, least_support: float) -> Resolved:
    """The rate of every ad in every column: that of the nearest node at or above the column with enough views.

    Args:
        table: The rates.
        hierarchy: Their hierarchy.
        least_support: The fewest views that a rate needs.

    Raises:
        ValueError: These are rates of another hierarchy, or more than `MAX_RATES`.
    """
    checked_not_negative("least_support", least_support)
    table.check(hierarchy)
    columns, weights, column_of = _columns(table, hierarchy)
    keys = _keys(hierarchy, columns)
    # The columns at or below a node are next to each other.
    firsts = np.searchsorted(keys, _keys(hierarchy, np.arange(len(hierarchy.nodes))))
    ends = np.searchsorted(keys, hierarchy.leaf_ends.astype(np.int64) * hierarchy.height)
    entries = np.flatnonzero(table.views >= least_support).astype(np.int32)
    node = table.node[entries]
    starts = table.ad[entries].astype(np.int64) * len(columns) + firsts[node]
    places, nearest = _nearest(starts, (ends - firsts)[node], hierarchy.node_levels[node])
    ad, column = np.divmod(places, len(columns))
    return Resolved(
        table,
        columns,
        weights,
        column_of,
        ad.astype(np.int32),
        column.astype(np.int32),
        entries[nearest],
    )


def _nearest(starts: Places, lengths: Places, levels: Numbers) -> tuple[Places, Numbers]:
    """The places that ranges cover, ascending, and the range of the lowest level over each.

    Of two ranges, one contains the other, or they are apart.
    """
    order = np.lexsort((-levels, starts))
    starts, lengths, levels = starts[order], lengths[order], levels[order]
    covered = np.maximum.accumulate(starts + lengths)
    outer = np.append(True, starts[1:] >= covered[:-1])[: len(starts)]  # within no other range
    total = int(lengths[outer].sum())
    if total > MAX_RATES:
        raise ValueError(
            f"the rates fill {total} pairs of an ad and a column, and at most {MAX_RATES} are resolved: "
            "raise the least support, or estimate fewer levels"
        )
    gaps = starts[outer] - np.cumsum(lengths[outer]) + lengths[outer]  # places left out before each outer range
    positions = starts - np.repeat(gaps, np.diff(np.flatnonzero(outer), append=len(starts)))
    nearest = np.empty(total, dtype=np.int32)
    for level in np.unique(levels)[::-1]:
        here = levels == level
        nearest[_ranges(positions[here], lengths[here])] = np.repeat(order[here].astype(np.int32), lengths[here])
    return _ranges(starts[outer], lengths[outer]), nearest


def _columns(table: RateTable, hierarchy: Hierarchy) -> tuple[Numbers, Floats, Numbers]:
    """The columns, their weights, and the column of each context."""
    estimated = ~np.isnan(table.frequency)
    lowest = np.arange(len(estimated), dtype=np.int32)  # the lowest node with an estimate at or above each node
    for level in range(len(hierarchy.sequence) - 1, -1, -1):
        here = hierarchy.nodes_at(level)
        lowest[here] = np.where(estimated[here], lowest[here], lowest[hierarchy.parents[here]])
    nodes = lowest[hierarchy.leaves]
    columns = np.unique(nodes)
    columns = columns[np.argsort(_keys(hierarchy, columns))]
    numbers = np.empty(len(estimated), dtype=np.int32)
    numbers[columns] = np.arange(len(columns))
    below = np.flatnonzero(estimated)[1:]
    apart = np.bincount(hierarchy.parents[below], table.frequency[below], len(estimated))  # of children with columns
    return columns, np.maximum(table.frequency[columns] - apart[columns], 0.0), numbers[nodes]


def _keys(hierarchy: Hierarchy, nodes: npt.NDArray[np.integer]) -> Places:
    """Numbers that order nodes by the first context below them, then from the root down."""
    height = hierarchy.height
    starts = hierarchy.leaf_starts.astype(np.int64)[nodes]
    keys: Places = starts * height + height - 1 - hierarchy.node_levels[nodes]
    return keys


def _ranges(starts: Places, lengths: Places) -> Places:
    """The numbers from each start on, as many as its length, one range after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)
