"""Rate limits per caller, with a bounded memory of callers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["RateLimit", "RateLimits"]

REMEMBERED = 20_000
"""Callers whose rates are kept."""


@dataclass(frozen=True)
class RateLimit:
    """A rate limit: a token bucket.

    Args:
        per_second: Calls per second.
        burst: Calls at once, after a pause.
    """

    per_second: float
    burst: float

    def __post_init__(self) -> None:
        if not (self.per_second > 0 and self.burst >= 1):
            raise ValueError(f"a rate allows more than 0 calls a second and at least 1 at once: got {self}")


class RateLimits:
    """The rate limit of each of many callers.

    Args:
        rate: Of each caller.
        remembered: Callers that are remembered. Beyond that the least recent one is forgotten, and has its whole
            rate again.
    """

    def __init__(self, rate: RateLimit, remembered: int = REMEMBERED) -> None:
        self._rate = rate
        self._remembered = remembered
        self._left: OrderedDict[object, tuple[float, float]] = OrderedDict()  # calls left, at an instant

    def take(self, caller: object, now: float) -> float:
        """Count a call if the rate allows it; 0 if so, else the seconds until it does."""
        left, since = self._left.pop(caller, (self._rate.burst, now))
        left = min(self._rate.burst, left + (now - since) * self._rate.per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._rate.per_second
        self._left[caller] = (left if wait else left - 1, now)
        if len(self._left) > self._remembered:
            self._left.popitem(last=False)
        return wait
