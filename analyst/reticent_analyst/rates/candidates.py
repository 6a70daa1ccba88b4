"""The counters of one level of a hierarchy: the candidate nodes, and the ads that bid on their contexts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from reticent.hierarchy import Hierarchy, Node
from reticent.privacy import Counter
from reticent.rates import click_counter, counter_prefix, node_counter, view_counter

__all__ = ["MAX_COUNTERS", "BidIndex", "Candidates", "Numbers"]

MAX_COUNTERS = 1_000_000
"""The most counters of one level. Real phones accept far fewer, see `QueryLimits.max_ciphertexts`."""

Numbers: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The counters of a level.

    Args:
        depth: The steps from the root.
        nodes: The candidate nodes, in ascending order.
        ad: The number of the ad of each pair of an ad and a node.
        node: The node of each pair; pairs are sorted by ad, then by node.
    """

    depth: int
    nodes: Numbers
    ad: Numbers
    node: Numbers

    def counters(self, hierarchy: Hierarchy, ads: tuple[str, ...], entries: int, scale: int = 1) -> list[Counter]:
        """The counters: of each node, then the clicks of each pair, then its views without a click.

        Args:
            hierarchy: The hierarchy.
            ads: The names of the ads.
            entries: The most entries of a user.
            scale: The scale of all counters.
        """
        prefix = counter_prefix(hierarchy)
        pairs = [(node, ads[ad]) for ad, node in zip(self.ad.tolist(), self.node.tolist(), strict=True)]
        names = [
            *(node_counter(prefix, node) for node in self.nodes.tolist()),
            *(click_counter(prefix, *pair) for pair in pairs),
            *(view_counter(prefix, *pair) for pair in pairs),
        ]
        return [Counter(name, 0, entries, scale) for name in names]


class BidIndex:
    """The contexts that each ad bids on.

    Args:
        hierarchy: The hierarchy.
        ads: The nodes of each ad, by its name; none for an ad that bids on all contexts.

    Raises:
        ValueError: There is no ad, or a node that the hierarchy does not have.
    """

    def __init__(self, hierarchy: Hierarchy, ads: Mapping[str, Collection[Node]]) -> None:
        self.ads = tuple(ads)
        if not self.ads:
            raise ValueError("an estimate needs at least one ad: got none")
        self._hierarchy = hierarchy
        root = hierarchy.nodes[:1]
        bids = [(number, self._index(ad, node)) for number, ad in enumerate(ads) for node in ads[ad] or root]
        ad, node = np.array(bids, dtype=np.int64).T
        key = ad * len(hierarchy.contexts) + hierarchy.leaf_starts[node]
        end = ad * len(hierarchy.contexts) + hierarchy.leaf_ends[node]
        order = np.lexsort((-end, key))
        key, end = key[order], end[order]
        outer = np.append(True, key[1:] >= np.maximum.accumulate(end)[:-1])  # two nodes are nested or disjoint
        self._starts, self._ends = key[outer], end[outer]  # of disjoint ranges of contexts, by ad

    def root(self) -> Candidates:
        """The counters of the first level: all ads at the root."""
        ads = np.arange(len(self.ads), dtype=np.int32)
        return Candidates(0, np.zeros(1, dtype=np.int32), ads, np.zeros_like(ads))

    def below(self, above: Candidates, nodes: npt.NDArray[np.bool_], pairs: npt.NDArray[np.bool_]) -> Candidates:
        """The counters of the next level.

        Args:
            above: The counters of a level.
            nodes: Whether the children of each candidate node are counted.
            pairs: Whether the ad of each pair is counted at the children of its node, if these are.

        Raises:
            ValueError: There are more than `MAX_COUNTERS`.
        """
        parents, inner = self._hierarchy.parents, above.nodes[nodes]
        children = np.flatnonzero(np.isin(parents, inner)).astype(np.int32)
        kept = pairs & np.isin(above.node, inner)
        first, last = (np.searchsorted(parents, above.node[kept], side) for side in ("left", "right"))
        counts = last - first
        if (number := len(children) + 2 * int(counts.sum())) > MAX_COUNTERS:
            raise ValueError(
                f"level {above.depth + 1} would need up to {number:,} counters, and a query has {MAX_COUNTERS:,} at "
                f"most: raise min_support, limit the depth, or estimate fewer ads at a time"
            )
        node = (np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())).astype(np.int32)
        ad = np.repeat(above.ad[kept], counts)
        here = self._has_bid(ad, node)
        return Candidates(above.depth + 1, children, ad[here], node[here])

    def _has_bid(self, ad: Numbers, node: Numbers) -> npt.NDArray[np.bool_]:
        """Whether each ad bids on a context at or below a node."""
        offset = ad.astype(np.int64) * len(self._hierarchy.contexts)
        number = np.searchsorted(self._starts, offset + self._hierarchy.leaf_ends[node])  # of ranges that begin before
        return np.asarray((number > 0) & (self._ends[number - 1] > offset + self._hierarchy.leaf_starts[node]))

    def _index(self, ad: str, node: Node) -> int:
        try:
            return self._hierarchy.index(node)
        except ValueError as error:
            raise ValueError(f"the ad {ad!r} bids on a node that does not exist: {error}") from error
