"""Cuts through a hierarchy, and the belief in sensitive contexts that they allow (Götz, section 3.1 and theorem 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from reticent.arguments import checked_delta
from reticent.hierarchy._hierarchy import Floats, Hierarchy, Numbers
from reticent.hierarchy._node import Context, Node

__all__ = ["Cut", "Event", "level_cut", "lowest_cut"]

Event: TypeAlias = Context | Node
"""Being in a context, or in any context at or below a node."""

TOLERANCE = 1e-9
"""By this much, rounding may raise a belief above its bound."""

_PRIOR_TOLERANCE = 1e-6

Bools = npt.NDArray[np.bool_]


class Cut:
    """Nodes such that every context has exactly one of them at or above it: what the context generalises to.

    Args:
        hierarchy: The hierarchy.
        nodes: The nodes of the cut.
    """

    node_of: Numbers
    """(contexts,): the number of each context's node on the cut."""

    def __init__(self, hierarchy: Hierarchy, nodes: Iterable[Node]) -> None:
        indices = np.array([hierarchy.index(node) for node in nodes], dtype=np.int32)
        self.hierarchy = hierarchy
        ordered = indices[np.argsort(hierarchy.leaf_starts[indices], kind="stable")]
        starts, ends = hierarchy.leaf_starts[ordered], hierarchy.leaf_ends[ordered]
        bounds = np.concatenate([[0], ends]), np.concatenate([starts, [len(hierarchy.contexts)]])
        wrong = np.flatnonzero(bounds[0] != bounds[1])
        if wrong.size:
            end, start = (int(each[wrong[0]]) for each in bounds)
            number = "no node" if end < start else "several nodes"
            raise ValueError(
                f"the cut has {number} at or above the context {hierarchy.contexts[min(end, start)]!r:.80}"
            )
        self.node_of = np.repeat(ordered.astype(np.int32), ends - starts)
        self.node_of.flags.writeable = False

    @cached_property
    def indices(self) -> Numbers:
        """The numbers of the nodes, ascending."""
        return np.unique(self.node_of)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in the order of their numbers."""
        return tuple(self.hierarchy.nodes[index] for index in self.indices)

    @cached_property
    def _members(self) -> frozenset[Node]:
        return frozenset(self.nodes)

    def generalise(self, context: Context) -> Node:
        """The node of the cut that is at or above a context.

        A context that the hierarchy does not have may have no known node on the cut. Then this is its lowest known one,
        which is above the cut.
        """
        ancestors = self.hierarchy.ancestors(context)
        return next((node for node in ancestors if node in self._members), ancestors[0])

    def disclosure(
        self, sensitive: Iterable[Event] | Mapping[Event, float], prior: npt.ArrayLike | None = None
    ) -> dict[Event, float]:
        """The largest increase of the belief in each event, when its generalised context becomes known.

        A node that the prior rules out, and that has a context of the event, counts as an increase to certainty of 1.

        Args:
            sensitive: The events.
            prior: (contexts,) the probability of each context; uniform if None.
        """
        hierarchy, events = self.hierarchy, list(sensitive)
        masses, tops = _masses(hierarchy, prior), _tops(hierarchy, events)
        starts, ends = hierarchy.leaf_starts[tops], hierarchy.leaf_ends[tops]
        impossible = np.concatenate([[0], np.cumsum(masses[self.node_of] == 0)])
        rises = _rises(masses, tops, self.node_of[starts])
        return dict(zip(events, np.where(impossible[ends] > impossible[starts], 1.0, rises).tolist(), strict=True))


def level_cut(hierarchy: Hierarchy, level: int) -> Cut:
    """The cut through all nodes of a level."""
    return Cut(hierarchy, hierarchy.nodes[hierarchy.nodes_at(level)])


def lowest_cut(
    hierarchy: Hierarchy,
    sensitive: Iterable[Event] | Mapping[Event, float],
    delta: float | None = None,
    prior: npt.ArrayLike | None = None,
) -> Cut:
    """The most specific cut that raises the belief in no sensitive event by more than its delta.

    There is one: every other such cut is above it. The belief in an event given a node is a mean of those given its
    children, so if a node raises it too far, one of its children does.

    Args:
        hierarchy: The hierarchy.
        sensitive: The events, or the events with a delta for each.
        delta: Of all events, unless each has its own.
        prior: (contexts,) the probability of each context in the adversary's eyes; uniform if None. A node that it
            rules out is not on the cut if it has a context of an event.

    >>> from reticent.hierarchy import Decimals
    >>> spots = [(f"0.{number},0",) for number in range(10)] + [("1.0,0",), ("1.5,0",)]
    >>> hierarchy = Hierarchy([Decimals("location")], spots, [(0,), (4,), (5,)])
    >>> cut = lowest_cut(hierarchy, [("1.5,0",)], delta=0.42)
    >>> len(cut.nodes), cut.generalise(("1.5,0",)), cut.disclosure([("1.5,0",)])
    (11, Node(level=2, values=('1,0',)), {('1.5,0',): 0.4166666666666667})
    """
    events = list(sensitive)
    bounds = _bounds(sensitive, events, delta)
    masses, tops = _masses(hierarchy, prior), _tops(hierarchy, events)
    within = np.zeros(len(masses), dtype=np.bool_)  # at or below an event
    within[tops] = True
    for level in range(len(hierarchy.sequence) - 1, -1, -1):
        here = hierarchy.nodes_at(level)
        within[here] |= within[hierarchy.parents[here]]
    refused = within & (masses == 0)
    nodes = tops
    while len(nodes):  # up to the root; what is below a refused event is never reached
        refused[nodes[_rises(masses, tops, nodes) > bounds]] = True
        inner = hierarchy.parents[nodes] >= 0
        nodes, tops, bounds = hierarchy.parents[nodes[inner]], tops[inner], bounds[inner]
    return Cut(hierarchy, [hierarchy.nodes[number] for number in _lowest(hierarchy, refused)])


def _lowest(hierarchy: Hierarchy, refused: Bools) -> Iterable[int]:
    """The lowest cut without a refused node; the root is never refused."""
    ends = np.ones(len(refused), dtype=np.bool_)  # whose children are not all allowed, or who have none
    ends[hierarchy.parents[1:]] = False
    ends[hierarchy.parents[1:][refused[1:]]] = True
    reached = np.zeros(len(refused), dtype=np.bool_)
    reached[0] = True
    for level in range(len(hierarchy.sequence) - 1, -1, -1):
        here = hierarchy.nodes_at(level)
        above = hierarchy.parents[here]
        reached[here] = reached[above] & ~ends[above]
    return np.flatnonzero(reached & ends).tolist()


def _rises(masses: Floats, events: Numbers, nodes: Numbers) -> Floats:
    """The increase of the belief in each event given a node above or below it; infinite if that is ruled out."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rises = np.minimum(masses[events] / masses[nodes], 1.0) - masses[events] / masses[0]
    return np.where(masses[nodes] > 0, rises, np.inf)


