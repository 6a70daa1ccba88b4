"""Sparse matrices of numbers that ads have in contexts."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import checked_integer

__all__ = ["Floats", "Integers", "Rates", "not_negative", "ranges"]

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.intp]


class Rates:
    """A sparse matrix (ads, contexts) of numbers of at least 0: click-through rates, bids on contexts, or views.

    The attributes hold the entries in the order of their ads, and of their contexts within an ad. They are read-only.

    Args:
        ads: The number of each entry's ad, from 0 on.
        contexts: The number of each entry's context, from 0 on.
        values: The entries. All others are 0.
        shape: How many ads and contexts there are.

    Raises:
        ValueError: A number is out of range, a value is negative or not finite, or an entry has two values.
    """

    ads: Integers  # (entries,)
    contexts: Integers  # (entries,)
    values: Floats  # (entries,)
    shape: tuple[int, int]

    def __init__(self, ads: ArrayLike, contexts: ArrayLike, values: ArrayLike, shape: tuple[int, int]) -> None:
        size = (
            checked_integer("the number of ads", shape[0], 0),
            checked_integer("the number of contexts", shape[1], 0),
        )
        rows, columns = _numbers("ad", ads, size[0]), _numbers("context", contexts, size[1])
        numbers = np.array(values, np.float64)
        if not rows.shape == columns.shape == numbers.shape:
            lengths = f"{rows.size}, {columns.size} and {numbers.size}"
            raise ValueError(f"ads, contexts and values must have one length: got {lengths}")
        if (wrong := _unusable(numbers)).size:
            entry = f"ad {rows[wrong[0]]} in context {columns[wrong[0]]}"
            raise ValueError(f"a value must be a finite number of at least 0: got {numbers[wrong[0]]} for {entry}")
        places = rows * size[1] + columns
        if (np.diff(places) <= 0).any():
            order = np.argsort(places)
            rows, columns, numbers, places = rows[order], columns[order], numbers[order], places[order]
            if (again := np.flatnonzero(np.diff(places) == 0)).size:
                raise ValueError(f"ad {rows[again[0]]} has two values in context {columns[again[0]]}")
        self._keep(rows, columns, numbers, size)

    @classmethod
    def of(cls, matrix: Any) -> Rates:
        """The same numbers as those of an array (ads, contexts), or of a sparse matrix, such as SciPy's."""
        if isinstance(matrix, Rates):
            return matrix
        if hasattr(matrix, "tocoo"):
            entries = matrix.tocoo()
            return cls(entries.row, entries.col, entries.data, entries.shape)
        dense = np.asarray(matrix, np.float64)
        if dense.ndim != 2:
            raise ValueError(
                f"an array must have a row for each ad and a column for each context: got {dense.ndim} axes"
            )
        ads, contexts = np.nonzero(dense)
        return cls(ads, contexts, dense[ads, contexts], dense.shape)

    def rows(self, ads: ArrayLike) -> Floats:
        """The numbers of some ads in all contexts, an array (those ads, contexts)."""
        wanted = _numbers("ad", ads, self.shape[0])
        begins = np.searchsorted(self.ads, wanted)
        lengths = np.searchsorted(self.ads, wanted, side="right") - begins
        entries = ranges(begins, lengths)
        dense = np.zeros((len(wanted), self.shape[1]))
        dense[np.repeat(np.arange(len(wanted)), lengths), self.contexts[entries]] = self.values[entries]
        return dense

    def columns(self, contexts: slice | ArrayLike) -> Rates:
        """The matrix of some contexts, numbered from 0 on in their order. Its time depends on their entries alone.

        Args:
            contexts: Increasing numbers, a slice, or a truth value for each context.
        """
        chosen = np.arange(self.shape[1])[contexts if isinstance(contexts, slice) else np.asarray(contexts)]
        if (np.diff(chosen) <= 0).any():
            raise ValueError("the numbers of contexts must increase")
        if len(chosen) == self.shape[1]:
            return self
        order, begins = self._by_context
        lengths = np.diff(begins)[chosen]
        entries = np.sort(order[ranges(begins[chosen], lengths)])
        numbers = np.zeros(self.shape[1], np.intp)
        numbers[chosen] = np.arange(len(chosen))
        shape = (self.shape[0], len(chosen))
        return _of_sorted(self.ads[entries], numbers[self.contexts[entries]], self.values[entries], shape)

    def at_entries_of(self, other: Rates) -> Floats:
        """The numbers of this matrix at the entries of another one of the same shape."""
        if self.shape != other.shape:
            raise ValueError(f"matrices must have one shape: got {self.shape} beside {other.shape}")
        if np.array_equal(self.ads, other.ads) and np.array_equal(self.contexts, other.contexts):
            return self.values
        places, wanted = (each.ads * self.shape[1] + each.contexts for each in (self, other))
        found = np.searchsorted(places, wanted)
        known = found < len(places)
        known[known] = places[found[known]] == wanted[known]
        values = np.zeros(len(wanted))
        values[known] = self.values[found[known]]
        return values

    def with_values(self, values: Floats) -> Rates:
        """The matrix with other numbers, all finite and at least 0, at the same entries."""
        changed = _of_sorted(self.ads, self.contexts, values, self.shape)
        changed.__dict__["starts"], changed.__dict__["lengths"] = self.starts, self.lengths
        return changed

    @cached_property
    def starts(self) -> Integers:
        """The first entry of each ad that has any."""
        return np.flatnonzero(np.diff(self.ads, prepend=-1))

    @cached_property
    def lengths(self) -> Integers:
        """The number of entries of each of these ads."""
        return np.diff(self.starts, append=len(self.ads))

    @cached_property
    def _by_context(self) -> tuple[Integers, Integers]:
        """The entries in the order of their contexts, and where each context begins there."""
        small = self.contexts.astype(np.uint16) if self.shape[1] <= 2**16 else self.contexts  # sorted by digits
        lengths = np.bincount(self.contexts, minlength=self.shape[1])
        return np.argsort(small, kind="stable"), np.concatenate([[0], np.cumsum(lengths)])

    def _keep(self, ads: Integers, contexts: Integers, values: Floats, shape: tuple[int, int]) -> None:
        self.ads, self.contexts, self.values, self.shape = ads, contexts, values, shape
        for array in (ads, contexts, values):
            array.setflags(write=False)


