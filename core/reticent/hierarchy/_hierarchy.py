"""The hierarchy of a public list of contexts: attributes generalise one at a time (Götz, sections 4.4.1 and 5.5.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, repeat
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from reticent.arguments import whole
from reticent.hierarchy._attributes import Attribute, UnknownCategory, attribute_of
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
    nodes: tuple[Node, ...]
    """All nodes, in the order of their numbers."""
    contexts: tuple[Context, ...]
    """The exact contexts, in the order of their numbers."""
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
        sequence: Iterable[Iterable[int]] = DEFAULT_SEQUENCE,
    ) -> None:
        self.attributes = _checked_attributes(attributes)
        self.sequence = _checked_sequence(sequence, self.attributes)
        given = _checked_contexts(contexts, self.attributes)
        generalised = [_Column(*each) for each in zip(self.attributes, zip(*given, strict=True), strict=True)]
        groups = _groups(generalised, self.sequence, len(given))
        order = np.argsort(groups[0], kind="stable")
        _refuse_duplicates(groups[0], order, given)
        groups = groups[:, order]
        nodes = [Node(len(self.sequence), ())]
        parents, starts, ends = ([np.array([each])] for each in (-1, 0, len(given)))
        above = 0  # the number of the first node of the level above
        for level in range(len(self.sequence) - 1, -1, -1):
            begins = np.flatnonzero(np.diff(groups[level], prepend=-1))
            texts = [each.texts(i, order[begins]) for each, i in zip(generalised, self.sequence[level], strict=True)]
            parents.append(groups[level + 1, begins] + above)
            above = len(nodes)
            nodes.extend(map(Node, repeat(level), zip(*texts, strict=True)))
            starts.append(begins)
            ends.append(np.append(begins[1:], len(given)))
        self.nodes = tuple(nodes)
        self.contexts = tuple(node.values for node in nodes[above:])
        self.parents = _numbers(np.concatenate(parents))
        self.leaf_starts = _numbers(np.concatenate(starts))
        self.leaf_ends = _numbers(np.concatenate(ends))
        self.node_levels = _numbers(np.repeat(np.arange(len(self.sequence), -1, -1), [len(each) for each in starts]))
        self.leaves = _numbers(np.arange(above, len(nodes)))

    @property
    def height(self) -> int:
        """The number of levels, with the root and the exact contexts."""
        return len(self.sequence) + 1

    def depth_of(self, level: int) -> int:
        """The number of steps from the root down to a level."""
        return len(self.sequence) - self._checked_level(level)

    @cached_property
    def _numbers_of_nodes(self) -> dict[Node, int]:
        return {node: number for number, node in enumerate(self.nodes)}

    def index(self, node: Node) -> int:
        """The number of a node; `ValueError` for one that does not exist."""
        try:
            return self._numbers_of_nodes[node]
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
        checked = self._checked_level(level)
        start, stop = np.searchsorted(-self.node_levels, [-checked, 1 - checked])
        return slice(int(start), int(stop))

    @cached_property
    def leaf_counts(self) -> Numbers:
        """(nodes,): the number of contexts below each node."""
        return _numbers(self.leaf_ends - self.leaf_starts)

    def children(self, index: int) -> Numbers:
        """The numbers of a node's children, which follow each other."""
        start, stop = np.searchsorted(self.parents, [index, index + 1])
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
        levels = (self.leaf_starts[self.nodes_at(level)] for level in range(len(self.sequence), -1, -1))
        return np.concatenate([np.add.reduceat(numbers, starts) for starts in levels])

    def ancestors(self, context: Context) -> tuple[Node, ...]:
        """The nodes above a context, the exact one first and the root last.

        Of a context that the hierarchy does not have, the nodes that it has: at least the root.

        Raises:
            ValueError: The context has another number of values, or a malformed one.
        """
        values = _checked_context("the context", context, self.attributes)
        try:
            paths = [attribute.path(value) for attribute, value in zip(self.attributes, values, strict=True)]
        except UnknownCategory:
            return self.nodes[:1]
        nodes = (
            Node(number, tuple(path[level] for path, level in zip(paths, levels, strict=True)))
            for number, levels in enumerate(self.sequence)
        )
        return (*(node for node in nodes if node in self._numbers_of_nodes), self.nodes[0])

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 in hexadecimal: two hierarchies with the same one are the same."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hierarchy) and self.to_text() == other.to_text()

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

    def _checked_level(self, level: int) -> int:
        if not 0 <= (number := whole("a level", level)) <= len(self.sequence):
            raise ValueError(f"the levels are 0 to {len(self.sequence)}: got {number}")
        return number


