"""The simulated time of a run: days of 24 steps of an hour, from a Monday on."""

from __future__ import annotations

import datetime as dt

__all__ = ["BEFORE", "DAY", "START", "STEP", "STEPS", "instant_of", "order_of"]

START = dt.datetime(2027, 1, 4, tzinfo=dt.UTC)
"""The first step of the first day, a Monday."""
DAY = dt.timedelta(days=1)
STEP = dt.timedelta(hours=1)
STEPS = DAY // STEP
BEFORE = dt.timedelta(seconds=5)
"""The time before a step at which the phones read where their users are."""


def instant_of(day: int, step: int) -> dt.datetime:
    """The instant at which a step begins."""
    return START + day * DAY + step * STEP


def order_of(instant: dt.datetime) -> int:
    """The order of events at an instant, for the trace: seconds since the start."""
    return (instant - START) // dt.timedelta(seconds=1)
