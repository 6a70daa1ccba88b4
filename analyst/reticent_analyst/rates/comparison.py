"""Two tables of rates of one hierarchy, side by side, such as an estimate and that of a trusted server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reticent.hierarchy import Hierarchy
from reticent.rates import RateTable

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """The differences of two tables.

    Args:
        common: The number of pairs of an ad and a node of which both have a rate.
        first: The number of pairs of which only the first has one.
        second: The number of pairs of which only the second has one.
        rate_difference: The mean absolute difference of the common rates, weighted by the views of the second.
        covered: The share of the second's common rates that are in the intervals of the first.
        views_difference: The root mean square of the differences of the common views.
        distribution_distance: The total variation distance of the frequencies, over the lowest nodes of which both have
            one.
    """

    common: int
    first: int
    second: int
    rate_difference: float | None
    covered: float | None
    views_difference: float | None
    distribution_distance: float

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data. What needs common rates is null if there are none."""
        return asdict(self)


def compare(first: RateTable, second: RateTable, hierarchy: Hierarchy) -> Comparison:
    """Compare two tables; ads are the same if they have the same name.

    Args:
        first: One table.
        second: The other, such as the exact rates or those of a trusted server.
        hierarchy: The hierarchy of both.

    Raises:
        ValueError: A table is of another hierarchy.
    """
    first.check(hierarchy)
    second.check(hierarchy)
    numbers = {ad: number for number, ad in enumerate(dict.fromkeys(first.ads + second.ads))}
    keys, others = (_keys(table, numbers, len(hierarchy.nodes)) for table in (first, second))
    _, one, other = np.intersect1d(keys, others, assume_unique=True, return_indices=True)
    both: dict[str, float | None] = {"rate_difference": None, "covered": None, "views_difference": None}
    if len(one):
        rate, views = second.rate[other], second.views[other]
        inside = (first.low[one] <= rate) & (rate <= first.high[one])
        both = {
            "rate_difference": float(np.average(np.abs(first.rate[one] - rate), weights=views)),
            "covered": float(inside.mean()),
            "views_difference": float(np.sqrt(np.mean(np.square(first.views[one] - views)))),
        }
    return Comparison(
        common=len(one),
        first=len(first.rate) - len(one),
        second=len(second.rate) - len(one),
        distribution_distance=_distance(first.frequency, second.frequency, hierarchy),
        **both,
    )


def _keys(table: RateTable, numbers: dict[str, int], nodes: int) -> npt.NDArray[np.int64]:
    own = np.array([numbers[ad] for ad in table.ads], dtype=np.int64)
    return own[table.ad] * nodes + table.node


def _distance(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64], hierarchy: Hierarchy) -> float:
    both = np.isfinite(first) & np.isfinite(second)
    inner = np.zeros_like(both)
    inner[hierarchy.parents[1:][both[1:]]] = True
    lowest = both & ~inner
    return float(np.abs(first[lowest] - second[lowest]).sum() / 2)
