"""The counters of a query: what each phone counts, and within which bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reticent.privacy._canonical import MAX_INTEGER, check_text, encodable_integer


class Counter(NamedTuple):
    """One number that each phone contributes; by default 0.

    Args:
        name: The name of what is counted.
        low: The smallest value of one phone, at most 0.
        high: The largest value of one phone, at least 0.
        scale: The phone multiplies its value by this, before the bounds on the whole vector and the noise; whoever
            reads the sum divides by it. All counters of a query get the same noise, so a counter with a larger scale
            has a smaller error, and a larger part in the bounds on the vector.
    """

    name: str
    low: int
    high: int
    scale: int = 1

    @property
    def scaled(self) -> tuple[int, int]:
        """The bounds of one phone's contribution, scaled."""
        return self.low * self.scale, self.high * self.scale

    @property
    def most(self) -> int:
        """The most that one phone contributes in either direction, scaled."""
        return max(-self.low, self.high) * self.scale


def checked_counters(counters: Sequence[Counter]) -> tuple[Counter, ...]:
    """The counters of a query.

    Raises:
        ValueError: There are none, two have one name, or one has bad bounds.
    """
    checked = []
    for name, low, high, scale in (Counter(*counter) for counter in counters):
        check_text("a counter's name", name)
        least, most = (
            encodable_integer(f"the low of {name!r}", low, -MAX_INTEGER),
            encodable_integer(f"the high of {name!r}", high, -MAX_INTEGER),
        )
        if not least <= 0 <= most or least == most:
            raise ValueError(f"a counter's bounds enclose 0 and one more number: {name!r} has {low} and {high}")
        checked.append(Counter(name, least, most, encodable_integer(f"the scale of {name!r}", scale, 1)))
    if not checked:
        raise ValueError("a query has at least one counter: got none")
    names = [counter.name for counter in checked]
    if len(set(names)) < len(names):
        raise ValueError(f"counters have different names: {max(names, key=names.count)!r} occurs twice")
    return tuple(checked)
