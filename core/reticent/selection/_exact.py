"""The best set of ads, by enumeration: for small cases only, as the problem is NP-hard (proposition 6)."""

from __future__ import annotations

import math
from itertools import combinations, islice

import numpy as np
from numpy.typing import ArrayLike

from reticent.arguments import checked_integer, checked_not_negative
from reticent.selection._greedy import Revenues, Selection
from reticent.selection._rates import not_negative

__all__ = ["exact"]

MAX_SETS = 10**6
_CELLS = 2**20  # sets times ads times contexts that are compared at once


def exact(revenues: Revenues, weights: ArrayLike, k: int, *, alpha: float = 0.0) -> Selection:
    """The set of at most k ads with the greatest expected revenue minus alpha for each ad; of equal ones, the smallest.

    The ads are in the order of their numbers.

    Raises:
        ValueError: There are more than 10^6 sets, or the arguments are none that `greedy` takes.
    """
    probabilities = not_negative("weights", weights, revenues.matrix.shape[1])
    cost = checked_not_negative("alpha", alpha)
    ads = np.unique(revenues.matrix.ads)
    most = min(checked_integer("k", k, 1), len(ads))
    if (sets := sum(math.comb(len(ads), size) for size in range(most + 1))) > MAX_SETS:
        raise ValueError(f"an exact selection compares at most {MAX_SETS} sets of ads: got {sets}")
    weighted = revenues.matrix.rows(ads) * probabilities  # (ads, contexts)
    found, objective = np.zeros(0, np.intp), 0.0
    for size in range(1, most + 1):
        choices = combinations(range(len(ads)), size)
        while (block := np.array(list(islice(choices, 1 + _CELLS // (size * weighted.shape[1]))), np.intp)).size:
            objectives = weighted[block].max(axis=1).sum(axis=1) - cost * size
            if objectives.max() > objective:
                found, objective = block[objectives.argmax()], float(objectives.max())
    revenue = np.maximum.accumulate(weighted[found], axis=0).sum(axis=1)
    return Selection(ads[found], np.diff(revenue, prepend=0.0))
