"""The hierarchy of a public list of contexts: attributes generalise one at a time (Götz, sections 4.4.1 and 5.5.2)."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from reticent.arguments import whole
from reticent.hierarchy._attributes import Attribute, UnknownCategory, attribute_of
from reticent.hierarchy._checks import checked_attributes, checked_context, checked_contexts, checked_sequence
from reticent.hierarchy._columns import Column, ranks_by_path, refuse_duplicates
from reticent.hierarchy._node import Context, Node
from reticent.storage import files
from reticent.storage.documents import DocumentFormat

__all__ = ["DEFAULT_SEQUENCE", "Hierarchy"]

DEFAULT_SEQUENCE = (
    (0, 0, 0),
    (0, 0, 1),
    (0, 1, 1),
    (1, 1, 1),
    (1, 2, 1),
    (2, 2, 1),
    (3, 2, 1),
    (3, 2, 2),
    (4, 2, 2),
)
"""The levels of location, interest and query at each level of the hierarchy, as in the thesis."""

FORMAT = DocumentFormat("reticent-hierarchy", 1, "a hierarchy")
_SHOWN = 80  # characters of a refused context that an error shows

Numbers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class Hierarchy:
    r"""All contexts that exist, and their generalisations up to the root.

    Nodes and contexts have numbers, the same in every hierarchy with the same fingerprint: `contexts` is sorted by the
    path from the root, whatever the order in which the contexts were given. The root is node 0, and the nodes of a
    level follow those of the level above. The children of a node have consecutive numbers, as have the contexts below
    it.

    Args:
        attributes: The attributes of a context.
        contexts: The public list of all exact contexts.
        sequence: For each level of the hierarchy, the level of each attribute. It begins with zeros, and each step
            raises one attribute. The root follows the last entry.

    >>> from reticent.hierarchy import Decimals, Tree
    >>> shops = {"espresso": "cafe", "latte": "cafe", "sushi": "restaurant"}
    >>> tree = Tree("query", 2, shops)
    >>> hierarchy = Hierarchy([Decimals("location"), tree], [
    ...     ("40.7271,-73.9910", "latte"), ("40.7271,-73.9910", "espresso"), ("40.7299,-73.9910", "sushi"),
    ... ], [(0, 0), (0, 1), (4, 1)])
    >>> print(*hierarchy.nodes[:4], sep="\n")
    3
    2|40.7,-73.9|cafe
    2|40.7,-73.9|restaurant
    1|40.7271,-73.9910|cafe
    >>> hierarchy.children(1), hierarchy.leaves_below(1)
    (array([3], dtype=int32), slice(0, 2, None))
    >>> [str(node) for node in hierarchy.ancestors(("40.7271,-73.9910", "latte"))]
    ['0|40.7271,-73.9910|latte', '1|40.7271,-73.9910|cafe', '2|40.7,-73.9|cafe', '3']
    """

    attributes: tuple[Attribute, ...]
    sequence: tuple[tuple[int, ...], ...]
    parents: Numbers
    """(nodes,): the number of each node's parent, -1 for the root. They never decrease."""
    node_levels: Numbers
    """(nodes,): the level of each node."""
    leaves: Numbers
    """(contexts,): the node of each exact context."""
    leaf_starts: Numbers
    """(nodes,): the first context below each node."""
    leaf_ends: Numbers
    """(nodes,): the end of the contexts below each node."""

    def __init__(
        self,
        attributes: Iterable[Attribute],
        contexts: Iterable[Context],
        sequence: Iterable[Sequence[int]] = DEFAULT_SEQUENCE,
    ) -> None:
        self.attributes = checked_attributes(attributes)
        self.sequence = checked_sequence(sequence, self.attributes)
        given = checked_contexts(contexts, self.attributes)
        self._columns = [Column(*each) for each in zip(self.attributes, zip(*given, strict=True), strict=True)]
        ranks = ranks_by_path(self._columns, self.sequence)  # (levels, contexts), the root last
        order = np.argsort(ranks[0], kind="stable")
        refuse_duplicates(ranks[0], order, given)
        for column in self._columns:
            column.sort(order)
        levels = ranks[::-1, order]  # from the root down
        starts = [np.flatnonzero(np.diff(level, prepend=-1)) for level in levels]
        self._firsts = [0, *np.cumsum([len(each) for each in starts]).tolist()]
        parents = [
            above[begins] + first for above, begins, first in zip(levels, starts[1:], self._firsts, strict=False)
        ]
        self.parents = _frozen(np.concatenate([[-1], *parents]))
        self.leaf_starts = _frozen(np.concatenate(starts))
        self.leaf_ends = _frozen(np.concatenate([np.append(each[1:], len(given)) for each in starts]))
        self.node_levels = _frozen(np.repeat(np.arange(len(starts))[::-1], np.diff(self._firsts)))
        self.leaves = _frozen(np.arange(self._firsts[-2], self._firsts[-1]))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order of their numbers."""
        nodes = [Node(len(self.sequence), ())]
        for level in range(len(self.sequence) - 1, -1, -1):
            nodes.extend(map(Node, repeat(level), self._values(level)))
        return tuple(nodes)

    @cached_property
    def contexts(self) -> tuple[Context, ...]:
        """The exact contexts, in the order of their numbers."""
        return tuple(self._values(0))

    def _values(self, level: int) -> Iterator[tuple[str, ...]]:
        """The values of the nodes of a level."""
        leaves = self.leaf_starts[self.nodes_at(level)]
        levels = self.sequence[level]
        return zip(*(column.values(i, leaves) for column, i in zip(self._columns, levels, strict=True)), strict=True)

    @property
    def height(self) -> int:
        """The number of levels, with the root and the exact contexts."""
        return len(self.sequence) + 1

    def depth_of(self, level: int) -> int:
        """The number of steps from the root down to a level."""
        if not 0 <= (number := whole("a level", level)) <= len(self.sequence):
            raise ValueError(f"the levels are 0 to {len(self.sequence)}: got {number}")
        return len(self.sequence) - number

    @cached_property
    def _numbers(self) -> dict[Node, int]:
        return {node: number for number, node in enumerate(self.nodes)}

    def index(self, node: Node) -> int:
        """The number of a node; `ValueError` for one that does not exist."""
        try:
            return self._numbers[node]
        except (KeyError, TypeError):
            raise ValueError(f"the hierarchy has no node {str(node)!r:.{_SHOWN}}") from None

    def leaf(self, context: Context) -> int:
        """The number of a context; `ValueError` for one that does not exist."""
        exact = self.ancestors(context)[0]
        if exact.level != 0:
            raise ValueError(f"the hierarchy has no context {context!r:.{_SHOWN}}")
        return self.index(exact) - int(self.leaves[0])

    def at_level(self, level: int) -> Numbers:
        """(contexts,): the number of each context's node at a level."""
        inside = self.nodes_at(level)
        return np.repeat(np.arange(inside.start, inside.stop, dtype=np.int32), self.leaf_counts[inside])

    def nodes_at(self, level: int) -> slice:
        """The numbers of the nodes of a level."""
        depth = self.depth_of(level)
        return slice(self._firsts[depth], self._firsts[depth + 1])

    @cached_property
    def leaf_counts(self) -> Numbers:
        """(nodes,): the number of contexts below each node."""
        return _frozen(self.leaf_ends - self.leaf_starts)

    def children(self, index: int) -> Numbers:
        """The numbers of a node's children, which follow each other."""
        start, stop = np.searchsorted(self.parents, np.array([index, index + 1], dtype=np.int32))
        return np.arange(start, stop, dtype=np.int32)

    def leaves_below(self, index: int) -> slice:
        """The contexts at or below a node."""
        return slice(int(self.leaf_starts[index]), int(self.leaf_ends[index]))

    def sums(self, values: npt.ArrayLike) -> Floats:
        """(nodes,): the sum of the contexts' values (contexts,) at or below each node."""
        numbers = np.asarray(values, dtype=np.float64)
        if numbers.shape != (len(self.contexts),):
            raise ValueError(
                f"there is one value for each of the {len(self.contexts)} contexts: got shape {numbers.shape}"
            )
        levels = np.split(self.leaf_starts, self._firsts[1:-1])
        return np.concatenate([np.add.reduceat(numbers, starts) for starts in levels])

    def ancestors(self, context: Context) -> tuple[Node, ...]:
        """The nodes above a context, the exact one first and the root last.

        Of a context that the hierarchy does not have, the nodes that it has: at least the root.

        Raises:
            ValueError: The context has another number of values, or a malformed one.
        """
        values = checked_context("the context", context, self.attributes)
        paths = []
        for attribute, value in zip(self.attributes, values, strict=True):
            with contextlib.suppress(UnknownCategory):
                paths.append(attribute.path(value))
        if len(paths) < len(values):
            return self.nodes[:1]
        nodes = (
            Node(number, tuple(path[level] for path, level in zip(paths, levels, strict=True)))
            for number, levels in enumerate(self.sequence)
        )
        return (*(node for node in nodes if node in self._numbers), self.nodes[0])

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 in hexadecimal: two hierarchies with the same one are the same."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hierarchy) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        names = ", ".join(attribute.name for attribute in self.attributes)
        return f"<hierarchy of {names}: {len(self.contexts)} contexts, {len(self.nodes)} nodes>"

    def to_text(self) -> str:
        """The hierarchy as one line of JSON, equal for equal ones."""
        content = {
            "attributes": [attribute.to_json() for attribute in self.attributes],
            "sequence": self.sequence,
            "contexts": self.contexts,
        }
        return FORMAT.text(content)

    @classmethod
    def from_text(cls, text: str | bytes) -> Self:
        """The hierarchy of a text; `ValueError` names what is wrong."""
        match FORMAT.parse(text):
            case {"attributes": list(attributes), "sequence": list(sequence), "contexts": list(contexts), **rest}:
                if not rest:
                    return cls(map(attribute_of, attributes), contexts, sequence)
        raise ValueError('a hierarchy has the lists "attributes", "sequence" and "contexts", and nothing else')

    def save(self, path: str | Path) -> None:
        """Write the text, whole or not at all."""
        files.replace(Path(path), (self.to_text() + "\n").encode(), files.PUBLIC)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The hierarchy of a file; `ValueError` names the file and what is wrong."""
        content = Path(path).read_bytes()
        try:
            return cls.from_text(content)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def _frozen(values: npt.ArrayLike) -> Numbers:
    numbers = np.asarray(values).astype(np.int32)
    numbers.flags.writeable = False
    return numbers
