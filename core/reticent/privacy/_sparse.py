"""Counters of many simulated phones, of which most are 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reticent.privacy._fitting import Integers
from reticent.privacy._query import Query

__all__ = ["SparseRows"]


@dataclass(frozen=True)
class SparseRows:
    """A row of counters for each phone: the entries that are not 0. No place occurs twice.

    Args:
        phones: The number of rows.
        row: The row of each entry.
        column: Its column.
        value: Its value.

    >>> SparseRows(2, np.array([1, 1]), np.array([0, 2]), np.array([3.0, 1.0])).dense(3).tolist()
    [[0.0, 0.0, 0.0], [3.0, 0.0, 1.0]]
    """

    phones: int
    row: npt.NDArray[np.intp]
    column: npt.NDArray[np.intp]
    value: npt.NDArray[np.generic]

    def __len__(self) -> int:
        return self.phones

    def dense(self, columns: int) -> npt.NDArray[np.generic]:
        """The rows as an array with so many columns."""
        rows = np.zeros((self.phones, columns), dtype=self.value.dtype)
        rows[self.row, self.column] = self.value
        return rows

    def fit(self, query: Query, used: tuple[Integers, Integers]) -> SparseRows:
        """The contributions of the phones: what `Query.fit` returns for these rows, in steps of the grid.

        Args:
            query: The query.
            used: The norms of each phone's contributions to other queries of the sequence.
        """
        if len(self.column) and not 0 <= self.column.min() <= self.column.max() < query.size:
            raise ValueError(f"{query.id!r} has {query.size} counters: got columns up to {self.column.max()}")
        fitted = SparseRows(self.phones, self.row, self.column, query.steps(self.value, self.column))
        norms = fitted.norms()
        excessive = [size + before > bound for size, before, bound in zip(norms, used, query.norms, strict=True)]
        many = excessive[0] | excessive[1]  # (phones,): they are scaled down
        if not many.any():
            return fitted
        place, rows = np.flatnonzero(many), np.cumsum(many) - 1
        theirs = many[self.row]
        few = SparseRows(len(place), rows[self.row[theirs]], self.column[theirs], self.value[theirs])
        scaled = query.fit(few.dense(query.size), used=(used[0][many], used[1][many]))
        row, column = np.nonzero(scaled)
        return SparseRows(
            self.phones,
            np.concatenate([self.row[~theirs], place[row]]),
            np.concatenate([self.column[~theirs], column]),
            np.concatenate([fitted.value[~theirs], scaled[row, column]]),
        )

    def norms(self) -> tuple[Integers, Integers]:
        """The L1 norm and the squared L2 norm of each row of whole numbers."""
        sizes = np.abs(self.value.astype(np.int64))
        l1, l2_squared = np.zeros((2, self.phones), dtype=np.int64)
        np.add.at(l1, self.row, sizes)
        np.add.at(l2_squared, self.row, sizes * sizes)
        return l1, l2_squared

    def sums(self, group: npt.NDArray[np.integer], groups: int, columns: int) -> Integers:
        """The sums of whole numbers by the group of each row; rows of a negative group are left out.

        Returns:
            Sums.  # (groups, columns)
        """
        sums = np.zeros((groups, columns), dtype=np.int64)
        own = group[self.row]
        kept = own >= 0
        np.add.at(sums, (own[kept], self.column[kept]), self.value[kept].astype(np.int64))
        return sums
