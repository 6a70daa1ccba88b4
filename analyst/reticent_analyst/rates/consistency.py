"""Counts on a tree made consistent: the children of each node sum to it.

Weighted least squares in two passes, after Hay et al., "Boosting the accuracy of differentially private histograms
through consistency" (2010), for any numbers of children, known unequal variances, and trees that end early. It is the
post-processing that section 5.5.3 of Götz's dissertation names.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["EXACT", "Estimates", "consistent"]

Floats: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.integer[Any]]

EXACT = 1e-12  # the variance that stands for none, so that exact counts need no case of their own


class Estimates(NamedTuple):
    """Estimates of counts, and the variances of their errors."""

    value: Floats
    variance: Floats


def consistent(value: Floats, variance: Floats, parent: Indices, depth: Indices) -> Estimates:
    """The estimates with the smallest weighted squares of changes for which children sum to their parents.

    With normal errors of these variances, they are the most likely counts; with others, the best linear estimates.

    Args:
        value: Counts with independent errors.  # (n,)
        variance: The variances of the errors.
        parent: The place of each count's parent; -1 for a root, and for a count that is no part of a known sum.
        depth: The level of each count, in ascending order. That of a parent is less by one.

    >>> found = consistent(np.array([10.0, 3.0, 4.0]), np.ones(3), np.array([-1, 0, 0]), np.array([0, 1, 1]))
    >>> found.value.tolist()
    [9.0, 4.0, 5.0]
    """
    starts = np.searchsorted(depth, np.arange(depth.max(initial=-1) + 2))
    levels = [slice(*pair) for pair in pairwise(starts)]
    below, sums = _from_below(Estimates(value, np.maximum(variance, EXACT)), parent, levels)
    found = Estimates(below.value.copy(), below.variance.copy())
    for level in levels[1:]:
        own = parent[level]
        tied = np.flatnonzero(own >= 0) + level.start
        above = parent[tied]
        share = below.variance[tied] / sums.variance[above]
        found.value[tied] += share * (found.value[above] - sums.value[above])
        found.variance[tied] *= 1 - share
        found.variance[tied] += share**2 * found.variance[above]
    return found


def _from_below(measured: Estimates, parent: Indices, levels: list[slice]) -> tuple[Estimates, Estimates]:
    """The best estimates from each count and those below it alone; and the sums of these over children."""
    found = Estimates(measured.value.copy(), measured.variance.copy())
    sums = Estimates(np.zeros_like(found.value), np.zeros_like(found.variance))
    for level in reversed(levels):
        own, of_children = found.variance[level], sums.variance[level]
        weight = np.where(of_children > 0, own / (own + of_children), 0.0)
        found.value[level] += weight * (sums.value[level] - found.value[level])
        found.variance[level] *= 1 - weight
        tied = np.flatnonzero(parent[level] >= 0) + level.start
        np.add.at(sums.value, parent[tied], found.value[tied])
        np.add.at(sums.variance, parent[tied], found.variance[tied])
    return found, sums