def not_negative(name: str, values: ArrayLike, size: int) -> Floats:
    """So many finite numbers of at least 0.

    Raises:
        ValueError: There are more or fewer, or one is negative or not finite.
    """
    numbers = np.asarray(values, np.float64)
    if numbers.shape != (size,):
        raise ValueError(f"{name} must be {size} numbers: got an array of shape {numbers.shape}")
    if (wrong := _unusable(numbers)).size:
        raise ValueError(f"{name} must be finite numbers of at least 0: got {numbers[wrong[0]]} at {wrong[0]}")
    return numbers


def ranges(begins: Integers, lengths: Integers) -> Integers:
    """The integers of several ranges, one range after the other."""
    offsets = np.cumsum(lengths) - lengths
    numbers = np.repeat(begins - offsets, lengths)
    numbers += np.arange(len(numbers))
    return numbers


def _numbers(name: str, values: ArrayLike, size: int) -> Integers:
    """Numbers of ads or contexts, all below a size."""
    numbers = np.array(values)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(f"numbers of {name}s must be a list of integers: got {numbers.dtype} of shape {numbers.shape}")
    if (wrong := np.flatnonzero((numbers < 0) | (numbers >= size))).size:
        raise ValueError(f"the number of each {name} must lie in [0, {size}): got {numbers[wrong[0]]}")
    return numbers.astype(np.intp, copy=False)


def _unusable(numbers: Floats) -> Integers:
    """The places of negative numbers, and of those that are not finite."""
    return np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))


def _of_sorted(ads: Integers, contexts: Integers, values: Floats, shape: tuple[int, int]) -> Rates:
    """The matrix of valid entries in their order."""
    matrix = Rates.__new__(Rates)
    matrix._keep(ads, contexts, values, shape)  # noqa: SLF001  # the same module
    return matrix
