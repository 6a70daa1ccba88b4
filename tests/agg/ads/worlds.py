"""Small worlds of ads, and replies to them that are computed naively, by the definition."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from reticent.hierarchy import Decimals, Hierarchy, Tree
from reticent.rates import RateTable
from reticent_agg.ads.catalogue import COLUMNS, Catalogue
from reticent_agg.ads.index import AdIndex, IndexSettings

SHOPS = {"espresso": "cafe", "latte": "cafe", "sushi": "restaurant"}
PLACES = ("40.7271,-73.9910", "40.7299,-73.9910", "51.5001,-0.1200")
HIERARCHY = Hierarchy(
    [Decimals("location", (None, 1)), Tree("query", 2, SHOPS)],
    [(place, shop) for place in PLACES for shop in SHOPS][:8],
    [(0, 0), (0, 1), (1, 1)],
)
OTHER_HIERARCHY = Hierarchy([Tree("query", 2, SHOPS)], [("latte",)], [(0,), (1,)])
PARENTS: list[int] = HIERARCHY.parents.tolist()
LEAVES: list[int] = HIERARCHY.leaves.tolist()

SETTINGS = IndexSettings(max_ads=4, rates_per_ad=2, least_rate=0.0, least_support=8)


@dataclass(frozen=True)
class Line:
    """A line of a catalogue, with nodes by their numbers."""

    ad: str
    payment: float
    bids: dict[int, float | None] = field(default_factory=dict)
    text: str = "Come in"
    category: str = "restaurant"
    cap: int = 0

    def cells(self) -> list[str]:
        bids = (f"{HIERARCHY.nodes[node]}{'' if paid is None else f'={paid}'}" for node, paid in self.bids.items())
        return [self.ad, f"{self.payment}", self.category, self.text, f"{self.cap}", ";".join(bids)]


@dataclass(frozen=True)
class World:
    """A catalogue, and rates (rate, views) by ad and node, with the frequencies of the nodes that have estimates."""

    lines: list[Line]
    rates: dict[tuple[str, int], tuple[float, float]]
    frequency: dict[int, float]
    settings: IndexSettings = SETTINGS

    def catalogue_text(self) -> str:
        file = io.StringIO()
        csv.writer(file).writerows([COLUMNS, *(each.cells() for each in self.lines)])
        return file.getvalue()

    def table(self) -> RateTable:
        ads = sorted({ad for ad, _ in self.rates}, reverse=True)  # not in the catalogue's order
        entries = sorted((ads.index(ad), node, *entry) for (ad, node), entry in self.rates.items())
        frequency = np.full(len(PARENTS), np.nan)
        frequency[list(self.frequency)] = list(self.frequency.values())
        ad, node, rate, views = (np.array(each) for each in zip(*entries, strict=True))
        return RateTable(
            hierarchy=HIERARCHY.fingerprint,
            ads=tuple(ads),
            frequency=frequency,
            ad=ad.astype(np.int32),
            node=node.astype(np.int32),
            rate=rate.astype(np.float64),
            low=rate / 2,
            high=(rate + 1) / 2,
            views=views.astype(np.float64),
            epsilon=1.0,
            delta=1e-6,
            level=0.95,
            seeded=True,
            source="a test",
        )

    def write(self, folder: Path) -> dict[str, Path]:
        """The three files of a version."""
        files = {name: folder / name for name in ("catalogue.csv", "hierarchy.json", "rates.npz")}
        files["catalogue.csv"].write_text(self.catalogue_text(), encoding="utf-8")
        HIERARCHY.save(files["hierarchy.json"])
        self.table().save(files["rates.npz"])
        return {path.stem: path for path in files.values()}

    def index(self, folder: Path) -> AdIndex:
        files = self.write(folder)
        catalogue = Catalogue.load(files["catalogue"], HIERARCHY)
        AdIndex.build(catalogue, HIERARCHY, self.table(), self.settings).save(folder / "index.npz")
        return AdIndex.load(folder / "index.npz")

    # What a reply should be, by the definition

    def columns(self, node: int) -> dict[int, int]:
        """The columns of a node, and the nodes that they are sent as: for each context, the lowest with an estimate."""
        below = [leaf for leaf in LEAVES if node in ancestors(leaf)]
        found = {next(each for each in ancestors(leaf) if each in self.frequency) for leaf in below}
        return {column: column if node in ancestors(column) else node for column in found}

    def weights(self, node: int) -> dict[int, float]:
        """How frequent the contexts of each column of a node are that have no lower estimate; equal if none is."""
        found = {}
        for column in self.columns(node):
            children = HIERARCHY.children(column).tolist()
            below = sum(self.frequency.get(each, 0.0) for each in children)
            found[column] = max(self.frequency[column] - below, 0.0)
        return found if any(found.values()) else dict.fromkeys(found, 1.0)

    def rate(self, ad: str, column: int) -> float:
        known = (self.rates[ad, each] for each in ancestors(column) if (ad, each) in self.rates)
        rate = next((rate for rate, views in known if views >= self.settings.least_support), 0.0)
        return rate if rate >= self.settings.least_rate else 0.0

    def payment(self, line: Line, node: int) -> float:
        if not line.bids:
            return line.payment
        own = next((each for each in ancestors(node) if each in line.bids), None)
        return 0.0 if own is None else line.bids[own] or line.payment

    def revenues(self, line: Line, node: int) -> dict[int, float]:
        """The expected revenue of an ad in each column of a node."""
        columns, weights = self.columns(node), self.weights(node)
        return {
            column: weights[column] * self.rate(line.ad, column) * self.payment(line, sent_as)
            for column, sent_as in columns.items()
        }

    def greedy(self, node: int, k: int) -> list[tuple[Line, float]]:
        """The ads for a node with their gains, each the first with the greatest gain; and reserves by their own."""
        revenues = {line.ad: self.revenues(line, node) for line in self.lines}
        nothing = dict.fromkeys(self.columns(node), 0.0)
        promised = nothing.copy()
        chosen: list[tuple[Line, float]] = []
        while len(chosen) < k:
            left = [line for line in self.lines if line not in [each for each, _ in chosen]]
            gains = [gain(revenues[line.ad], promised) for line in left]
            if not left or max(gains) <= 0:
                reserves = [(line, gain(revenues[line.ad], nothing)) for line in left]
                reserves.sort(key=lambda each: -each[1])
                return [*chosen, *(each for each in reserves if each[1] > 0)][:k]
            best = left[gains.index(max(gains))]
            chosen.append((best, max(gains)))
            promised = {column: max(taken, revenues[best.ad][column]) for column, taken in promised.items()}
        return chosen

    def sent_rates(self, line: Line, node: int) -> list[tuple[int, float, float, int]]:
        """The node, rate, payment and column of an ad: of the node itself, then those that it is most wrong about."""
        weights = self.weights(node)
        columns = sorted(self.columns(node).items(), key=lambda each: (HIERARCHY.leaf_starts[each[0]], each[0]))
        worth = {
            column: self.rate(line.ad, column) * self.payment(line, sent_as)  # without the weight
            for column, sent_as in columns
        }
        own = [column for column, sent_as in columns if sent_as == node]
        if own or self.payment(line, node) > 0:
            general = own[0] if own else self.median(worth, weights)
            base = worth[general]
        else:
            general, base = -1, 0.0
        listed = [(column, sent_as) for column, sent_as in columns if worth[column] != base and sent_as != node]
        listed.sort(key=lambda each: (-abs(worth[each[0]] - base) * weights[each[0]], -weights[each[0]]))
        found = [
            (sent_as, self.rate(line.ad, column), self.payment(line, sent_as), column)
            if worth[column] > 0
            else (sent_as, 0.0, 0.0, -1)
            for column, sent_as in listed
        ]
        if base > 0:
            found.insert(0, (node, self.rate(line.ad, general), self.payment(line, node if own else general), general))
        return found[: self.settings.rates_per_ad]

    def median(self, worth: dict[int, float], weights: dict[int, float]) -> int:
        """The first column of those with growing worth with which half of the weight is reached."""
        order = sorted(worth, key=lambda column: worth[column])
        half, reached = sum(weights.values()) / 2, 0.0
        for column in order:
            reached += weights[column]
            if reached >= half:
                return column
        return order[-1]


def gain(revenues: dict[int, float], promised: dict[int, float]) -> float:
    """What an ad adds to the promised revenue of the columns."""
    return sum(max(revenue - promised[column], 0.0) for column, revenue in revenues.items())


def ancestors(node: int) -> Iterator[int]:
    """The node itself first, the root last."""
    while node >= 0:
        yield node
        node = PARENTS[node]


def fractions(most: int) -> st.SearchStrategy[float]:
    """Multiples of 1/16: sums and products of a few are exact, so that equal gains are equal."""
    return st.integers(0, most).map(lambda number: number / 16)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Worlds on the one hierarchy, with ties, rare contexts, bids on contexts, and ads without rates."""
    ads = [f"ad{number}" for number in range(draw(st.integers(1, 6)))]
    nodes = st.integers(0, len(PARENTS) - 1)
    lines = [
        Line(
            ad,
            draw(st.sampled_from([0.5, 1, 2])),
            draw(st.dictionaries(nodes, st.sampled_from([None, 1, 4.0]), max_size=2)),
        )
        for ad in ads
    ]
    estimated = {0: draw(fractions(16))}
    for parent in range(len(PARENTS)):
        children = HIERARCHY.children(parent).tolist()
        if parent in estimated and children and draw(st.booleans()):
            estimated |= {child: draw(fractions(4)) for child in children if draw(st.integers(0, 4))}
    rated = st.tuples(st.sampled_from([*ads, "unlisted"]), st.sampled_from(sorted(estimated)))
    entry = st.tuples(fractions(16), st.sampled_from([0.0, 7.5, 8.0, 100.0]))
    rates = draw(st.dictionaries(rated, entry, max_size=16)) | {(ads[0], 0): draw(entry)}
    settings = IndexSettings(
        max_ads=draw(st.integers(1, 5)),
        rates_per_ad=draw(st.integers(1, 3)),
        least_rate=draw(st.sampled_from([0.0, 0.25])),
        least_support=draw(st.sampled_from([0.0, 8.0])),
    )
    return World(lines, rates, estimated, settings)


EXAMPLE = World(
    lines=[
        Line("coffee", 1.0, {}, "Coffee, black or white", "cafe", 3),
        Line("roast", 2.0, {HIERARCHY.index(node): None for node in HIERARCHY.nodes[1:2]}, "Freshly roasted"),
        Line("sushi", 1.0, {}, "Sushi to go"),
        Line("unknown", 9.0, {}, "Nobody has seen this ad"),
    ],
    rates={("coffee", 0): (0.25, 100), ("roast", 0): (0.5, 100), ("sushi", 0): (0.125, 100), ("sushi", 1): (0.75, 4)},
    frequency={0: 1.0, 1: 0.5, 2: 0.25, 3: 0.25},
)
