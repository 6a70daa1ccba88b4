"""How fast callers may call, each on their own, with a bounded memory of them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["Rate", "Rates"]


@dataclass(frozen=True)
class Rate:
    """Calls that may be made: some at once, more as time goes by.

    Args:
        per_second: How many more each second.
        burst: How many at once.
    """

    per_second: float
    burst: float

    def __post_init__(self) -> None:
        if not (self.per_second > 0 and self.burst >= 1):
            raise ValueError(f"a rate is more than 0 calls a second, and 1 or more at once: got {self}")


class Rates:
    """What is left of a rate, for each of many callers.

    Those that have not called for long are forgotten: they have all of it again.

    Args:
        rate: Of each caller.
        remembered: Of how many callers at most. When there are more, the one that has called least lately is
            forgotten.
    """

    def __init__(self, rate: Rate, remembered: int) -> None:
        self._rate = rate
        self._remembered = remembered
        self._left: OrderedDict[object, tuple[float, float]] = OrderedDict()  # calls left, at that time

    def take(self, caller: object, now: float) -> float:
        """Take one call; the seconds until there is one again, 0 if there was."""
        left, since = self._left.pop(caller, (self._rate.burst, now))
        left = min(self._rate.burst, left + (now - since) * self._rate.per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._rate.per_second
        self._left[caller] = (left if wait else left - 1, now)
        if len(self._left) > self._remembered:
            self._left.popitem(last=False)
        return wait
