"""Text on a terminal or in a log."""

from __future__ import annotations

import sys

__all__ = ["print_note", "printable"]


def printable(text: str) -> str:
    r"""The text as one line, with control characters escaped: line breaks, colours, cursor movements.

    >>> printable("gym\x1b[2K\r")
    'gym\\x1b[2K\\r'
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_note(sentence: str) -> None:
    """Print a sentence for the user on standard error, at once."""
    sys.stderr.write(f"reticent: {printable(sentence)}\n")
    sys.stderr.flush()
