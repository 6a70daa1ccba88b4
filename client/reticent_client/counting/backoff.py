"""When to try again what did not get through."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import numpy as np

__all__ = ["Backoff"]

_DOUBLINGS = 40  # more than these say nothing, and would be too large for a time


@dataclass(frozen=True)
class Backoff:
    """Twice as long each time, up to a longest; and a random part of it, so that phones do not come back all at once.

    Args:
        rng: Where the random part comes from: not from where the noise does, or retries would change the noise of a
            simulation.
        first: How long to wait after the first attempt, at most.
        longest: How long to wait at most.

    >>> from reticent.randomness import seeded
    >>> backoff = Backoff(seeded(1, "waits"))
    >>> dt.timedelta(seconds=2) <= backoff.wait(2) <= dt.timedelta(seconds=4)
    True
    """

    rng: np.random.Generator
    first: dt.timedelta = dt.timedelta(seconds=1)
    longest: dt.timedelta = dt.timedelta(hours=1)

    def wait(self, attempts: int, asked: float | None = None) -> dt.timedelta:
        """How long to wait after so many attempts before this one.

        Between half of it and all of it, and not shorter than what the server has asked for, up to the longest.
        """
        longest = self.longest.total_seconds()
        whole = min(longest, self.first.total_seconds() * 2.0 ** min(attempts, _DOUBLINGS))
        wait = whole * (1 + float(self.rng.random())) / 2
        return dt.timedelta(seconds=min(longest, max(wait, asked or 0.0)))
