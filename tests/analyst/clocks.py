"""A clock for those who wait: it goes on only while they sleep."""

from __future__ import annotations


class SteppedClock:
    """Time passes by sleeping, and by nothing else."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """The seconds that have passed."""
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        """Have so many seconds pass."""
        self.slept.append(seconds)
