"""The times at which phones are on: a CSV file with their intervals, made by hand or from the gaps of traces."""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from reticent_client.habits.traces import Reading, Traces
from reticent_sim.engine import times
from reticent_sim.engine.faults.fault import STEPS, Fault, phones_target

__all__ = ["Interval", "absences", "intervals_of", "read_intervals", "write_intervals"]

START = times.START.replace(tzinfo=None)
"""The first instant of day 0 by the wall clock of the simulation, a Monday."""
COLUMNS = ["phone", "on", "off"]
_AFTER_READING = dt.timedelta(minutes=1)
_MAX_PHONE = 10**9


class Interval(NamedTuple):
    """A time during which a phone is on."""

    phone: int
    on: dt.datetime
    off: dt.datetime


def read_intervals(text: str, name: str = "intervals") -> list[Interval]:
    """The intervals of a CSV file with the columns phone, on and off, such as 3,2027-01-04T08:00,2027-01-04T23:30.

    Args:
        text: The content of the file.
        name: Of the file, for errors.

    Raises:
        ValueError: A line is no interval; the sentence names the line.
    """
    rows = csv.reader(text.splitlines(), strict=True)
    try:
        _check_header(next(rows, []))
        return [_interval(row) for row in rows if row]
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{name}:{max(1, rows.line_num)}: {error}") from error


def write_intervals(intervals: Iterable[Interval]) -> str:
    """The content of a file with these intervals."""
    lines = [f"{each.phone},{each.on:%Y-%m-%dT%H:%M:%S},{each.off:%Y-%m-%dT%H:%M:%S}" for each in intervals]
    return "\n".join([",".join(COLUMNS), *lines, ""])


def absences(intervals: Iterable[Interval], *, phones: int, days: int) -> list[Fault]:
    """The absences of phones outside of their intervals. A phone without an interval is always on.

    A phone is present in a step if it is on at any time of it.

    Args:
        intervals: In any order.
        phones: The number of phones of the run.
        days: The number of days of the run.
    """
    steps = days * STEPS
    on: dict[int, list[bool]] = {}
    for each in intervals:
        if each.phone >= phones:
            raise ValueError(f"the run has phones 0 to {phones - 1}: got an interval of phone {each.phone}")
        first, end = (each.on - START) // times.STEP, -((START - each.off) // times.STEP)
        present = on.setdefault(each.phone, [False] * steps)
        for step in range(max(0, first), min(steps, end)):
            present[step] = True
    return [
        Fault(start // STEPS, start % STEPS, "absent", phones_target(phone, phone), steps=end - start)
        for phone, present in sorted(on.items())
        for start, end in _gaps(present)
    ]


def intervals_of(traces: Traces, gap: dt.timedelta) -> list[Interval]:
    """The intervals of the users of traces: a user without a reading for longer than a gap is off.

    The users become phones 0, 1, … in the order of their names. The week of the first reading becomes the first week.

    Args:
        traces: The readings. Readings of nothing count as no reading.
        gap: The longest time between two readings in which the phone is on.
    """
    if gap <= dt.timedelta(0):
        raise ValueError(f"a gap is longer than nothing: got {gap}")
    readings = [_times(traces, own) for own in traces.readings.values()]
    earliest = min((own[0] for own in readings if own), default=None)
    if earliest is None:
        raise ValueError("the traces have no reading of a context")
    monday = earliest.replace(hour=0, minute=0, second=0, microsecond=0) - dt.timedelta(days=earliest.weekday())
    lasts = traces.table.slot if traces.table else _AFTER_READING
    return [
        Interval(phone, first - monday + START, last + lasts - monday + START)
        for phone, own in enumerate(readings)
        for first, last in _runs(own, gap)
    ]


def _times(traces: Traces, readings: Sequence[Reading]) -> list[dt.datetime]:
    """The times of readings of a context, by the local wall clock, in order."""
    known = [each.time for each in readings if each.context is not None]
    return sorted(each.astimezone(traces.zone).replace(tzinfo=None) if traces.zone else _naive(each) for each in known)


def _naive(time: dt.datetime) -> dt.datetime:
    return time.replace(tzinfo=None)


def _runs(times: Sequence[dt.datetime], gap: dt.timedelta) -> Iterator[tuple[dt.datetime, dt.datetime]]:
    """The first and the last time of each run without a longer gap."""
    first = 0
    for place in range(1, len(times) + 1):
        if place == len(times) or times[place] - times[place - 1] > gap:
            yield times[first], times[place - 1]
            first = place


def _gaps(present: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The first step and the end of each gap."""
    start = None
    for step, here in enumerate([*present, True]):
        if here and start is not None:
            yield start, step
            start = None
        elif not here and start is None:
            start = step


def _check_header(header: Sequence[str]) -> None:
    if header != COLUMNS:
        raise ValueError(f"the first line must be {','.join(COLUMNS)}: got {','.join(header)[:60]!r}")


def _interval(row: Sequence[str]) -> Interval:
    if len(row) != len(COLUMNS):
        raise ValueError(f"a line has {len(COLUMNS)} fields: got {len(row)}")
    phone, on, off = (field.strip() for field in row)
    if not (phone.isascii() and phone.isdigit() and int(phone[:10]) < _MAX_PHONE):
        raise ValueError(f"a phone is a whole number from 0: got {phone[:40]!r}")
    interval = Interval(int(phone), _time(on), _time(off))
    if not interval.on < interval.off:
        raise ValueError(f"a phone is on before it is off: got {on} and {off}")
    return interval


def _time(text: str) -> dt.datetime:
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is not None:
        raise ValueError(f"a time is local, such as 2027-01-04T08:30: got {text[:40]!r}")
    return time
