"""Contexts and the nodes of a hierarchy, with their text form."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeAlias

from reticent.arguments import checked_text

__all__ = ["Context", "Node", "checked_value"]

Context: TypeAlias = tuple[str, ...]
"""The exact value of each attribute, in the order of the attributes."""

_SEPARATOR = "|"
_SHOWN = 60  # characters of a refused value that an error shows
_LEVEL = re.compile("0|[1-9][0-9]{0,5}")


class Node(NamedTuple):
    """A generalised context.

    Args:
        level: The position in the generalisation sequence: 0 is exact. The root is one level above the last.
        values: The value of each attribute at this level; none for the root.

    >>> str(Node(7, ("40.7,-73.9", "food", "shop")))
    '7|40.7,-73.9|food|shop'
    >>> Node.parse("9")
    Node(level=9, values=())
    """

    level: int
    values: tuple[str, ...]

    def __str__(self) -> str:
        return _SEPARATOR.join((str(self.level), *self.values))

    @classmethod
    def parse(cls, text: str) -> Node:
        """The node of a text form; `ValueError` if it is none."""
        level, *values = text.split(_SEPARATOR)
        if not _LEVEL.fullmatch(level):
            raise ValueError(f'a node is a level and values, as "7|40.7,-73.9|food|shop": got {text!r:.{_SHOWN}}')
        return cls(int(level), tuple(checked_value("a node's value", value) for value in values))


def checked_value(what: str, value: Any, without: str = "") -> str:
    """Text that a node may have as a value, also without further characters."""
    return checked_text(what, value, without=_SEPARATOR + without)