class _Column:
    """The values of an attribute in all contexts, at all its levels."""

    def __init__(self, attribute: Attribute, values: Sequence[str]) -> None:
        paths = {}
        for value in values:
            if value not in paths:
                try:
                    paths[value] = attribute.path(value)
                except ValueError as error:
                    raise ValueError(f"context {values.index(value)}: {error}") from error
        places = {value: place for place, value in enumerate(paths)}
        inverse = np.fromiter(map(places.__getitem__, values), np.int64, len(values))
        self._texts = [sorted(set(texts)) for texts in zip(*paths.values(), strict=True)]
        self.codes = []  # [level] -> (contexts,): the number of the text
        for texts, known in zip(zip(*paths.values(), strict=True), self._texts, strict=True):
            ranks = {text: rank for rank, text in enumerate(known)}
            self.codes.append(np.fromiter(map(ranks.__getitem__, texts), np.int64, len(paths))[inverse])

    def size(self, level: int) -> int:
        """The number of texts at a level."""
        return len(self._texts[level])

    def texts(self, level: int, contexts: npt.NDArray[np.intp]) -> list[str]:
        """The values of contexts at a level."""
        return [self._texts[level][code] for code in self.codes[level][contexts].tolist()]


def _groups(columns: Sequence[_Column], sequence: Sequence[tuple[int, ...]], contexts: int) -> npt.NDArray[np.int64]:
    """(levels + 1, contexts): the rank of each context's node among those of a level, by the path from the root."""
    groups = np.zeros((len(sequence) + 1, contexts), dtype=np.int64)
    above: Sequence[int | None] = [None] * len(columns)
    for level in range(len(sequence) - 1, -1, -1):
        group = groups[level + 1]
        for column, coarse, fine in zip(columns, above, sequence[level], strict=True):
            if fine != coarse:
                group = np.unique(group * column.size(fine) + column.codes[fine], return_inverse=True)[1]
        groups[level], above = group, sequence[level]
    return groups


def _checked_attributes(attributes: Iterable[Attribute]) -> tuple[Attribute, ...]:
    checked = tuple(attributes)
    names = [attribute.name for attribute in checked]
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"a hierarchy needs attributes with different names: got {names!r:.{_SHOWN}}")
    return checked


def _checked_sequence(
    sequence: Iterable[Iterable[int]], attributes: Sequence[Attribute]
) -> tuple[tuple[int, ...], ...]:
    """The sequence, which begins with zeros and raises one attribute at each step."""
    checked = tuple(
        tuple(whole(f"level {number} of the sequence", each) for each in levels)
        for number, levels in enumerate(sequence)
    )
    if not checked or any(checked[0]):
        raise ValueError(f"a sequence begins with zeros: got {checked[:1]!r:.{_SHOWN}}")
    for number, levels in enumerate(checked):
        if len(levels) != len(attributes):
            raise ValueError(
                f"level {number} of the sequence needs {len(attributes)} numbers, one an attribute: got {levels}"
            )
        for level, attribute in zip(levels, attributes, strict=True):
            if not 0 <= level < attribute.levels:
                raise ValueError(
                    f"level {number} of the sequence: {attribute.name!r} has levels 0 to {attribute.levels - 1}: "
                    f"got {level}"
                )
    for number, (below, levels) in enumerate(pairwise(checked), start=1):
        steps = [level - former for former, level in zip(below, levels, strict=True) if level != former]
        if len(steps) != 1 or steps[0] < 0:
            raise ValueError(f"each step of a sequence raises one attribute: level {number} is {levels} after {below}")
    return checked


def _checked_contexts(contexts: Iterable[Context], attributes: Sequence[Attribute]) -> list[Context]:
    if isinstance(contexts, str | bytes | Mapping):
        raise ValueError(f"contexts are a list: got {contexts!r:.{_SHOWN}}")
    checked = [_checked_context(f"context {number}", context, attributes) for number, context in enumerate(contexts)]
    if not checked:
        raise ValueError("a hierarchy needs at least one context")
    return checked


def _checked_context(title: str, context: object, attributes: Sequence[Attribute]) -> Context:
    if (
        not isinstance(context, tuple | list)
        or len(context) != len(attributes)
        or not all(isinstance(each, str) for each in context)
    ):
        names = ", ".join(attribute.name for attribute in attributes)
        raise ValueError(f"{title} must have a text for each of {names}: got {context!r:.{_SHOWN}}")
    return tuple(context)


def _refuse_duplicates(ranks: npt.NDArray[np.int64], order: npt.NDArray[np.intp], contexts: Sequence[Context]) -> None:
    same = np.flatnonzero(np.diff(ranks[order]) == 0)
    if same.size:
        one, other = order[same[0]], order[same[0] + 1]
        raise ValueError(f"context {other} repeats context {one}: {contexts[one]!r:.{_SHOWN}}")


def _numbers(values: npt.ArrayLike) -> Numbers:
    numbers = np.asarray(values).astype(np.int32)
    numbers.flags.writeable = False
    return numbers
