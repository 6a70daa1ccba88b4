"""Text of others, on a terminal or in a log of one's own."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""The text as one line without what a terminal would obey: line breaks, colours, whatever moves its cursor.

    >>> printable("gym\x1b[2K\r")
    'gym\\x1b[2K\\r'
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
