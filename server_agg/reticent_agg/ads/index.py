"""The index of ads: which ads promise the most revenue in each node of a hierarchy (Götz, sections 4.2.2 and 4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from reticent.arguments import checked_integer
from reticent.hierarchy import Hierarchy
from reticent.rates import RateTable, Resolved, resolve
from reticent.selection import Rates, Revenues, Selection
from reticent.storage.arrays import ArrayFormat, Arrays
from reticent.storage.documents import DocumentFormat
from reticent.v1 import ads_pb2 as wire
from reticent_agg.ads.catalogue import AdBids, Catalogue
from reticent_agg.ads.messages import EncodedAds, ReplyFormat
from reticent_agg.errors import BadAdFolder

__all__ = ["AdIndex", "IndexSettings", "NodeRates", "SentRate"]

MOST_ADS = 1000
MOST_RATES_PER_AD = 64

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int32]

_FORMAT = ArrayFormat(
    DocumentFormat("reticent-ad-index", 1, "an index of ads", BadAdFolder), ("<f8", "<f4", "<i4", "<i8"), 2**30
)


@dataclass(frozen=True)
class IndexSettings:
    """The rules by which ads are selected, and the size of replies.

    Args:
        max_ads: The most ads in a reply.
        rates_per_ad: The most rates of an ad in a reply.
        least_rate: Lower rates count as zero.
        least_support: The views from which on a rate counts; a context with fewer has the rate of its nearest ancestor
            with so many.
    """

    max_ads: int = 50
    rates_per_ad: int = 16
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


class SentRate(NamedTuple):
    """A rate in a reply.

    Args:
        node: Its node.
        place: Its place among the rates of the request's node; -1 for a rate of zero.
        frequency: How frequent the contexts at or below its node are.
    """

    node: int
    place: int
    frequency: float


class NodeRates(NamedTuple):
    """The rates of all ads that bid in a node, by column. A column is a context for which there is an estimate.

    Args:
        nodes: (columns,): the nodes of the columns, at or below the node.
        weights: (columns,): how frequent they are; equal if no estimate says that a user is in any of them.
        ads: (rates,): the ads' numbers in the catalogue.
        columns: (rates,): which of the columns; they never decrease.
        rates: (rates,): the click-through rates, all above zero.
        lows: (rates,): the lower ends of their intervals.
        highs: (rates,): the upper ends.
        payments: (rates,): what the ads pay there for a click, all above zero.
    """

    nodes: Numbers
    weights: Floats
    ads: Numbers
    columns: npt.NDArray[np.intp]
    rates: Floats
    lows: npt.NDArray[np.float32]
    highs: npt.NDArray[np.float32]
    payments: Floats

    def select(self, k: int) -> Selection:
        """The ads with the most revenue in all columns together, greedily; by their numbers in the catalogue.

        When no other ad adds revenue, reserves follow: the other ads by the revenue that each has on its own. A phone
        needs them where its user's rules remove the ads before.
        """
        revenue = self.rates * self.payments
        shape = int(self.ads.max(initial=-1)) + 1, len(self.nodes)
        found = Revenues(Rates(self.ads, self.columns, revenue, shape)).greedy(self.weights, k)
        if len(found.ads) == k:
            return found
        own = np.bincount(self.ads, self.weights[self.columns] * revenue, shape[0])
        own[found.ads] = 0.0
        (others,) = np.nonzero(own)
        reserves = others[np.argsort(-own[others], kind="stable")][: k - len(found.ads)]
        return Selection(np.append(found.ads, reserves), np.append(found.gains, own[reserves]))

    def sent(self, ad: int, node: int, most: int, *, bids_on_all: bool) -> list[SentRate]:
        """The rates of an ad in a reply, the most important first.

        An ad that bids on all contexts below the node has a rate of the node itself, for the contexts that the reply
        does not list: the weighted median. Then follow the columns with the most revenue that this rate misses.

        Args:
            ad: The ad's number in the catalogue.
            node: The node.
            most: The most rates.
            bids_on_all: Whether the ad bids on all contexts below the node.
        """
        (places,) = np.nonzero(self.ads == ad)
        place_of = np.full(len(self.nodes), -1)
        place_of[self.columns[places]] = places
        revenue = np.zeros(len(self.nodes))
        revenue[self.columns[places]] = self.rates[places] * self.payments[places]
        general = self._general_column(revenue, node) if bids_on_all or node in self.nodes else None
        base = 0.0 if general is None else revenue[general]
        missed = np.abs(revenue - base)
        order = np.lexsort((-self.weights, -missed * self.weights))
        listed = [column for column in order.tolist() if missed[column] > 0 and self.nodes[column] != node]
        found = [SentRate(int(self.nodes[column]), int(place_of[column]), self.weights[column]) for column in listed]
        if base > 0 and general is not None:
            found.insert(0, SentRate(node, int(place_of[general]), float(self.weights.sum())))
        return found[:most]

    def _general_column(self, revenue: Floats, node: int) -> int:
        """The column whose revenue stands for those that are not listed."""
        (own,) = np.nonzero(self.nodes == node)  # it has the contexts without an estimate of their own
        if own.size:
            return int(own[0])
        order = np.argsort(revenue, kind="stable")
        sums = np.cumsum(self.weights[order])
        return int(order[np.searchsorted(sums, sums[-1] / 2)])


class AdIndex:
    """Ads by node. It never changes, so threads may share it.

    Args:
        header: The settings, and the fingerprints of the hierarchy and of the rates.
        arrays: All else, as `build` computes it.
    """

    def __init__(self, header: Mapping[str, Any], arrays: Arrays) -> None:
        self._header, self._arrays = header, arrays
        self.settings = IndexSettings(**header["settings"])
        self.hierarchy = bytes.fromhex(header["hierarchy"])
        self.format = ReplyFormat(bytes.fromhex(header["rates"]), self.settings.rates_per_ad)
        self._bids = AdBids(*(arrays[f"bid_{each.name}"] for each in fields(AdBids)))
        self._content = arrays["content"].tobytes()

    @classmethod
    def build(cls, catalogue: Catalogue, hierarchy: Hierarchy, table: RateTable, settings: IndexSettings) -> Self:
        """The index of a catalogue.

        Args:
            catalogue: The ads.
            hierarchy: The hierarchy of contexts.
            table: The click-through rates.
            settings: The rules of the selection.

        Raises:
            ValueError: The rates are of another hierarchy, of none of the ads, or too many.
        """
        resolved = resolve(table, hierarchy, settings.least_support)
        bids = AdBids.of(catalogue, hierarchy.parents)
        content = [_encoded(catalogue, ad) for ad in range(len(catalogue.ads))]
        ends = np.cumsum([0, *map(len, content)])
        header = {"settings": asdict(settings), "hierarchy": hierarchy.fingerprint, "rates": table.fingerprint}
        arrays = {
            "columns": resolved.columns,
            "weights": resolved.weights,
            "spans": _spans(resolved, hierarchy),
            "estimated": (~np.isnan(table.frequency)).astype(np.int32),
            **_rates_by_column(resolved, _numbers_in(catalogue, table), bids, settings.least_rate),
            **{f"bid_{each.name}": getattr(bids, each.name) for each in fields(AdBids)},
            "content": np.frombuffer(b"".join(content) + bytes(-ends[-1] % 4), np.int32),  # a file has no bytes
            "ends": ends,
        }
        return cls(header, arrays)

    @property
    def is_empty(self) -> bool:
        """Whether no rate counts, so that no ad is ever sent."""
        return not len(self._arrays["ads"])

    def save(self, path: Path) -> None:
        """Write the index into a file."""
        _FORMAT.write(path, self._header, self._arrays)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the index from a file; `BadAdFolder` if it is damaged, foreign or of another version."""
        return cls(*_FORMAT.read(path))

    @property
    def nodes(self) -> int:
        """The number of nodes of the hierarchy."""
        return len(self._arrays["estimated"])

    def rates_of(self, node: int) -> NodeRates:
        """The rates with a bid in a node: of the columns at or below it, or of the one column above it."""
        known = self._arrays
        begin, end = known["spans"][node]
        first = known["first"][begin : end + 1]
        rates = slice(first[0], first[-1])
        ads, nodes, payments = known["ads"][rates], known["columns"][begin:end], known["payments"][rates]
        if not known["estimated"][node]:  # more specific than the estimate
            nodes = np.array([node], np.int32)
            payments = self._bids.at(ads, nodes)
        pays = payments > 0
        weights = known["weights"][begin:end]
        return NodeRates(
            nodes=nodes,
            weights=weights if weights.any() else np.ones_like(weights),
            ads=ads[pays],
            columns=np.repeat(np.arange(end - begin), np.diff(first))[pays],
            rates=known["rates"][rates][pays],
            lows=known["lows"][rates][pays],
            highs=known["highs"][rates][pays],
            payments=payments[pays],
        )

    def encoded(self, node: int) -> EncodedAds:
        """The ads for a node, the best first, ready to send."""
        found = self.rates_of(node)
        chosen = found.select(self.settings.max_ads).ads
        ends = self._arrays["ends"]
        return self.format.encode(
            self._content[ends[ad] : ends[ad + 1]]
            + wire.Ad(rates=(_rate(found, sent) for sent in self.sent(found, ad, node))).SerializeToString()
            for ad in chosen.tolist()
        )

    def sent(self, found: NodeRates, ad: int, node: int) -> list[SentRate]:
        """The rates of an ad in the reply for a node."""
        pays = self._bids.at(np.array([ad], np.int32), np.array([node], np.int32))[0] > 0
        return found.sent(ad, node, self.settings.rates_per_ad, bids_on_all=bool(pays))


