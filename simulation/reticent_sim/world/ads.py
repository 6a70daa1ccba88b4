"""A simulated service of ads: people with tastes search in a city, see ads, and click or not.

The world follows the description of section 4.4.1 of Götz's dissertation. Each business is an ad. A context is a
location, the user's interests and a query; queries are texts below categories. Popularity follows power laws
throughout, so that most contexts occur once. The probability of a click depends on all levels of the hierarchy: on the
brand that a query names, on categories, on distance and on interests.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reticent.hierarchy import Decimals, Hierarchy, Tree
from reticent.randomness import seeded
from reticent_sim.ad_log import AdLog
from reticent_sim.world.businesses import (
    GENERAL,
    GENERAL_OF,
    LEAVES,
    PARENTS,
    Businesses,
    City,
    Floats,
    Numbers,
    distance,
    leaf_shares,
    make_businesses,
    make_city,
    power_law,
)
from reticent_sim.world.clicks import REACH, brand_of, click_probabilities, typed_text

PEOPLE, ADS, SEARCHES = 20_000, 1_600, 13
TRAINING = 0.9
"""The share of the log that rates are estimated from: the first in time, as in section 4.4.1."""

PLACES = 3
"""The most positions that a person searches from; most searches come from the first."""
AT_HOME = 0.85
"""The share of a person's other positions that are in the region of the first."""
TASTE = 0.6
"""The share of a person's searches for a category of interest."""
QUERY_TAIL, MAX_QUERIES = 1.7, 2_000
"""The exponent of the frequencies of queries, and the texts of a category. Many occur once, as in figure 4.3(a)."""

SAME_CATEGORY = 0.7
"""The share of ads in the log that are of the category of the query; the others are of its general category."""


class Clicks(Protocol):
    """The reaction of users to ads."""

    def __call__(self, tests: npt.NDArray[np.integer], ads: npt.NDArray[np.integer]) -> Floats:
        """The probability of a click (0 or 1 if it is known) on each ad, in the test context beside it."""


@dataclass(frozen=True)
class AdData:
    """A log that is split in time, and the reaction of the users of its last part to any ad."""

    training: AdLog
    tests: Numbers
    """The contexts of the last part, in the order of time."""
    clicks: Clicks
    payments: Floats
    """(ads,): the payment for a click on each ad."""
    bids: Numbers
    """(ads,): the node that each ad bids on, such as that of its region and general category; 0 is the root."""


def ad_world(seed: int | str, people: int = PEOPLE, ads: int = ADS, searches: float = SEARCHES) -> AdData:
    """A city with people and businesses, and the log of a service that has shown ads to them.

    Each search shows one ad of the region: of the category of the query, or of its general category, near ones more
    often than far ones. A search without such an ad is not in the log.

    Args:
        seed: Everything follows from it.
        people: The number of users.
        ads: The number of businesses, each with one ad.
        searches: The mean number of searches of a user.
    """
    city = make_city(seeded(seed, "ads", "city"))
    businesses = make_businesses(seeded(seed, "ads", "businesses"), city, ads)
    log = _Searches.draw(seeded(seed, "ads", "people"), city, people, searches)
    rng = seeded(seed, "ads", "log")
    shown = _shown(rng, log, city, businesses)
    log, shown = log.only(shown >= 0), shown[shown >= 0]
    clicked = rng.random(len(shown)) < log.clicks(city, businesses, np.arange(len(shown)), shown)
    hierarchy, context = log.contexts(city)
    split = int(TRAINING * len(shown))

    def clicks(tests: npt.NDArray[np.integer], ads: npt.NDArray[np.integer]) -> Floats:
        return log.clicks(city, businesses, np.asarray(tests) + split, np.asarray(ads))

    training = AdLog(
        hierarchy=hierarchy,
        ads=tuple(f"ad{number:05}" for number in range(ads)),
        user=log.person[:split],
        context=context[:split],
        ad=shown[:split],
        clicked=clicked[:split],
        users=people,
    )
    return AdData(training, context[split:], clicks, businesses.payment, _bids(hierarchy, context, shown, ads))


def _bids(hierarchy: Hierarchy, context: Numbers, shown: Numbers, ads: int) -> Numbers:
    """The node of region and general category of each ad, which contains all contexts that it was shown in."""
    bids = np.zeros(ads, dtype=np.int64)
    bids[shown] = hierarchy.at_level(len(hierarchy.sequence) - 1)[context]
    return bids


