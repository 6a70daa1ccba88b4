"""The town of a simulated world: its places, the businesses that advertise, and the contexts that can occur."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np

from reticent.hierarchy import Decimals, Hierarchy, Node, Tree
from reticent.randomness import seeded
from reticent_sim.world.businesses import BUSINESS, CATEGORIES, LEAVES, PARENTS, Businesses, City, Floats, make_city
from reticent_sim.world.clicks import brand_of, click_probabilities, typed_text

__all__ = ["ATTENTION", "INTERESTS", "KINDS", "SENSITIVE_QUERIES", "TEXTS", "Site", "Town"]

NEIGHBOURHOODS = 4
HOMES, STREET, OFFICES, EDGE = BLOCKS = range(4)
"""The blocks of a neighbourhood: homes, shops, offices, and the outskirts."""
Site = tuple[int, int]
"""A neighbourhood and a block."""
HOSPITAL_SITE, STATION_SITE = (0, EDGE), (1, EDGE)

GENERALS, LEAVES_EACH = ("cafe", "asian", "shop", "health"), 3
KINDS = [LEAVES.index(leaf) for general in GENERALS for leaf in CATEGORIES[general][:LEAVES_EACH]]
"""The categories of the town's businesses and of searches, by their places in `LEAVES`."""
INTERESTS = tuple(CATEGORIES[general][0] for general in GENERALS)
SENSITIVE_QUERIES = "clinic"
"""The category whose searches are sensitive."""
TEXTS = (0.9, 0.1)
"""The shares of the two texts of a category: one names the category, the other a brand of it."""
SEQUENCE = ((0, 0, 0), (0, 0, 1), (0, 2, 1), (3, 2, 1), (4, 2, 1))
"""The levels of location, interest and query. Below the root is the category of the query, on which ads bid."""

REACH = 15.0
"""The distance in kilometres at which half of the clicks are left."""
ATTENTION = 0.7
"""The mean factor of a person in the probability of a click."""
CAP = 2
"""The most views of an ad by a person a day."""


@dataclass(frozen=True)
class Town:
    """The places, the businesses and the ads of a seed.

    Args:
        seed: Everything follows from it.
        ad_count: The number of ads.
    """

    seed: int
    ad_count: int = field(default=12, kw_only=True)

    def place(self, site: Site) -> str:
        """The location of a site."""
        hood, block = site
        return self._city.texts[len(BLOCKS) * hood + block]

    @cached_property
    def locations(self) -> list[str]:
        """The locations that can occur."""
        sites = product(range(NEIGHBOURHOODS), (HOMES, STREET, OFFICES))
        return [self.place(site) for site in (*sites, HOSPITAL_SITE, STATION_SITE)]

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The contexts that can occur: location, interest and query."""
        texts = {text: LEAVES[kind] for kind, _, text in _queries()}
        tree = {leaf: PARENTS[leaf] for leaf in INTERESTS} | dict.fromkeys(GENERALS, BUSINESS)
        attributes = Decimals("location"), Tree("interest", 3, tree), Tree("query", 2, texts)
        return Hierarchy(attributes, product(self.locations, INTERESTS, texts), SEQUENCE)

    @cached_property
    def ad_names(self) -> tuple[str, ...]:
        """The names of the ads."""
        kinds = [LEAVES[kind].replace(" ", "-") for kind in KINDS]
        return tuple(f"{kinds[ad % len(kinds)]}-{1 + ad // len(kinds)}" for ad in range(self.ad_count))

    @cached_property
    def ads(self) -> list[tuple[str, float, str, str, int, str]]:
        """The rows of the catalogue: name, payment, category, text, most views a day, and the nodes of the bids."""
        kinds = [LEAVES[kind] for kind in self._businesses.category]
        return [
            (name, self.payments[name], kind, f"{kind.capitalize()} at {name}", CAP, ";".join(map(str, bids)))
            for kind, (name, bids) in zip(kinds, self.bids.items(), strict=True)
        ]

    @cached_property
    def payments(self) -> dict[str, float]:
        """The payment for a click on each ad."""
        return dict(zip(self.ad_names, self._businesses.payment.tolist(), strict=True))

    @cached_property
    def bids(self) -> dict[str, list[Node]]:
        """The nodes that each ad bids on: the queries of its general category."""
        nodes = self.hierarchy.nodes[self.hierarchy.nodes_at(len(SEQUENCE) - 1)]
        return {
            name: [node for node in nodes if PARENTS[node.values[2]] == PARENTS[LEAVES[kind]]]
            for name, kind in zip(self.ad_names, self._businesses.category, strict=True)
        }

    def catalogue_csv(self) -> str:
        """The catalogue of the ad service."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["ad", "payment", "category", "text", "cap", "contexts"])
        writer.writerows(self.ads)
        return text.getvalue()

    @cached_property
    def appeal(self) -> Floats:
        """(contexts, ads): the probability of a click by a person who attends to every ad."""
        units = dict(zip(self._city.texts, self._city.units, strict=True))
        queries = {text: (kind, rank) for kind, rank, text in _queries()}
        rows = [(LEAVES.index(interest), *queries[text]) for _, interest, text in self.hierarchy.contexts]
        interest, kind, rank = np.repeat(np.array(rows).T, self.ad_count, axis=1)
        found = click_probabilities(
            kind,
            brand_of(rank),
            interest[:, None],
            np.repeat([units[place] for place, _, _ in self.hierarchy.contexts], self.ad_count, axis=0),
            businesses=self._businesses,
            ads=np.tile(np.arange(self.ad_count), len(rows)),
            reach=REACH,
        )
        return found.reshape(len(rows), self.ad_count)

    @cached_property
    def _city(self) -> City:
        return make_city(seeded(self.seed, "city"), (1, 1), (NEIGHBOURHOODS, len(BLOCKS), 1, 1))

    @cached_property
    def _businesses(self) -> Businesses:
        """Of each category in turn; the first ones have the first brand, the next ones the next."""
        rng, turn = seeded(self.seed, "businesses"), np.arange(self.ad_count)
        category = np.array(KINDS)[turn % len(KINDS)]
        hood = rng.integers(NEIGHBOURHOODS, size=self.ad_count)
        typical = np.exp(rng.normal(0, 0.3, len(LEAVES)))  # payment of a category
        return Businesses(
            category=category,
            brand=turn // len(KINDS),
            units=self._city.units[len(BLOCKS) * hood + STREET],
            region=np.zeros(self.ad_count, dtype=np.int64),
            quality=0.5 + 0.5 * rng.beta(2, 2, self.ad_count),
            payment=np.round(typical[category] * np.exp(rng.normal(0, 0.3, self.ad_count)), 2) + 0.01,
        )


def _queries() -> list[tuple[int, int, str]]:
    """All queries: the category, the rank in it, and the text."""
    return [(kind, rank, typed_text(kind, rank)) for kind in KINDS for rank in range(len(TEXTS))]
