"""The revenue of a day's ads with learned rates, beside the revenue without any rates and with exact ones.

The three are compared on the same requests, by the functions with which the ad service selects and a phone chooses.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from reticent.rates import RateTable
from reticent_agg.ads.catalogue import Catalogue
from reticent_agg.ads.index import AdIndex, IndexSettings
from reticent_client.ads.choice import Today, choose
from reticent_client.ads.contexts import UserContexts
from reticent_client.ads.messages import OfferedAd, read_reply
from reticent_sim.world.businesses import Floats
from reticent_sim.world.world import ADS_REQUESTED, UserSearch, World

__all__ = ["AdDay", "Request", "rates_progress", "shown_ads"]

LEVEL = 0.95
"""The level of the interval."""
NOWHERE = "localhost:1"
"""An address, which nobody calls."""


class Request(NamedTuple):
    """A request of an app for an ad.

    Args:
        number: The person.
        day: The day.
        step: The hour.
        query: The search.
        label: The label that the mask released; None if it released none.
    """

    number: int
    day: int
    step: int
    query: str
    label: str | None


@dataclass(frozen=True)
class AdDay:
    """The outcome of the requests of a day with learned rates.

    Args:
        requests: The number of requests.
        shown: The number of ads that are shown.
        precision: The expected share of shown ads with a click.
        coverage: The share of requests with an ad.
        revenue_none: The expected payment of a request, if the service assumes the same rate for every ad.
        revenue_learned: The same with the learned rates.
        revenue_exact: The same with exact rates.
        progress: The part of the way from no rates to exact ones.
        interval: The 95 % interval of the progress, over the people.
    """

    requests: int
    shown: int
    precision: float
    coverage: float
    revenue_none: float
    revenue_learned: float
    revenue_exact: float
    progress: float
    interval: tuple[float, float]


def rates_progress(world: World, requests: Sequence[Request], learned: RateTable | None, *, delta: float) -> AdDay:
    """Compare learned rates with none and with exact ones, on the same requests.

    Args:
        world: The world of the people.
        requests: Their requests, of one day or several.
        learned: The rates that were learned so far; None if there are none.
        delta: The delta of the people's settings for ads.
    """
    people = np.unique([request.number for request in requests], return_inverse=True)[1]
    served = _fixed_replies(world, exact=False), _fixed_replies(world, exact=True)
    service = served[0] if learned is None else _AdReplies(world, world.served_rates(learned))
    ads = [_shown_ads(world, requests, each, delta=delta) for each in (served[0], service, served[1])]
    none, own, exact = (_revenues(world, requests, shown) for shown in ads)
    shown = [(request, ad) for request, ad in zip(requests, ads[1], strict=True) if ad is not None]
    clicks = sum(_click_probability(world, request, ad) for request, ad in shown)
    progress, margin = _ratio(*(np.bincount(people, won).astype(np.float64) for won in (own - none, exact - none)))
    return AdDay(
        requests=len(requests),
        shown=len(shown),
        precision=clicks / max(1, len(shown)),
        coverage=len(shown) / max(1, len(requests)),
        revenue_none=_mean(none),
        revenue_learned=_mean(own),
        revenue_exact=_mean(exact),
        progress=progress,
        interval=(progress - margin, progress + margin),
    )


def shown_ads(world: World, requests: Sequence[Request], table: RateTable, *, delta: float) -> list[str | None]:
    """The ad that the phone of each request shows, if the service has these rates.

    Args:
        world: The world of the people.
        requests: Their requests: those of a person and day in the order of the steps.
        table: The rates that the service has.
        delta: The delta of the people's settings for ads.
    """
    return _shown_ads(world, requests, _AdReplies(world, table), delta=delta)


def _shown_ads(world: World, requests: Sequence[Request], service: _AdReplies, *, delta: float) -> list[str | None]:
    with tempfile.TemporaryDirectory() as folder:
        world.write(Path(folder))
        phones: dict[str, UserContexts] = {}  # by interest, on which a cut depends
        views: defaultdict[tuple[int, int], Counter[str]] = defaultdict(Counter)
        found: list[str | None] = []
        for request in requests:
            citizen, today = world.person(request.number), views[request.number, request.day]
            if citizen.interest not in phones:
                settings = world.settings(request.number, NOWHERE, Path(folder), delta)
                anywhere = {place: place for place in world.locations}
                phones[citizen.interest] = UserContexts(replace(settings, places=anywhere))
            contexts = phones[citizen.interest]
            location = None if request.label is None else citizen.locations[request.label]
            situated = contexts.situated(location, request.query)
            ads = service.ads(situated.node)
            choice = choose(ads, situated.path, contexts.rules, Today(dt.time(request.step), today))
            found.append(None if choice.shown is None else choice.shown.id)
            if choice.shown is not None:
                today[choice.shown.id] += 1
    return found


class _AdReplies:
    """The replies of an ad service with some rates, as a phone reads them."""

    def __init__(self, world: World, table: RateTable) -> None:
        with tempfile.TemporaryDirectory() as folder:
            world.write(Path(folder))
            catalogue = Catalogue.load(Path(folder) / "catalogue.csv", world.hierarchy)
        self._index = AdIndex.build(catalogue, world.hierarchy, table, IndexSettings())
        self._parents = world.hierarchy.parents.tolist()
        self._known: dict[int, tuple[OfferedAd, ...]] = {}

    def ads(self, node: int) -> tuple[OfferedAd, ...]:
        """The ads of a reply for a node."""
        if node not in self._known:
            reply = self._index.format.reply(self._index.encoded(node), ADS_REQUESTED)
            self._known[node] = read_reply(reply, self._parents, node, ADS_REQUESTED)
        return self._known[node]


@lru_cache(maxsize=2)
def _fixed_replies(world: World, *, exact: bool) -> _AdReplies:
    """The replies with exact rates, or without any: the same for all days of a run."""
    return _AdReplies(world, world.exact_rates() if exact else world.served_rates(None))


def _click_probability(world: World, request: Request, ad: str) -> float:
    context = world.context(request.number, request.day, UserSearch(request.step, request.query))
    return world.click_probability(request.number, context, ad)


def _revenues(world: World, requests: Sequence[Request], shown: Sequence[str | None]) -> Floats:
    """(requests,): the expected payment for what is shown at each request."""
    return np.array(
        [
            0.0 if ad is None else world.payments[ad] * _click_probability(world, request, ad)
            for request, ad in zip(requests, shown, strict=True)
        ]
    )


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0


def _ratio(won: Floats, possible: Floats) -> tuple[float, float]:
    """The ratio of two sums over people, and the half width of its interval; zeros if nothing can be won."""
    total = float(possible.sum())
    if total <= 0:
        return 0.0, 0.0
    ratio = float(won.sum()) / total
    deviation = float(np.sqrt(np.square(won - ratio * possible).sum())) / total
    return ratio, NormalDist().inv_cdf((1 + LEVEL) / 2) * deviation
