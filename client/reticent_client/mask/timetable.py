"""The times at which steps begin: local wall clock, through the days on which it jumps.

The steps of a day share its 24 hours of wall clock equally. Where the clock is set back, a step that has begun does not
begin again; where it is set forward, the steps that the clock leaves out never begin.
"""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reticent_client.mask.limits import whole_number

DAY = dt.timedelta(days=1)

LEAD = dt.timedelta(seconds=1)
"""The default time between the decision of a step and its beginning."""

FIRST_YEAR, LAST_YEAR = 2, 9998
"""The years of valid instants: at the ends of the calendar some zones have no representable time."""


@dataclass(frozen=True)
class Beginning:
    """A step that begins."""

    date: dt.date
    step: int
    instant: dt.datetime  # in UTC
    skipped: tuple[int, ...] = ()
    """The steps right before it that the clock left out."""


@dataclass(frozen=True)
class Timetable:
    """The beginnings of `horizon` steps a day in a time zone.

    >>> paris = Timetable(24, time_zone("Europe/Paris"))
    >>> print(paris.begins(dt.date(2027, 3, 28), 3), paris.begins(dt.date(2027, 3, 28), 2))
    2027-03-28 01:00:00+00:00 None
    """

    horizon: int
    zone: dt.tzinfo = dt.UTC

    def __post_init__(self) -> None:
        """Check the number of steps."""
        if whole_number(self.horizon, "a day must have a whole number of steps") < 1:
            raise ValueError(f"a day must have at least one step: got {self.horizon}")

    @property
    def step(self) -> dt.timedelta:
        """The length of a step."""
        return DAY / self.horizon

    def begins(self, date: dt.date, step: int) -> dt.datetime | None:
        """The instant in UTC at which a step begins, None where the clock leaves it out."""
        return self.day(date)[step]

    def day(self, date: dt.date) -> tuple[dt.datetime | None, ...]:
        """All the beginnings of a day."""
        return _beginnings(self.horizon, self.zone, date)

    def date(self, instant: dt.datetime) -> dt.date:
        """The local date of an instant; `ValueError` outside the years 2 to 9998."""
        if not FIRST_YEAR <= instant.year <= LAST_YEAR:
            raise ValueError(f"a timetable knows the years {FIRST_YEAR} to {LAST_YEAR}: got {instant.isoformat()}")
        return instant.astimezone(self.zone).date()

    def last(self, instant: dt.datetime) -> Beginning:
        """The last step that has begun at an instant."""
        date = self.date(instant)
        while True:
            begun = [(at, step) for step, at in enumerate(self.day(date)) if at is not None and at <= instant]
            if begun:
                return self._beginning(date, max(begun)[1])
            date -= DAY

    def next(self, instant: dt.datetime) -> Beginning:
        """The first step that begins after an instant."""
        date = self.date(instant)
        while True:
            due = [(at, step) for step, at in enumerate(self.day(date)) if at is not None and at > instant]
            if due:
                return self._beginning(date, min(due)[1])
            date += DAY

    def _beginning(self, date: dt.date, step: int) -> Beginning:
        times = self.day(date)
        first = step
        while first > 0 and times[first - 1] is None:
            first -= 1
        at = times[step]
        if at is None:
            raise AssertionError("unreachable: a step that begins has a time")
        return Beginning(date, step, at, tuple(range(first, step)))


def time_zone(name: str | None = None) -> dt.tzinfo:
    """The time zone of a name such as Europe/Paris, or the machine's own."""
    if name is None:
        return _own_zone()
    if name.upper() == "UTC":
        return dt.UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"unknown time zone {name!r}: use a name such as Europe/Paris, or UTC "
            "(a machine without a database of time zones gets one with pip install tzdata)"
        ) from error


def _own_zone() -> dt.tzinfo:
    name = os.environ.get("TZ", "").removeprefix(":")
    if name and not name.startswith("/"):
        return time_zone(name)
    try:
        with Path(name or "/etc/localtime").open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError) as error:
        if name:
            raise ValueError(f"unknown time zone: TZ names the file {name}, which holds none") from error
        return dt.UTC


@lru_cache(maxsize=64)
def _beginnings(horizon: int, zone: dt.tzinfo, date: dt.date) -> tuple[dt.datetime | None, ...]:
    midnight = dt.datetime.combine(date, dt.time())
    try:
        return tuple(_instant(midnight + DAY * step / horizon, zone) for step in range(horizon))
    except OverflowError:
        raise ValueError(f"a timetable knows the years {FIRST_YEAR} to {LAST_YEAR}: got {date}") from None


def _instant(local: dt.datetime, zone: dt.tzinfo) -> dt.datetime | None:
    """The first instant at which the wall clock shows this time, None if it never does."""
    instant = local.replace(tzinfo=zone).astimezone(dt.UTC)
    return instant if instant.astimezone(zone).replace(tzinfo=None) == local else None
