"""The attributes of contexts, and how the values of each generalise (Götz, section 4.4.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

from reticent.arguments import checked_integer
from reticent.hierarchy._node import checked_value

__all__ = ["Attribute", "Decimals", "Tree", "UnknownCategory", "attribute_of"]

_COORDINATE = r"(-?)([0-9]{1,3})(?:\.([0-9]*))?"
_PLACE = re.compile(f"{_COORDINATE},{_COORDINATE}")
_BOUNDS = (("latitude", 90), ("longitude", 180))
_TOGETHER = "+"
_MOST_DECIMALS, _MOST_LEVELS = 30, 100
_SHOWN = 60  # characters of a refused value that an error shows


class UnknownCategory(ValueError):
    """A value is well formed, but a category tree does not contain it."""


@dataclass(frozen=True)
class Decimals:
    """Places such as "40.72713,-73.99102", which lose decimals from level to level.

    Texts are truncated, never rounded, so the cells of a level lie within those of the next. The exact level keeps all
    decimals.

    Args:
        name: The name of the attribute.
        keep: The number of decimals at each level; None for the exact one, which is the first.

    >>> Decimals("location").path("40.72713,-0.04102")[3:]
    ('40.72,-0.04', '40.7,0.0', '40,0')
    """

    name: str
    keep: tuple[int | None, ...] = (None, 4, 3, 2, 1, 0)

    def __post_init__(self) -> None:
        name = checked_value("an attribute's name", self.name)
        exact, *kept = tuple(self.keep) or (0,)
        numbers = [checked_integer(f"the decimals that {name!r} keeps", each, 0) for each in kept]
        if max(numbers, default=0) > _MOST_DECIMALS:
            raise ValueError(f"{name!r} keeps at most {_MOST_DECIMALS} decimals: got {max(numbers)}")
        if exact is not None or any(one <= other for one, other in pairwise(numbers)):
            raise ValueError(f"{name!r} keeps all decimals (None), then fewer at every level: got {self.keep!r}")
        object.__setattr__(self, "keep", (None, *numbers))

    @property
    def levels(self) -> int:
        """The number of levels, with the exact one."""
        return len(self.keep)

    def path(self, value: str) -> tuple[str, ...]:
        """The value at each level, the exact one first; `ValueError` if it is not a place."""
        match = _PLACE.fullmatch(value)
        if match is None:
            raise ValueError(
                f'{self.name!r} needs a latitude and a longitude such as "40.72713,-73.99102": got {value!r:.{_SHOWN}}'
            )
        sign, whole, decimals, east_sign, east_whole, east_decimals = match.groups("")
        north = _truncated(sign, int(whole), decimals, self.keep)
        east = _truncated(east_sign, int(east_whole), east_decimals, self.keep)
        for (title, bound), text in zip(_BOUNDS, (north[0], east[0]), strict=True):
            if abs(float(text)) > bound:
                raise ValueError(f"a {title} lies in [-{bound}, {bound}]: {self.name!r} is {value!r:.{_SHOWN}}")
        return tuple(f"{one},{other}" for one, other in zip(north, east, strict=True))

    def to_json(self) -> dict[str, Any]:
        """The attribute as plain data."""
        return {"kind": "decimals", "name": self.name, "keep": list(self.keep)}


def _truncated(sign: str, whole: int, decimals: str, keep: Sequence[int | None]) -> list[str]:
    """A coordinate with each number of decimals; zero has no sign."""
    texts = []
    for kept in keep:
        part = decimals if kept is None else decimals[:kept].ljust(kept, "0")
        minus = sign if whole or part.strip("0") else ""
        texts.append(f"{minus}{whole}.{part}" if part else f"{minus}{whole}")
    return texts


@dataclass(frozen=True)
class Tree:
    """Categories, which generalise to their ancestors in a tree; also several of them, as "jazz+wine".

    Level i is the i-th ancestor; a category with fewer ancestors stays at its last. Several categories generalise one
    by one, and equal ones merge. The exact queries that users type are the leaves of the tree.

    Args:
        name: The name of the attribute.
        levels: The number of levels, with the exact one. No category has as many ancestors.
        parents: The parent of each category; None, or no entry, for one at the top.

    >>> tree = Tree("interest", 3, {"jazz": "music", "choir": "music", "music": "arts", "wine": "food"})
    >>> tree.path("jazz+choir+wine")
    ('choir+jazz+wine', 'food+music', 'arts+food')
    """

    name: str
    levels: int
    parents: Mapping[str, str | None]
    _paths: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name = checked_value("an attribute's name", self.name)
        levels = checked_integer(f"the levels of {name!r}", self.levels, 1)
        if levels > _MOST_LEVELS:
            raise ValueError(f"{name!r} has at most {_MOST_LEVELS} levels: got {levels}")
        if not isinstance(self.parents, Mapping):
            raise ValueError(f"the parents of {name!r} map categories to categories: got {self.parents!r:.{_SHOWN}}")
        parents = dict(self.parents)
        for parent in self.parents.values():
            if parent is not None:
                parents.setdefault(parent, None)
        for category in parents:
            checked_value(f"a category of {name!r}", category, without=_TOGETHER)
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "parents", parents)
        object.__setattr__(self, "_paths", {category: _path(name, category, parents, levels) for category in parents})

    def path(self, value: str) -> tuple[str, ...]:
        """The value at each level, the exact one first.

        Raises:
            UnknownCategory: The tree does not contain a category of the value.
            ValueError: The value is not a category, nor several joined by "+".
        """
        paths = self._paths
        if (single := paths.get(value)) is not None:
            return single
        categories = set(checked_value(repr(self.name), value).split(_TOGETHER))
        if "" in categories:
            raise ValueError(f"{self.name!r} needs a category on each side of a {_TOGETHER!r}: got {value!r:.{_SHOWN}}")
        if unknown := sorted(categories - paths.keys()):
            raise UnknownCategory(f"{self.name!r} has no category {unknown[0]!r:.{_SHOWN}}")
        return tuple(
            _TOGETHER.join(sorted(set(level))) for level in zip(*map(paths.__getitem__, categories), strict=True)
        )

    def to_json(self) -> dict[str, Any]:
        """The attribute as plain data."""
        parents = dict(sorted(self.parents.items()))
        return {"kind": "tree", "name": self.name, "levels": self.levels, "parents": parents}


def _path(name: str, category: str, parents: Mapping[str, str | None], levels: int) -> tuple[str, ...]:
    """A category and its ancestors, the last repeated up to the number of levels."""
    path = [category]
    while (parent := parents[path[-1]]) is not None:
        if parent in path:
            raise ValueError(f"{name!r} has a cycle: {parent!r:.{_SHOWN}} is an ancestor of itself")
        path.append(parent)
        if len(path) > levels:
            raise ValueError(f"{name!r} has {levels} levels: {category!r:.{_SHOWN}} has {levels} ancestors or more")
    return (*path, *path[-1:] * (levels - len(path)))


Attribute: TypeAlias = Decimals | Tree
"""An attribute of contexts."""


def attribute_of(document: object) -> Attribute:
    """The attribute of plain data."""
    match document:
        case {"kind": "decimals", "name": str(name), "keep": list(keep), **rest} if not rest:
            return Decimals(name, tuple(keep))
        case {"kind": "tree", "name": str(name), "levels": int(levels), "parents": dict(parents), **rest} if not rest:
            return Tree(name, levels, parents)
    raise ValueError(f"this is not an attribute: {document!r:.{_SHOWN}}")
