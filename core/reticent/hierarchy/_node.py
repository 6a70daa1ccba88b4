"""Contexts and the nodes of a hierarchy, with their text form."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Context", "Node", "checked_text"]

Context: TypeAlias = tuple[str, ...]
"""The exact value of each attribute, in the order of the attributes."""

_SEPARATOR = "|"
_REFUSED = re.compile("[|\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MAX_LENGTH = 1000
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
        return cls(int(level), tuple(checked_text("a node's value", value) for value in values))


def checked_text(what: str, value: Any) -> str:
    """Text of some length, without control characters and without the separator of values."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} must be text that is not empty: got {value!r:.{_SHOWN}}")
    if found := _REFUSED.search(value):
        raise ValueError(f"{what} must not contain {found[0]!r}: got {value!r:.{_SHOWN}}")
    if len(value) > _MAX_LENGTH:
        raise ValueError(f"{what} must have at most {_MAX_LENGTH} characters: got {len(value)}")
    return value
