"""Limits of searches (deterministic rounds, and a deadline), of labels and of policies."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable

MAX_LABEL = 128
"""The longest context that a phone can send to apps, in bytes of UTF-8."""

MAX_CONTEXTS = 4096
MAX_STEPS = 24 * 60 * 60
MAX_ADVERSARIES = 64
"""The largest policy in a file."""


class Deadline:
    """A time after which a search stops at the next opportunity; remembers whether a search asked after it."""

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        if seconds is not None and not seconds >= 0:
            raise ValueError(f"time_limit must be a number of seconds of at least 0: got {seconds}")
        self._clock = clock
        self._end = math.inf if seconds is None else clock() + seconds
        self.expired = False

    def passed(self) -> bool:
        """Whether the deadline has passed."""
        over = self._clock() >= self._end
        self.expired |= over
        return over

    def stop(self) -> None:
        """Let the deadline pass now."""
        self._end = -math.inf

    def left(self) -> float:
        """The seconds that are left, infinite without a limit."""
        return self._end - self._clock()


def whole_number(value: object, requirement: str) -> int:
    """The value as an integer; `ValueError` with the requirement if it is no whole number."""
    try:
        return operator.index(value)  # type: ignore[arg-type]  # whether it is one is what is asked
    except TypeError:
        raise ValueError(f"{requirement}: got {value!r}") from None


def rounds_of(effort: int) -> int:
    """The effort, checked."""
    rounds = whole_number(effort, "effort is a whole number of rounds, at least 0")
    if rounds < 0:
        raise ValueError(f"effort is a number of rounds, at least 0: got {effort}")
    return rounds
