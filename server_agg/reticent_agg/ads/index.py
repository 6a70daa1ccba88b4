"""The index of ads: which ads promise the most revenue in each node of a hierarchy (Götz, sections 4.2.2 and 4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reticent.arguments import checked_integer
from reticent.hierarchy import Hierarchy
from reticent.rates import RateTable, Resolved, resolve
from reticent.selection import Rates, Revenues, Selection
from reticent.v1 import ads_pb2 as wire
from reticent_agg.ads.catalogue import AdBids, Catalogue
from reticent_agg.ads.messages import EncodedAds, ReplyFormat

__all__ = ["AdIndex", "IndexSettings", "NodeRates"]

MOST_ADS = 1000
MOST_RATES_PER_AD = 64

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class IndexSettings:
    """The rules by which ads are selected, and the size of replies.

    Args:
        max_ads: The most ads in a reply.
        rates_per_ad: The most rates of an ad in a reply: those of its most frequent contexts.
        least_rate: Lower rates count as zero.
        least_support: The views from which on a rate counts; a context with fewer has the rate of its nearest ancestor
            with so many.
    """

    max_ads: int = 50
    rates_per_ad: int = 8
    least_rate: float = 0.0
    least_support: float = 20.0

    def __post_init__(self) -> None:
        for name, number, most in (
            ("the most ads in a reply", self.max_ads, MOST_ADS),
            ("the most rates of an ad", self.rates_per_ad, MOST_RATES_PER_AD),
        ):
            if checked_integer(name, number, 1) > most:
                raise ValueError(f"{name} can be at most {most}: got {number}")
        if not 0 <= self.least_rate <= 1:
            raise ValueError(f"the least rate must lie in [0, 1]: got {self.least_rate}")
        if not 0 <= self.least_support < np.inf:
            raise ValueError(f"the least support must be a number of views: got {self.least_support}")


class NodeRates(NamedTuple):
    """The rates of all ads that bid in a node, by column. A column is a context for which there is an estimate.

    Args:
        nodes: (columns,): the nodes of the columns, at or below the node.
        weights: (columns,): how frequent they are.
        ads: (rates,): the ads' numbers in the catalogue.
        columns: (rates,): which of the columns; they never decrease.
        rates: (rates,): the click-through rates, all above zero.
        lows: (rates,): the lower ends of their intervals.
        highs: (rates,): the upper ends.
        payments: (rates,): what the ads pay there for a click, all above zero.
    """

    nodes: npt.NDArray[np.int32]
    weights: Floats
    ads: Numbers
    columns: Numbers
    rates: Floats
    lows: Floats
    highs: Floats
    payments: Floats

    def select(self, k: int) -> Selection:
        """The ads with the most revenue in all columns together, greedily; by their numbers in the catalogue."""
        shape = int(self.ads.max(initial=-1)) + 1, len(self.nodes)
        revenues = Revenues(Rates(self.ads, self.columns, self.rates * self.payments, shape))
        return revenues.greedy(self.weights, k)


class AdIndex:
    """Ads by node. It never changes, so threads may share it.

    Args:
        catalogue: The ads.
        hierarchy: The hierarchy of contexts.
        table: The click-through rates.
        settings: The rules of the selection.

    Raises:
        ValueError: The rates are of another hierarchy, of none of the ads, or too many.
    """

    def __init__(self, catalogue: Catalogue, hierarchy: Hierarchy, table: RateTable, settings: IndexSettings) -> None:
        resolved = resolve(table, hierarchy, settings.least_support)
        self.catalogue = catalogue
        self.hierarchy = bytes.fromhex(hierarchy.fingerprint)
        self.settings = settings
        self.format = ReplyFormat(bytes.fromhex(table.fingerprint), settings.rates_per_ad)
        self._bids = AdBids(catalogue, hierarchy.parents)
        self._columns = resolved.columns
        self._weights = resolved.weights
        self._spans = _spans(resolved, hierarchy)
        self._is_estimated = ~np.isnan(table.frequency)
        self._set_rates(resolved, _numbers_in(catalogue, table))

    def _set_rates(self, resolved: Resolved, numbers: Numbers) -> None:
        """Keep the rates that count, by column, then by ad."""
        rates = resolved.rate
        (counts,) = np.nonzero((rates > 0) & (rates >= self.settings.least_rate) & (numbers[resolved.ad] >= 0))
        ads = numbers[resolved.ad[counts]]
        order = np.lexsort((ads, resolved.column[counts]))
        self._ads, counts = ads[order], counts[order]
        self._rates, self._lows, self._highs = (each[counts] for each in (rates, resolved.low, resolved.high))
        columns = resolved.column[counts]
        self._payments = self._bids.payments(self._ads, self._columns[columns])
        self._first = np.searchsorted(columns, np.arange(len(self._columns) + 1))

    @property
    def nodes(self) -> int:
        """The number of nodes of the hierarchy."""
        return len(self._is_estimated)

    def candidates(self, node: int) -> NodeRates:
        """The rates with a bid in a node: of the columns at or below it, or of the one column above it."""
        begin, end = self._spans[node]
        rates = slice(self._first[begin], self._first[end])
        ads, nodes, payments = self._ads[rates], self._columns[begin:end], self._payments[rates]
        if not self._is_estimated[node]:  # more specific than the estimate
            nodes = np.array([node], np.int32)
            payments = self._bids.payments(ads, nodes)
        pays = payments > 0
        return NodeRates(
            nodes=nodes,
            weights=self._weights[begin:end],
            ads=ads[pays],
            columns=np.repeat(np.arange(end - begin), np.diff(self._first[begin : end + 1]))[pays],
            rates=self._rates[rates][pays],
            lows=self._lows[rates][pays],
            highs=self._highs[rates][pays],
            payments=payments[pays],
        )

    def encoded(self, node: int) -> EncodedAds:
        """The ads for a node, the best first, ready to send."""
        candidates = self.candidates(node)
        chosen = candidates.select(self.settings.max_ads).ads
        (places,) = np.nonzero(np.isin(candidates.ads, chosen))
        frequent_first = np.lexsort((candidates.columns[places], -candidates.weights[candidates.columns[places]]))
        rates: dict[int, list[wire.Rate]] = {int(ad): [] for ad in chosen}
        for place in places[frequent_first]:
            own = rates[int(candidates.ads[place])]
            if len(own) < self.settings.rates_per_ad:
                own.append(_rate(candidates, place))
        return self.format.encode(self._ad(ad, own) for ad, own in rates.items())

    def _ad(self, ad: int, rates: list[wire.Rate]) -> wire.Ad:
        known = self.catalogue
        return wire.Ad(
            id=known.ads[ad], text=known.texts[ad], category=known.categories[ad], cap=known.caps[ad], rates=rates
        )


def _rate(candidates: NodeRates, place: int) -> wire.Rate:
    return wire.Rate(
        node=candidates.nodes[candidates.columns[place]],
        rate=candidates.rates[place],
        low=candidates.lows[place],
        high=candidates.highs[place],
        payment=candidates.payments[place],
    )


def _spans(resolved: Resolved, hierarchy: Hierarchy) -> Numbers:
    """(nodes, 2): the first column at or below each node, and the end of them; or the one column above it."""
    height = hierarchy.height
    keys = hierarchy.leaf_starts.astype(np.int64) * height + height - 1 - hierarchy.node_levels
    columns = keys[resolved.columns]  # they are in this order
    begins = np.searchsorted(columns, keys)
    ends = np.searchsorted(columns, hierarchy.leaf_ends.astype(np.int64) * height)
    above = resolved.column_of[hierarchy.leaf_starts]
    is_below = begins == ends
    return np.stack([np.where(is_below, above, begins), np.where(is_below, above + 1, ends)], axis=1)


def _numbers_in(catalogue: Catalogue, table: RateTable) -> Numbers:
    """The number in the catalogue of each ad of the table; -1 if it is not there."""
    numbers = {ad: number for number, ad in enumerate(catalogue.ads)}
    found = np.array([numbers.get(ad, -1) for ad in table.ads], np.int64)
    if not (found >= 0).any():
        raise ValueError("the catalogue has none of the ads whose rates are known")
    return found
