"""The retry policy of every role: exponential backoff with jitter, the server's retry-after, and a deadline.

`Backoff` computes delays, and `Attempts` counts the failures of one operation. Neither sleeps: the caller does, in a
thread, on an event loop or until an instant of its own clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import SystemRandom

__all__ = ["Attempts", "Backoff"]

_SHORTEST = 1e-3
"""Seconds to a deadline that count as none."""
_MAX_DOUBLINGS = 60  # more exceed every limit


@dataclass(frozen=True)
class Backoff:
    """Delays that double after each failure, up to a limit.

    Args:
        first: Seconds after the first failure.
        limit: The longest delay in seconds.
        retry_after_limit: The longest delay that a server may ask for; `limit` unless given.
        random: Draws jitter from [0, 1], by default from the operating system's generator: a delay lies between half
            and all of its length, so that callers do not retry together.

    >>> backoff = Backoff(first=1.0, limit=5.0, random=lambda: 1.0)
    >>> [backoff.delay(failures) for failures in range(1, 5)], backoff.delay(1, retry_after=3.0)
    ([1.0, 2.0, 4.0, 5.0], 3.0)
    """

    first: float = 1.0
    limit: float = 3600.0
    retry_after_limit: float | None = None
    random: Callable[[], float] = field(default=SystemRandom().random, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.limit:
            raise ValueError(f"a backoff's first delay is positive and within its limit: got {self}")

    def delay(self, failures: int, retry_after: float | None = None) -> float:
        """Seconds from the last of so many consecutive failures to the next attempt.

        Args:
            failures: At least 1.
            retry_after: Seconds that the server asked to wait; the delay is not shorter, within `retry_after_limit`.
        """
        delay = min(self.limit, self.first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        delay *= (1 + self.random()) / 2
        most = self.limit if self.retry_after_limit is None else self.retry_after_limit
        return max(delay, min(most, retry_after or 0.0))

    def spread(self, seconds: float) -> float:
        """A delay, or up to a tenth more: callers that were given the same delay do not come back together."""
        return seconds * (1 + self.random() / 10)


class Attempts:
    """The attempts of one operation.

    Args:
        backoff: The delays between them.
        now: The time in seconds, from any origin.
        timeout: Seconds to the deadline, from now or from the first failure after a success.
    """

    def __init__(self, backoff: Backoff, *, now: Callable[[], float], timeout: float = math.inf) -> None:
        self.backoff = backoff
        self.timeout = timeout
        self.failures = 0
        """Consecutive failures."""
        self._now = now
        self._started: float | None = now()

    @property
    def elapsed(self) -> float:
        """Seconds since the operation began, or since the first failure after a success."""
        return 0.0 if self._started is None else self._now() - self._started

    @property
    def left(self) -> float:
        """Seconds to the deadline."""
        return self.timeout - self.elapsed

    def failed(self, retry_after: float | None = None) -> float | None:
        """Count a failure; the delay before the next attempt, or None if the deadline has passed.

        The last attempt is at the deadline, unless the server asked to wait for longer.
        """
        if self._started is None:
            self._started = self._now()
        self.failures += 1
        delay, left = self.backoff.delay(self.failures, retry_after), self.left
        if left < _SHORTEST or left < min(delay, retry_after or 0.0):
            return None
        return min(delay, left)

    def succeeded(self) -> None:
        """Forget the failures; the timeout starts again at the next one."""
        self.failures = 0
        self._started = None
