"""Explanations of replies, for the operator: the reasons why some ads are sent and others are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reticent.hierarchy import Hierarchy, Node
from reticent.rates import RateTable
from reticent_agg.ads.catalogue import Catalogue
from reticent_agg.ads.index import AdIndex, IndexSettings, SentRate

__all__ = ["ColumnRate", "RankedAd", "ReplyExplanation", "explain"]

NO_BID = "the advertiser does not bid in this context"
NO_RATE = "no rate is known here, nor in an ancestor"
LOW_SUPPORT = "its rates here and in all ancestors have fewer views than the least support"
LOW_RATE = "its rate is lower than the least rate"
NO_GAIN = "it adds nothing: the ads that are sent promise as much in every context"
LOW_GAIN = "it adds less than the last ad that is sent"
_STAGES = (NO_BID, NO_RATE, LOW_SUPPORT, LOW_RATE)
"""The first of these that applies is the reason in one column. The last one of all columns is the reason for a node."""


@dataclass(frozen=True)
class ColumnRate:
    """The rate of an ad in a column.

    Args:
        context: The node of the column.
        frequency: The probability of the column.
        origin: The node whose rate it is: the nearest ancestor with enough views; None for a rate of zero, which
            excepts a context from the rate of the request's node.
        views: The views there.
        rate: The click-through rate.
        low: The lower end of its interval.
        high: The upper end.
        payment: The payment for a click.
    """

    context: str
    frequency: float
    origin: str | None
    views: float
    rate: float
    low: float
    high: float
    payment: float


@dataclass(frozen=True)
class RankedAd:
    """The reason why an ad is in a reply, or is not.

    Args:
        ad: Its name.
        place: Its place in the greedy order, from 1 on; None if it is not in the reply.
        gain: The revenue that it adds to the ads before it, or to all ads of the reply. Of a reserve, that which
            it has on its own.
        reason: Why it is not in the reply.
        rates: Its rates at or below the node, the most important first.
    """

    ad: str
    place: int | None
    gain: float
    reason: str | None
    rates: tuple[ColumnRate, ...]


@dataclass(frozen=True)
class ReplyExplanation:
    """The ads of a reply, and ads that may be missing in it.

    Args:
        node: The generalised context.
        columns: The number of contexts with an estimate at or below it.
        chosen: The ads in the reply, the best first.
        others: The ads that were named.
    """

    node: str
    columns: int
    chosen: tuple[RankedAd, ...]
    others: tuple[RankedAd, ...]


def explain(
    catalogue: Catalogue,
    hierarchy: Hierarchy,
    table: RateTable,
    settings: IndexSettings,
    *,
    node: str,
    ads: int,
    named: Sequence[str] = (),
) -> ReplyExplanation:
    """Explain the reply to a phone.

    Args:
        catalogue: The ads.
        hierarchy: The hierarchy of contexts.
        table: The rates.
        settings: The rules of the selection.
        node: The generalised context, in its text form.
        ads: The number of ads that the phone asks for.
        named: Ads that may not be in the reply.

    Raises:
        ValueError: There is no such node, no such ad, or a reply has never so many ads.
    """
    number = hierarchy.index(Node.parse(node))
    if not 1 <= ads <= settings.max_ads:
        raise ValueError(f"a reply has 1 to {settings.max_ads} ads: got {ads}")
    if unknown := sorted(set(named) - set(catalogue.ads)):
        raise ValueError(f"the catalogue has no ad {unknown[0]!r:.80}")
    index = AdIndex.build(catalogue, hierarchy, table, settings)
    candidates = index.rates_of(number)
    selection = candidates.select(ads)
    explained = _AdReasons(catalogue, hierarchy, table, index, number)
    chosen = [catalogue.ads[ad] for ad in selection.ads]
    return ReplyExplanation(
        node=node,
        columns=len(candidates.nodes),
        chosen=tuple(
            RankedAd(ad, place, float(gain), None, explained.rates(ad))
            for place, (ad, gain) in enumerate(zip(chosen, selection.gains, strict=True), start=1)
        ),
        others=tuple(explained.absence(ad, selection.ads) for ad in named if ad not in chosen),
    )


class _AdReasons:
    """The rates of a node's ads, with their origins."""

    def __init__(
        self,
        catalogue: Catalogue,
        hierarchy: Hierarchy,
        table: RateTable,
        index: AdIndex,
        node: int,
    ) -> None:
        self._catalogue = catalogue
        self._hierarchy = hierarchy
        self._table = table
        self._settings = index.settings
        self._index = index
        self._node = node
        self._candidates = index.rates_of(node)
        self._numbers = {ad: number for number, ad in enumerate(catalogue.ads)}
        self._views: dict[str, dict[int, float]] = {}

    def rates(self, ad: str) -> tuple[ColumnRate, ...]:
        """An ad's rates as a reply has them, the most important first."""
        sent = self._index.sent(self._candidates, self._numbers[ad], self._node)
        return tuple(self._rate(ad, each) for each in sent)

    def absence(self, ad: str, chosen: npt.NDArray[np.intp]) -> RankedAd:
        """The reason why an ad is not in the reply."""
        found = self._candidates
        number = self._numbers[ad]
        if not (found.ads == number).any():
            reasons = [self._reason(ad, int(node)) for node in found.nodes]
            return RankedAd(ad, None, 0.0, max(reasons, key=_STAGES.index), ())
        revenue = found.weights[found.columns] * found.rates * found.payments
        promised = np.zeros(len(found.nodes))  # (columns,): by the chosen ads
        is_chosen = np.isin(found.ads, chosen)
        np.maximum.at(promised, found.columns[is_chosen], revenue[is_chosen])
        own = found.ads == number
        gain = float(np.maximum(revenue[own] - promised[found.columns[own]], 0).sum())
        return RankedAd(ad, None, gain, LOW_GAIN if gain > 0 else NO_GAIN, self.rates(ad))

    def _rate(self, ad: str, sent: SentRate) -> ColumnRate:
        context = str(self._hierarchy.nodes[sent.node])
        if sent.place < 0:
            return ColumnRate(context, float(sent.frequency), None, 0.0, 0.0, 0.0, 0.0, 0.0)
        found = self._candidates
        origin, views = next(self._supported(ad, int(found.nodes[found.columns[sent.place]])))
        return ColumnRate(
            context=context,
            frequency=float(sent.frequency),
            origin=str(self._hierarchy.nodes[origin]),
            views=views,
            rate=float(found.rates[sent.place]),
            low=float(found.lows[sent.place]),
            high=float(found.highs[sent.place]),
            payment=float(found.payments[sent.place]),
        )

    def _reason(self, ad: str, node: int) -> str:
        """The reason why an ad has no rate in a column that counts."""
        bids = dict(self._catalogue.bids.get(self._numbers[ad], ()))
        if bids and not bids.keys() & set(self._ancestors(node)):
            return NO_BID
        if not self._views_of(ad).keys() & set(self._ancestors(node)):
            return NO_RATE
        return LOW_RATE if any(self._supported(ad, node)) else LOW_SUPPORT

    def _supported(self, ad: str, node: int) -> Iterator[tuple[int, float]]:
        """The ancestors with enough views of an ad, the nearest first, with the views."""
        views = self._views_of(ad)
        for each in self._ancestors(node):
            if views.get(each, -1.0) >= self._settings.least_support:
                yield each, views[each]

    def _views_of(self, ad: str) -> dict[int, float]:
        """The views of an ad, by the nodes for which there is a rate."""
        if ad not in self._views:
            table = self._table
            own = table.ad == table.ads.index(ad) if ad in table.ads else np.zeros(len(table.ad), bool)
            self._views[ad] = dict(zip(table.node[own].tolist(), table.views[own].tolist(), strict=True))
        return self._views[ad]

    def _ancestors(self, node: int) -> Iterator[int]:
        while node >= 0:
            yield node
            node = int(self._hierarchy.parents[node])
