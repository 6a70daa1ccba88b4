"""Text on a terminal or in a log."""

from __future__ import annotations

import contextlib
import sys

__all__ = ["print_note", "printable", "write_notes"]


def printable(text: str) -> str:
    r"""The text as one line, with control characters escaped: line breaks, colours, cursor movements.

    >>> printable("gym\x1b[2K\r")
    'gym\\x1b[2K\\r'
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_note(sentence: str) -> None:
    """Print a sentence for the user on standard error, at once."""
    write_notes(f"reticent: {printable(sentence)}\n")


def write_notes(text: str) -> None:
    """Write text on standard error, at once. If it is lost, the program continues, and its exit code stays."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()
