"""The values of all contexts at all levels, and the order of contexts along the paths from the root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from reticent.hierarchy._attributes import Attribute
from reticent.hierarchy._node import Context

Numbers = npt.NDArray[np.int64]

_SHOWN = 80  # characters of a refused context that an error shows


class Column:
    """The values of an attribute in all contexts, at all its levels."""

    def __init__(self, attribute: Attribute, values: Sequence[str]) -> None:
        numbers: dict[str, int] = {}  # of distinct values
        paths: list[tuple[str, ...]] = []
        for position, value in enumerate(values):
            if value not in numbers:
                numbers[value] = len(paths)
                try:
                    paths.append(attribute.path(value))
                except ValueError as error:
                    raise ValueError(f"context {position}: {error}") from error
        inverse = np.array([numbers[value] for value in values])
        self.texts: list[list[str]] = []  # [level] -> the distinct values, sorted
        self.codes: list[Numbers] = []  # [level] -> (contexts,): the position in them
        for texts in zip(*paths, strict=True):
            known = sorted(set(texts))
            ranks = {text: rank for rank, text in enumerate(known)}
            self.texts.append(known)
            self.codes.append(np.array([ranks[text] for text in texts])[inverse])

    def sort(self, order: Numbers) -> None:
        """Put the contexts in another order."""
        self.codes = [codes[order] for codes in self.codes]

    def values(self, level: int, contexts: npt.NDArray[np.integer]) -> Iterator[str]:
        """The values of contexts at a level."""
        return map(self.texts[level].__getitem__, self.codes[level][contexts].tolist())


def ranks_by_path(columns: Sequence[Column], sequence: Sequence[tuple[int, ...]]) -> Numbers:
    """(levels + 1, contexts): the rank of each context's node in its level, by the path from the root. It is last."""
    ranks = np.zeros((len(sequence) + 1, len(columns[0].codes[0])), dtype=np.int64)
    above: Sequence[int | None] = [None] * len(columns)
    for level in range(len(sequence) - 1, -1, -1):
        rank = ranks[level + 1]
        for column, coarse, fine in zip(columns, above, sequence[level], strict=True):
            if fine != coarse:
                rank = np.unique(rank * len(column.texts[fine]) + column.codes[fine], return_inverse=True)[1]
        ranks[level], above = rank, sequence[level]
    return ranks


def refuse_duplicates(ranks: Numbers, order: Numbers, contexts: Sequence[Context]) -> None:
    """Raise `ValueError` if two contexts have the same rank."""
    same = np.flatnonzero(np.diff(ranks[order]) == 0)
    if same.size:
        one, other = order[same[0]], order[same[0] + 1]
        raise ValueError(f"context {other} repeats context {one}: {contexts[one]!r:.{_SHOWN}}")
