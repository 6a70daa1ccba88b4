"""Hierarchies and cuts that the phones of a process share: those of equal files and equal settings are one."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reticent.hierarchy import Context, Hierarchy, Node, level_cut, lowest_cut

__all__ = ["UserCut", "nodes_above", "parents_of", "read_hierarchy", "uniform_cut"]

Event = Context | Node


class UserCut:
    """The cut of a user, and what it discloses.

    Args:
        hierarchy: The hierarchy.
        events: The sensitive contexts, and nodes whose contexts are sensitive.
        delta: The service's belief in each of them rises at most by this; None with a level.
        level: The level to which each context is generalised.
        prior: (contexts,): the probability of each context before any request; uniform if None.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        events: tuple[Event, ...],
        delta: float | None,
        level: int | None,
        prior: npt.NDArray[np.float64] | None = None,
    ) -> None:
        self._events = events
        self._prior = prior
        self.cut = lowest_cut(hierarchy, events, delta, prior) if level is None else level_cut(hierarchy, level)
        self.nodes: frozenset[int] = frozenset(self.cut.indices.tolist())
        """The numbers of its nodes."""

    @cached_property
    def disclosure(self) -> dict[str, float]:
        """The largest increase of the service's belief in each sensitive event, by its text."""
        found = self.cut.disclosure(self._events, self._prior)
        return {str(event) if isinstance(event, Node) else ", ".join(event): rise for event, rise in found.items()}


uniform_cut = lru_cache(maxsize=64)(UserCut)
"""The cut of these settings, without a prior; the last ones are kept."""


def read_hierarchy(path: Path) -> Hierarchy:
    """The hierarchy of a file: one object for all files with the same content.

    Raises:
        ValueError: The file holds no hierarchy.
    """
    content = path.read_bytes()
    try:
        return _hierarchy(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@lru_cache(maxsize=2)
def _hierarchy(content: bytes) -> Hierarchy:
    return Hierarchy.from_text(content)


@lru_cache(maxsize=4096)
def nodes_above(hierarchy: Hierarchy, values: Context) -> tuple[int, ...]:
    """The numbers of the nodes at or above a context that the hierarchy has, the lowest first.

    Raises:
        ValueError: The values are those of no context.
    """
    return tuple(map(hierarchy.index, hierarchy.ancestors(values)))


@lru_cache(maxsize=2)
def parents_of(hierarchy: Hierarchy) -> list[int]:
    """The number of each node's parent, -1 for the root."""
    found: list[int] = hierarchy.parents.tolist()
    return found
