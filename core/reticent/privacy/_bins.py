"""Bins of a histogram: counters whose name is a range of another number that the phone has."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

__all__ = ["Bin"]

_NAME = re.compile(r"(.+)\[([^\[\],)]+),([^\[\],)]+)\)", re.DOTALL)


class Bin(NamedTuple):
    """A range of a number. The counter of its name is 1 on the phones whose number is in the range, and 0 on others.

    Args:
        number: The name of the number.
        low: The smallest number in the range.
        high: The smallest number beyond it.

    >>> Bin("kilometres", 2, 5).name, Bin.of("kilometres[5,inf)"), Bin.of("kilometres")
    ('kilometres[2,5)', Bin(number='kilometres', low=5.0, high=inf), None)
    """

    number: str
    low: float
    high: float

    @property
    def name(self) -> str:
        """The counter's name."""
        return f"{self.number}[{_text(self.low)},{_text(self.high)})"

    @classmethod
    def of(cls, counter: str) -> Bin | None:
        """The bin that has this name; None if none has."""
        return _bin_of(counter)

    def contains(self, number: float) -> bool:
        """Whether a number is in the range; NaN is in none."""
        return self.low <= number < self.high


@lru_cache(maxsize=4096)
def _bin_of(counter: str) -> Bin | None:
    found = _NAME.fullmatch(counter)
    try:
        described = None if found is None else Bin(found[1], float(found[2]), float(found[3]))
    except ValueError:
        return None
    is_proper = described is not None and described.low < described.high and described.name == counter
    return described if is_proper else None


def _text(edge: float) -> str:
    return repr(float(edge)).removesuffix(".0")
