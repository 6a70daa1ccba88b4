"""From readings to days: the context of a step is the last reading when the step was decided.

A phone decides a moment before a step begins, from the readings so far. Days for learning follow the same rule. If the
last reading is too old, the step is a gap; so is a step that the clock skips. If the clock is set back, a step keeps
its first occurrence.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from reticent_client.habits.traces import Reading, SlotTable, Traces
from reticent_client.mask.timetable import DAY, LEAD, Timetable

DEFAULT_STEP = dt.timedelta(hours=1)
DEFAULT_MIN_FILLED = 0.25


@dataclass(frozen=True)
class DatedDay:
    """A day of a user: a context for each step, None for a gap."""

    date: dt.date
    labels: tuple[str | None, ...]

    @property
    def filled(self) -> float:
        """The share of the steps that have a context."""
        return sum(label is not None for label in self.labels) / max(len(self.labels), 1)

    @property
    def is_weekend(self) -> bool:
        """Whether this is a Saturday or a Sunday."""
        return self.date.weekday() >= 5


@dataclass(frozen=True)
class SampledDays:
    """The days of a user, and those that were left out."""

    days: tuple[DatedDay, ...]
    too_empty: tuple[DatedDay, ...]
    """The days with readings, but with a context at too few steps."""
    without_readings: tuple[dt.date, ...]
    """The days between the first and the last reading that have none."""

    @property
    def left_out(self) -> int:
        """The number of days between the first and the last reading that were left out."""
        return len(self.too_empty) + len(self.without_readings)


@dataclass(frozen=True)
class Sampling:
    """The rule that turns readings into days.

    >>> traces = Traces.of([("ada", "2027-03-01T08:30", "home"), ("ada", "2027-03-01T16:00", "work")])
    >>> Sampling(dt.timedelta(hours=4), min_filled=0).days(traces).days[0].labels
    (None, None, None, 'home', None, 'work')
    >>> Sampling(dt.timedelta(hours=4), min_filled=0, lead=dt.timedelta()).days(traces).days[0].labels
    (None, None, None, 'home', 'work', None)
    """

    step: dt.timedelta = DEFAULT_STEP
    """The length of a step; it divides 24 hours."""
    hold: dt.timedelta | None = None
    """The maximum age of a reading when a step is decided: one step by default, a day at most."""
    min_filled: float = DEFAULT_MIN_FILLED
    """The smallest share of steps with a context; a day without any is always left out."""
    lead: dt.timedelta = LEAD
    """The time between the decision of a step and its beginning, as on a phone. A lead of 0 is for readings that hold
    from the beginning of a step on. A table of slots is read so by itself, with a hold of one slot."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        hold = self.step if self.hold is None else self.hold
        for name, length in (("step", self.step), ("hold", hold), ("lead", self.lead)):
            if not isinstance(length, dt.timedelta):
                raise ValueError(f"{name} must be a timedelta: got {length!r}")
        if not dt.timedelta(seconds=1) <= self.step <= DAY or DAY % self.step:
            raise ValueError(f"a step must divide 24 hours, and last a second at least: got {self.step}")
        if self.hold is not None and not dt.timedelta() < self.hold <= DAY:
            raise ValueError(f"hold must lie between nothing and 24 hours: got {self.hold}")
        if not dt.timedelta() <= self.lead < self.step:
            raise ValueError(f"the lead must be shorter than a step of {self.step}: got {self.lead}")
        if not 0 <= self.min_filled <= 1:
            raise ValueError(f"min_filled is a share, between 0 and 1: got {self.min_filled}")

    @property
    def horizon(self) -> int:
        """The number of steps of a day."""
        return DAY // self.step

    def days(self, traces: Traces, user: str | None = None) -> SampledDays:
        """The days of a user, in order; without a name, of the only user."""
        return self._sampled(traces.of_user(user), self._timetable(traces), traces.table)

    def by_user(self, traces: Traces) -> dict[str, SampledDays]:
        """The days of each user."""
        timetable = self._timetable(traces)
        return {user: self._sampled(readings, timetable, traces.table) for user, readings in traces.readings.items()}

    def _timetable(self, traces: Traces) -> Timetable:
        return Timetable(self.horizon, traces.zone or dt.UTC)

    def _sampled(self, readings: tuple[Reading, ...], timetable: Timetable, table: SlotTable | None) -> SampledDays:
        lead, hold = self.lead, self.step if self.hold is None else self.hold
        if table is not None:  # the context of a step is that of the slot in which the step begins
            lead, hold = dt.timedelta(), table.slot
        dates = sorted({timetable.date(reading.time) for reading in readings})
        days = [DatedDay(date, _labels(readings, timetable.day(date), lead, hold)) for date in dates]
        kept = tuple(day for day in days if day.filled >= max(self.min_filled, 1e-9))
        too_empty = tuple(day for day in days if day.filled < max(self.min_filled, 1e-9))
        without = tuple(
            before + dt.timedelta(days=k) for before, after in pairwise(dates) for k in range(1, (after - before).days)
        )
        return SampledDays(kept, too_empty, without)


def _labels(
    readings: tuple[Reading, ...],
    beginnings: tuple[dt.datetime | None, ...],
    lead: dt.timedelta,
    hold: dt.timedelta,
) -> tuple[str | None, ...]:
    """The context of each step of a day."""
    labels: list[str | None] = []
    for instant in beginnings:
        if instant is None:
            labels.append(None)
            continue
        decided = instant - lead
        last = bisect_right(readings, decided, key=attrgetter("time")) - 1
        fresh = last >= 0 and decided - readings[last].time < hold
        labels.append(readings[last].context if fresh else None)
    return tuple(labels)