def _masses(hierarchy: Hierarchy, prior: npt.ArrayLike | None) -> Floats:
    """(nodes,): the probability of each node, up to a factor; numbers of contexts if the prior is uniform."""
    if prior is None:
        return hierarchy.leaf_counts.astype(np.float64)
    numbers = np.asarray(prior, dtype=np.float64)
    if not (np.isfinite(numbers).all() and (numbers >= 0).all() and abs(numbers.sum() - 1) <= _PRIOR_TOLERANCE):
        raise ValueError("a prior needs numbers of at least 0 that sum to 1")
    return hierarchy.sums(numbers)


def _tops(hierarchy: Hierarchy, events: Iterable[Event]) -> Numbers:
    """(events,): the number of the node that is the event."""
    numbers = [hierarchy.index(e) if isinstance(e, Node) else int(hierarchy.leaves[hierarchy.leaf(e)]) for e in events]
    return np.array(numbers, dtype=np.int32)


def _bounds(sensitive: Iterable[Event] | Mapping[Event, float], events: Sequence[Event], delta: float | None) -> Floats:
    """(events,): the largest increase of the belief in each."""
    if isinstance(sensitive, Mapping):
        if delta is not None:
            raise ValueError("sensitive gives deltas of its own, and delta is given too: give one of the two")
        return np.array([checked_delta(each) for each in sensitive.values()]) + TOLERANCE
    return np.full(len(events), checked_delta(delta) + TOLERANCE)
