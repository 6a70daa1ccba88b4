"""What people are shown of what others have said."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["in_words", "printable"]


def printable(text: str) -> str:
    r"""The text without what a terminal would obey: line breaks, colours, whatever moves its cursor.

    >>> printable("gym\x1b[2K")
    'gym\\x1b[2K'
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def in_words(outcomes: Sequence[str]) -> str:
    """What became of cohorts, in one phrase.

    >>> in_words(["released"] * 3), in_words(["released", "burnt", "released"])
    ('released', '2 released, 1 burnt')
    """
    kinds = [each for each in ("released", "burnt", "void") if each in outcomes]
    if len(kinds) == 1:
        return kinds[0]
    return ", ".join(f"{outcomes.count(each)} {each}" for each in kinds)
