"""The businesses of a city: categories as in figure 4.2 of Götz's dissertation, brands, places, quality and payments.

Places have cells within cells: regions, neighbourhoods, blocks, buildings and positions, one a number of decimals.
At every level few of them are popular and most are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = npt.NDArray[np.int64]

BUSINESS = "business"
"""The most general category."""

CATEGORIES = {
    "cafe": ("coffee", "bakery", "tea room", "juice bar"),
    "american": ("burgers", "diner", "steakhouse", "barbecue"),
    "asian": ("sushi", "ramen", "thai", "dim sum", "korean"),
    "italian": ("pizza", "trattoria", "gelato"),
    "latin": ("tacos", "peruvian", "cuban"),
    "nightlife": ("bar", "brewery", "wine", "cocktails", "karaoke"),
    "shop": ("groceries", "clothes", "books", "electronics", "flowers"),
    "sport": ("gym", "yoga", "climbing", "swimming"),
    "culture": ("cinema", "museum", "theatre"),
    "health": ("pharmacy", "dentist", "clinic", "optician"),
}
"""The categories of businesses, by general category; the popular ones first."""

GENERAL = tuple(CATEGORIES)
LEAVES = tuple(leaf for leaves in CATEGORIES.values() for leaf in leaves)
GENERAL_OF = np.repeat(np.arange(len(GENERAL)), [len(leaves) for leaves in CATEGORIES.values()])  # (leaves,)
PARENTS: dict[str, str | None] = {
    BUSINESS: None,
    **dict.fromkeys(CATEGORIES, BUSINESS),
    **{leaf: general for general, leaves in CATEGORIES.items() for leaf in leaves},
}
"""The category above each category."""

CORNER = 40_50000, 73_80000
"""The south-east corner of the city: degrees north and west, in units of 1e-5 degrees."""
SIDE = 10_000  # units of a region, 0.1 degrees
REGIONS = 2, 3
"""The rows and columns of the regions."""
CELLS = 8, 6, 3, 2
"""Neighbourhoods of a region, blocks of a neighbourhood, buildings of a block, positions of a building."""
KM = 111.2e-5, 84.5e-5
"""The kilometres of a unit of latitude and of longitude, at 40.6 degrees north."""

BRANDS = 6
"""The brands of a category; the popular ones have more businesses."""


@dataclass(frozen=True)
class City:
    """The positions at which people and businesses are."""

    units: Numbers
    """(positions, 2): degrees north and west, in units of 1e-5 degrees."""
    region: Numbers
    """(positions,): the region of each position; they ascend."""
    popularity: Floats
    """(positions,): the share of people who are there."""

    @cached_property
    def texts(self) -> list[str]:
        """The coordinates as text, such as "40.71234,-73.98765"."""
        return [f"{_degrees(north)},-{_degrees(west)}" for north, west in self.units.tolist()]


@dataclass(frozen=True)
class Businesses:
    """Businesses, each of which has one ad."""

    category: Numbers
    """(ads,): numbers of `LEAVES`."""
    brand: Numbers
    """(ads,): numbers within the category."""
    units: Numbers
    """(ads, 2): the coordinates."""
    region: Numbers
    """(ads,)."""
    quality: Floats
    """(ads,): the factor of each business in the probability of a click."""
    payment: Floats
    """(ads,): the payment for a click."""


def power_law(size: int, exponent: float = 1.0) -> Floats:
    """Shares that fall with the rank.

    >>> power_law(3).round(3).tolist()
    [0.545, 0.273, 0.182]
    """
    weights = np.arange(1, size + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def make_city(
    rng: np.random.Generator, regions: tuple[int, int] = REGIONS, cells_inside: tuple[int, ...] = CELLS
) -> City:
    """A city with cells within cells. At each level there are ten times ten cells, of which a few are in use.

    Args:
        rng: The source of randomness.
        regions: The rows and columns of the regions.
        cells_inside: The cells that are in use inside each cell, level by level.
    """
    rows, columns = regions
    corners = np.array(CORNER) + SIDE * np.array([(row, column) for row in range(rows) for column in range(columns)])
    units, share = corners, rng.permutation(power_law(len(corners), 0.7))
    region, side = np.arange(len(corners)), SIDE
    for cells in cells_inside:
        side //= 10
        inside = np.concatenate([rng.choice(100, cells, replace=False) for _ in range(len(units))])  # (units * cells,)
        units = np.repeat(units, cells, axis=0) + side * np.stack([inside // 10, inside % 10], axis=1)
        share = (share[:, None] * power_law(cells)).ravel()
        region = np.repeat(region, cells)
    return City(units, region, share)


def make_businesses(rng: np.random.Generator, city: City, count: int) -> Businesses:
    """Businesses at positions of the city; the category of each, its brand and its position follow power laws."""
    place = rng.choice(len(city.units), count, p=city.popularity**0.7 / (city.popularity**0.7).sum())
    category = rng.choice(len(LEAVES), count, p=leaf_shares())
    typical = np.exp(rng.normal(0, 0.3, len(LEAVES)))  # payment of a category
    return Businesses(
        category=category,
        brand=rng.choice(BRANDS, count, p=power_law(BRANDS)),
        units=city.units[place],
        region=city.region[place],
        quality=0.4 + 0.6 * rng.beta(2, 2, count),
        payment=np.round(typical[category] * np.exp(rng.normal(0, 0.4, count)), 2) + 0.01,
    )


def leaf_shares() -> Floats:
    """(leaves,): the share of searches for each category."""
    within = [power_law(len(leaves), 0.8) for leaves in CATEGORIES.values()]
    return np.concatenate([share * each for share, each in zip(power_law(len(GENERAL), 0.7), within, strict=True)])


def distance(one: Numbers, other: Numbers) -> Floats:
    """The distance between coordinates (..., 2), in kilometres."""
    north, west = np.moveaxis((one - other) * np.array(KM), -1, 0)
    return np.asarray(np.hypot(north, west))


def _degrees(units: int) -> str:
    """Units of 1e-5 degrees as degrees, without a float between."""
    return f"{units // 100_000}.{units % 100_000:05}"
