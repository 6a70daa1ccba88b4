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

    def counters(self, hierarchy: Hierarchy, ads: tuple[str, ...], entries: int) -> list[Counter]:
        """The counters: of each node, then the clicks of each pair, then its views without a click.

        Args:
            hierarchy: The hierarchy.
            ads: The names of the ads.
            entries: The most entries of a user.
        """
        prefix = counter_prefix(hierarchy)
        pairs = [(node, ads[ad]) for ad, node in zip(self.ad.tolist(), self.node.tolist(), strict=True)]
        names = [
            *(node_counter(prefix, node) for node in self.nodes.tolist()),
            *(click_counter(prefix, *pair) for pair in pairs),
            *(view_counter(prefix, *pair) for pair in pairs),
        ]
        return [Counter(name, 0, entries) for name in names]


class BidIndex:
    """The nodes that each ad bids on.

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
        bids = [
            (number, self._index(ad, node)) for number, ad in enumerate(ads) for node in ads[ad] or hierarchy.nodes[:1]
        ]
        self._ad, self._node = np.array(bids, dtype=np.int64).T

    def candidates(self, depth: int, nodes: Numbers) -> Candidates:
        """The counters of candidate nodes of one level: all ads with a bid on a context at or below each.

        Raises:
            ValueError: There are more than `MAX_COUNTERS`.
        """
        hierarchy = self._hierarchy
        starts, ends = hierarchy.leaf_starts, hierarchy.leaf_ends
        first = np.searchsorted(ends[nodes], starts[self._node], side="right")  # the candidates that overlap each bid
        last = np.searchsorted(starts[nodes], ends[self._node], side="left")
        counts = np.maximum(last - first, 0)
        if (number := len(nodes) + 2 * int(counts.sum())) > MAX_COUNTERS:
            raise ValueError(
                f"level {depth} would need up to {number:,} counters, and a query has {MAX_COUNTERS:,} at most: "
                f"raise min_support, limit the depth, or estimate fewer ads at a time"
            )
        place = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        pairs = np.unique(np.repeat(self._ad, counts) * len(hierarchy.nodes) + nodes[place])
        ad, node = np.divmod(pairs, len(hierarchy.nodes))
        return Candidates(depth, nodes, ad.astype(np.int32), node.astype(np.int32))

    def _index(self, ad: str, node: Node) -> int:
        try:
            return self._hierarchy.index(node)
        except ValueError as error:
            raise ValueError(f"the ad {ad!r} bids on a node that does not exist: {error}") from error
