"""Instances of the selection: random ones, and those of maximum coverage, which make it NP-hard (proposition 6)."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from reticent.selection import Rates

Floats = NDArray[np.float64]


class Instance(NamedTuple):
    """The arguments of a selection."""

    rates: Rates
    weights: Floats
    bids: Floats
    k: int


@st.composite
def instances(draw: st.DrawFn, most_ads: int = 40, most_contexts: int = 40) -> Instance:
    """Few ads or many, sparse or dense; every other instance has many equal numbers, so that gains are equal."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ads, contexts = int(rng.integers(1, most_ads + 1)), int(rng.integers(1, most_contexts + 1))
    rates = rng.integers(0, 4, (ads, contexts)) / 3 * (rng.random((ads, contexts)) < rng.random())
    if rng.random() < 0.5:
        weights, bids = rng.choice([0.0, 0.3, 0.6], contexts), rng.choice([0.0, 1.0, 2.0], ads)
    else:
        weights, bids = rng.random(contexts), rng.random(ads)
    return Instance(Rates.of(rates), weights, bids, int(rng.integers(1, 12)))


def coverage(sets: Sequence[AbstractSet[int]], k: int) -> Instance:
    """The reduction: a context for each element, all equally likely, and an ad for each set. Here each weight is 1."""
    size = 1 + max((max(each) for each in sets if each), default=0)
    dense = np.array([[float(element in each) for element in range(size)] for each in sets])
    return Instance(Rates.of(dense), np.ones(size), np.ones(len(sets)), k)


def hardest(k: int) -> tuple[list[set[int]], list[set[int]]]:
    """Sets on which the greedy algorithm is worst: k of equal gain at each turn, and k disjoint ones that cover all.

    The elements are k columns of k^k rows. A disjoint set is a column. The i-th misleading set has the next part 1/k
    of the rows that are left, as many elements as each column has then.
    """
    rows, taken = k**k, 0
    misleading = []
    for _ in range(k):
        part = (rows - taken) // k
        misleading.append({row * k + column for row in range(taken, taken + part) for column in range(k)})
        taken += part
    return misleading, [{row * k + column for row in range(rows)} for column in range(k)]
