"""Fits one user's contribution, a vector of whole steps, to the bounds on its norms by scaling it down."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["NOTHING", "Integers", "Norms", "within"]

Integers: TypeAlias = npt.NDArray[np.int64]


class Norms(NamedTuple):
    """The L1 norm and the squared L2 norm of a contribution, in steps of the grid; of several, the sums.

    >>> Norms.of([1, -2]) + Norms.of([2])
    Norms(l1=5, l2_squared=9)
    """

    l1: int
    l2_squared: int

    @classmethod
    def of(cls, steps: npt.ArrayLike) -> Norms:
        """The norms of the vector that `Query.fit` returned for one phone."""
        sizes = [abs(int(step)) for step in np.asarray(steps)]
        return cls(sum(sizes), sum(size * size for size in sizes))

    def __add__(self, other: object) -> Norms:
        if not isinstance(other, Norms):
            return NotImplemented
        return Norms(self.l1 + other.l1, self.l2_squared + other.l2_squared)


NOTHING = Norms(0, 0)
"""The norms of no contribution."""


def within(steps: Integers, bounds: Norms, used: Norms | tuple[Integers, Integers] = NOTHING) -> Integers:
    """Rows of steps; those that exceed what is left of the bounds, scaled down and rounded until they do not.

    Args:
        steps: A row for each phone; they are changed in place.
        bounds: The bounds of each row.
        used: The part of the bounds that each phone's earlier contributions have used.
    """
    l1, l2_squared = (
        np.broadcast_to(np.maximum(0, bound - np.asarray(size)), len(steps))
        for bound, size in zip(bounds, used, strict=True)
    )
    excessive = _excess(np.abs(steps), l1, l2_squared)
    if excessive.any():
        steps[excessive] = _scaled_down(steps[excessive], l1[excessive], l2_squared[excessive])
    return steps


def _excess(steps: Integers, l1: Integers, l2_squared: Integers) -> npt.NDArray[np.bool_]:
    """The rows of absolute values that exceed a bound."""
    return np.asarray((steps.sum(axis=1) > l1) | (np.square(steps).sum(axis=1) > l2_squared))


def _scaled_down(rows: Integers, l1: Integers, l2_squared: Integers) -> Integers:
    """Rows that exceed a bound, scaled and rounded so that they do not."""
    sizes = np.abs(rows)
    by_l1 = l1 / sizes.sum(axis=1)
    by_l2 = np.sqrt(l2_squared / np.square(sizes).sum(axis=1))
    scaled = sizes * np.minimum(by_l1, by_l2)[:, None]
    whole = np.minimum(np.floor(scaled).astype(np.int64), sizes)
    while (excessive := _excess(whole, l1, l2_squared)).any():  # by what floats round up
        whole[excessive] -= whole[excessive] > 0
    order = np.argsort(whole - scaled, axis=1, kind="stable")
    ranked = np.take_along_axis(whole, order, axis=1)
    steps_taken = np.arange(1, rows.shape[1] + 1)
    room_l1 = (l1 - whole.sum(axis=1))[:, None]
    room_l2 = (l2_squared - np.square(whole).sum(axis=1))[:, None]
    up = (steps_taken <= room_l1) & (np.cumsum(2 * ranked + 1, axis=1) <= room_l2)
    np.put_along_axis(whole, order, ranked + up, axis=1)
    return np.asarray(np.sign(rows) * whole)
