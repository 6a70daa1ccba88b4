"""Random hierarchies and tables of rates."""

import numpy as np

from reticent.hierarchy import Decimals, Hierarchy
from reticent.rates import RateTable


def a_hierarchy(rng: np.random.Generator, contexts: int) -> Hierarchy:
    """Places in cells."""
    spots = {(f"{x:.2f},{y:.2f}",) for x, y in rng.normal(0, 2, (contexts, 2))}
    return Hierarchy([Decimals("location", (None, 1, 0))], spots, [(0,), (1,), (2,)])


def a_table(rng: np.random.Generator, hierarchy: Hierarchy, ads: int, entries: int) -> RateTable:
    """Random rates at the nodes of a random upper part of the hierarchy."""
    estimated = np.zeros(len(hierarchy.nodes), dtype=np.bool_)
    estimated[0] = True
    for node, parent in enumerate(hierarchy.parents[1:], start=1):
        estimated[node] = estimated[parent] and rng.random() < 0.7
    pairs = rng.permutation(np.unique(rng.integers(0, [ads, estimated.sum()], (entries, 2)), axis=0)).astype(np.int32)
    rates = np.sort(rng.random((len(pairs), 3)), axis=1)
    frequency = hierarchy.sums(rng.dirichlet(np.ones(len(hierarchy.contexts))))
    return RateTable(
        hierarchy=hierarchy.fingerprint,
        ads=tuple(f"ad {number}" for number in range(ads)),
        frequency=np.where(estimated, np.minimum(frequency, 1.0), np.nan),
        ad=pairs[:, 0],
        node=np.flatnonzero(estimated).astype(np.int32)[pairs[:, 1]],
        low=rates[:, 0],
        rate=rates[:, 1],
        high=rates[:, 2],
        views=rng.integers(0, 10, len(pairs)).astype(np.float64),
        epsilon=1.0,
        delta=1e-6,
        level=0.95,
        seeded=True,
        source="a test",
    )