@dataclass(frozen=True)
class _Searches:
    """Searches in the order of time. All arrays are (searches,)."""

    person: Numbers
    position: Numbers
    interests: Numbers
    """(searches, 2): the one or two categories that the user is interested in."""
    category: Numbers
    query: Numbers
    """Its rank in the category."""

    @classmethod
    def draw(cls, rng: np.random.Generator, city: City, people: int, searches: float) -> _Searches:
        places = _places(rng, city, people)  # (people, PLACES)
        shares = leaf_shares()
        interests = np.sort(rng.choice(len(LEAVES), (people, 2), p=shares), axis=1)
        counts = 3 + np.minimum(rng.pareto(1.5, people) * (searches - 3) / 2, 100).astype(np.int64)
        person = rng.permutation(np.repeat(np.arange(people), counts))  # equally likely at any time
        size = len(person)
        position = places[person, rng.choice(PLACES, size, p=power_law(PLACES, 1.5))]
        own = interests[person, rng.integers(2, size=size)]
        category = np.where(rng.random(size) < TASTE, own, rng.choice(len(LEAVES), size, p=shares))
        query = np.minimum(rng.zipf(QUERY_TAIL, size), MAX_QUERIES) - 1
        return cls(person, position, interests[person], category, query)

    def only(self, kept: npt.NDArray[np.bool_]) -> _Searches:
        """Some of the searches."""
        return _Searches(*(getattr(self, each.name)[kept] for each in fields(self)))

    @property
    def brand(self) -> Numbers:
        """The brand that each query names; -1 if it names the category only."""
        return brand_of(self.query)

    def clicks(self, city: City, businesses: Businesses, numbers: Numbers, ads: Numbers) -> Floats:
        """The probability that each ad is clicked in the search beside it."""
        searches = self.category[numbers], self.brand[numbers], self.interests[numbers]
        return click_probabilities(*searches, city.units[self.position[numbers]], businesses=businesses, ads=ads)

    def contexts(self, city: City) -> tuple[Hierarchy, Numbers]:
        """The hierarchy of all contexts that occur, and the number of the context of each search."""
        one, other = self.interests.T
        sizes = len(city.units), len(LEAVES), len(LEAVES), len(LEAVES), MAX_QUERIES
        keys = np.ravel_multi_index((self.position, one, other, self.category, self.query), sizes)
        known, inverse = np.unique(keys, return_inverse=True)
        texts = city.texts
        contexts, parents = [], dict(PARENTS)
        for position, first, second, category, query in zip(
            *(each.tolist() for each in np.unravel_index(known, sizes)), strict=True
        ):
            typed = typed_text(category, query)
            parents[typed] = LEAVES[category]
            contexts.append((texts[position], "+".join(sorted({LEAVES[first], LEAVES[second]})), typed))
        attributes = Decimals("location"), Tree("interest", 3, PARENTS), Tree("query", 4, parents)
        hierarchy = Hierarchy(attributes, contexts)
        numbers = {context: number for number, context in enumerate(hierarchy.contexts)}
        order = np.fromiter((numbers[context] for context in contexts), np.int64, len(contexts))
        return hierarchy, order[inverse]


def _places(rng: np.random.Generator, city: City, people: int) -> Numbers:
    """(people, PLACES): the positions from which each person searches, the first more often than the others."""
    cumulative = np.cumsum(city.popularity)
    ends = np.append(0, cumulative[np.searchsorted(city.region, np.arange(city.region[-1] + 1), side="right") - 1])
    drawn = rng.random((people, PLACES)) * cumulative[-1]
    home = city.region[np.searchsorted(cumulative, drawn[:, 0], side="right")]
    inside = ends[home][:, None] + rng.random((people, PLACES)) * np.diff(ends)[home][:, None]
    drawn[:, 1:] = np.where(rng.random((people, PLACES - 1)) < AT_HOME, inside[:, 1:], drawn[:, 1:])
    places: Numbers = np.minimum(np.searchsorted(cumulative, drawn, side="right"), len(cumulative) - 1)
    return places


def _shown(rng: np.random.Generator, log: _Searches, city: City, businesses: Businesses) -> Numbers:
    """The ad of each search, near ones more often than far ones; -1 if the region has none of the general category."""
    ads, category = businesses.category.size, businesses.category
    starts = np.searchsorted(city.region, businesses.region)
    counts = np.bincount(city.region)[businesses.region]  # positions that may show each ad
    ad = np.repeat(np.arange(ads), counts)
    position = np.arange(counts.sum()) + np.repeat(starts - np.cumsum(counts) + counts, counts)
    near = 1 / (1 + (distance(city.units[position], businesses.units[ad]) / REACH) ** 2)
    narrow = _one_of(rng, log.position * len(LEAVES) + log.category, position * len(LEAVES) + category[ad], near)
    general = log.position * len(GENERAL) + GENERAL_OF[log.category]
    wide = _one_of(rng, general, position * len(GENERAL) + GENERAL_OF[category[ad]], near)
    chosen = np.where((rng.random(len(general)) < SAME_CATEGORY) & (narrow >= 0), narrow, wide)
    return np.where(chosen < 0, -1, ad[chosen])


def _one_of(rng: np.random.Generator, wanted: Numbers, groups: Numbers, weights: Floats) -> Numbers:
    """The place of a member of each wanted group, drawn by the weights; -1 if the group has none."""
    order = np.argsort(groups, kind="stable")
    cumulative = np.append(0, np.cumsum(weights[order]))
    first, end = (np.searchsorted(groups[order], wanted, side=side) for side in ("left", "right"))
    drawn = cumulative[first] + rng.random(len(wanted)) * (cumulative[end] - cumulative[first])
    chosen = np.clip(np.searchsorted(cumulative, drawn, side="right") - 1, first, np.maximum(end - 1, first))
    return np.where(end > first, order[np.minimum(chosen, len(order) - 1)], -1)