def _encoded(catalogue: Catalogue, ad: int) -> bytes:
    """An ad without rates. Its encoded rates may follow it: protobuf merges what follows a message into it."""
    return wire.Ad(
        id=catalogue.ads[ad], text=catalogue.texts[ad], category=catalogue.categories[ad], cap=catalogue.caps[ad]
    ).SerializeToString()


def _rate(found: NodeRates, sent: SentRate) -> wire.Rate:
    if sent.place < 0:
        return wire.Rate(node=sent.node)
    return wire.Rate(
        node=sent.node,
        rate=found.rates[sent.place],
        low=found.lows[sent.place],
        high=found.highs[sent.place],
        payment=found.payments[sent.place],
    )


def _rates_by_column(resolved: Resolved, numbers: Numbers, bids: AdBids, least_rate: float) -> Arrays:
    """The rates that count, by column, then by ad; and the first rate of each column."""
    rates = resolved.rate
    (counts,) = np.nonzero((rates > 0) & (rates >= least_rate) & (numbers[resolved.ad] >= 0))
    ads = numbers[resolved.ad[counts]]
    order = np.lexsort((ads, resolved.column[counts]))
    ads, counts = ads[order], counts[order]
    columns = resolved.column[counts]
    return {
        "ads": ads,
        "rates": rates[counts],
        "lows": resolved.low[counts].astype(np.float32),
        "highs": resolved.high[counts].astype(np.float32),
        "payments": bids.at(ads, resolved.columns[columns]),
        "first": np.searchsorted(columns, np.arange(len(resolved.columns) + 1)),
    }


def _spans(resolved: Resolved, hierarchy: Hierarchy) -> Numbers:
    """(nodes, 2): the first column at or below each node, and the end of them; or the one column above it."""
    height = hierarchy.height
    keys = hierarchy.leaf_starts.astype(np.int64) * height + height - 1 - hierarchy.node_levels
    columns = keys[resolved.columns]  # they are in this order
    begins = np.searchsorted(columns, keys)
    ends = np.searchsorted(columns, hierarchy.leaf_ends.astype(np.int64) * height)
    above = resolved.column_of[hierarchy.leaf_starts]
    is_below = begins == ends
    return np.stack([np.where(is_below, above, begins), np.where(is_below, above + 1, ends)], axis=1).astype(np.int32)


def _numbers_in(catalogue: Catalogue, table: RateTable) -> Numbers:
    """The number in the catalogue of each ad of the table; -1 if it is not there."""
    numbers = {ad: number for number, ad in enumerate(catalogue.ads)}
    found = np.array([numbers.get(ad, -1) for ad in table.ads], np.int32)
    if not (found >= 0).any():
        raise ValueError("the catalogue has none of the ads whose rates are known")
    return found
