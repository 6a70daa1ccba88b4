"""The noise of an estimate, beside corollary 2 of Götz's dissertation and beside a flat histogram."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reticent.hierarchy import Hierarchy
from reticent.privacy import THESIS_EPSILON, NoiseKind, gaussian_sigma, mechanism_of, sequence_sigma
from reticent_analyst.rates.consistency import consistent
from reticent_analyst.rates.terms import EstimateTerms

__all__ = ["LevelNoise", "NoiseReport", "noise_report"]


@dataclass(frozen=True)
class LevelNoise:
    """The standard deviations of the noise of the counts of a level.

    Args:
        depth: The level: 0 is the root.
        nodes: The number of its nodes.
        alone: That of each count before it is made consistent.
        consistent: That of a count, in the root mean square, if all nodes down to the depth are counted.
        flat: That of a sum over a histogram of the lowest level's nodes, which has the whole budget.
    """

    depth: int
    nodes: int
    alone: float
    consistent: float
    flat: float


@dataclass(frozen=True)
class NoiseReport:
    """The noise of an estimate.

    All deviations are those of one count, with noise as a trusted server adds it.

    Args:
        terms: The terms of the estimate.
        corollary2: The deviation of corollary 2 as printed; None for an epsilon above 1, which it does not allow.
        fixed: That of exactly calibrated Gaussian noise, if all queries were fixed beforehand.
        gaussian: That of Gaussian noise if each level depends on the releases above it.
        skellam: That of Skellam noise, likewise.
        levels: The deviations at each level, with the noise of the terms.
    """

    terms: EstimateTerms
    corollary2: float | None
    fixed: float
    gaussian: float
    skellam: float
    levels: tuple[LevelNoise, ...]


def noise_report(
    hierarchy: Hierarchy,
    *,
    epsilon: float,
    delta: float,
    entries: int,
    depth: int | None = None,
    noise: NoiseKind = "skellam",
) -> NoiseReport:
    """The noise of an estimate with these arguments of `estimate`.

    >>> from reticent.hierarchy import Tree
    >>> tree = Tree("street", 2, {"a1": "a", "a2": "a", "b1": "b"})
    >>> streets = Hierarchy([tree], [("a1",), ("a2",), ("b1",)], [(0,), (1,)])
    >>> report = noise_report(streets, epsilon=1.0, delta=0.02, entries=4)
    >>> round(report.fixed / report.corollary2, 3)
    0.596
    """
    lowest = hierarchy.height - 1 if depth is None else depth
    terms = EstimateTerms(name="noise", epsilon=epsilon, delta=delta, entries=entries, depth=lowest, noise=noise)
    l2, l1 = math.sqrt(terms.sequence.l2_squared), float(terms.sequence.l1)
    printed = entries / epsilon * math.sqrt(6 * terms.levels * math.log(4 / delta))
    return NoiseReport(
        terms=terms,
        corollary2=printed if epsilon <= THESIS_EPSILON else None,
        fixed=gaussian_sigma(epsilon, delta, l2),
        gaussian=sequence_sigma(epsilon, delta, l2),
        skellam=math.sqrt(mechanism_of("skellam").sequence_variance(epsilon, delta, l2, l1)),
        levels=_levels(hierarchy, terms),
    )


def _levels(hierarchy: Hierarchy, terms: EstimateTerms) -> tuple[LevelNoise, ...]:
    bounds, mechanism = terms.sequence, mechanism_of(terms.noise)
    variance = mechanism.sequence_variance(terms.epsilon, terms.delta, math.sqrt(bounds.l2_squared), bounds.l1)
    m = terms.entries
    flat = mechanism.variance(terms.epsilon, terms.delta, math.sqrt(2) * m, 2 * m)
    depths = len(hierarchy.sequence) - hierarchy.node_levels  # (nodes,)
    counted = int((depths <= terms.depth).sum())  # a level's nodes follow those of the level above
    depths, parents = depths[:counted].astype(np.intp), hierarchy.parents[:counted].astype(np.intp)
    after = consistent(np.zeros(counted), np.full(counted, variance), parents, depths).variance
    parts = np.ones(counted)  # of each node: the nodes of the lowest level at or below it
    parts[depths < terms.depth] = 0
    for depth in range(terms.depth, 0, -1):
        here = depths == depth
        np.add.at(parts, parents[here], parts[here])
    return tuple(
        LevelNoise(
            depth=depth,
            nodes=int((depths == depth).sum()),
            alone=math.sqrt(variance),
            consistent=float(np.sqrt(after[depths == depth].mean())),
            flat=float(np.sqrt(flat * parts[depths == depth].mean())),
        )
        for depth in range(terms.levels)
    )
