"""The contents of traces, and their ignored parts, before anything is learned."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from reticent_client.habits.sampling import SampledDays, Sampling
from reticent_client.habits.traces import Conflict, Reading, Traces

ALIGNED = 0.9
"""If a larger share of the readings is at beginnings of steps, a lead shifts the days by a step."""

_SHOWN = 5  # dates, contexts or users in a sentence


@dataclass(frozen=True)
class UserReadings:
    """The readings of one user, and the days that are made of them."""

    readings: tuple[Reading, ...]
    sampled: SampledDays
    contexts: Counter[str]
    """The number of readings of each context."""

    @property
    def nothing(self) -> int:
        """The number of readings of nothing."""
        return len(self.readings) - self.contexts.total()

    @property
    def interval(self) -> dt.timedelta | None:
        """The median time between two readings; None for a single reading."""
        gaps = [(later.time - earlier.time).total_seconds() for earlier, later in pairwise(self.readings)]
        return dt.timedelta(seconds=median(gaps)) if gaps else None

    @property
    def filled(self) -> float:
        """The average share of the steps with a context, over the days that are kept."""
        days = self.sampled.days
        return sum(day.filled for day in days) / max(len(days), 1)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data, except its times and days, which a table may number."""
        return {
            "readings": len(self.readings),
            "interval_seconds": None if self.interval is None else self.interval.total_seconds(),
            "contexts": dict(self.contexts.most_common()),
            "nothing": self.nothing,
            "days": len(self.sampled.days),
            "filled": self.filled,
        }


@dataclass(frozen=True)
class Inspection:
    """The contents of traces for some of their users, and the cut into days."""

    users: Mapping[str, UserReadings]
    sampling: Sampling
    traces: Traces
    aligned: int
    """The number of readings at the beginning of a step, with a time zone in the user's local time."""

    @property
    def readings(self) -> int:
        """The number of all readings of these users."""
        return sum(len(each.readings) for each in self.users.values())

    @property
    def shifted(self) -> bool:
        """Whether the lead shifts whole days: nearly all readings are at beginnings of steps."""
        return self.traces.table is None and bool(self.sampling.lead) and self.aligned > ALIGNED * self.readings

    @property
    def conflicts(self) -> list[Conflict]:
        """The conflicts of these users."""
        return [each for each in self.traces.ignored.conflicts if each.user in self.users]

    @property
    def numbered(self) -> bool:
        """Whether days have numbers and no dates."""
        return self.traces.table is not None and self.traces.table.numbered

    def name(self, date: dt.date) -> str:
        """A day as it stands in the traces: its date or its number."""
        return str(date) if self.traces.table is None else self.traces.table.name(date)

    def day(self, date: dt.date) -> str:
        """The same for sentences."""
        return f"day {self.name(date)}" if self.numbered else self.name(date)

    def time(self, instant: dt.datetime) -> str:
        """The local time of a reading."""
        local = instant if self.traces.zone is None else instant.astimezone(self.traces.zone)
        return f"{self.day(local.date())} {local:%H:%M}"

    def notes(self) -> Iterator[str]:
        """The parts that are left out or changed, and the reasons, in sentences."""
        rule = f"fewer than {self.sampling.min_filled:.0%} of the steps"
        if too_empty := self._named(lambda sampled: [day.date for day in sampled.too_empty]):
            yield f"{_count(len(too_empty), 'day')} left out as too empty (a context at {rule}): {_some(too_empty)}"
        if without := self._named(lambda sampled: sampled.without_readings):
            count = _count(len(without), "day")
            yield f"{count} without any reading between a user's first and last day: {_some(without)}"
        if conflicts := self.conflicts:
            first = f"{conflicts[0].where}: {conflicts[0].sentence}"
            times = _count(len(conflicts), "time")
            yield f"{times} with two contexts of one user, read as nothing: first {first}"
        if placeholders := self.traces.ignored.placeholders:
            named = [f"{text!r} {count}" for text, count in placeholders.items()]
            number = _count(sum(placeholders.values()), "context")
            yield f"{number} read as nothing, because they stand for missing values: {_some(named)}"
        if self.shifted:
            yield (
                f"{self.aligned} of {_count(self.readings, 'reading')} at the beginning of a step: with a lead of "
                f"{self.sampling.lead.total_seconds():g}s each counts for the step after it. If a row holds from its "
                "time on, as in a table of hours, use --lead 0s"
            )

    def _named(self, dates: Callable[[SampledDays], Iterable[dt.date]]) -> list[str]:
        """Some days of all users; with the user, if there are several."""
        several = len(self.users) > 1
        return [
            f"{self.day(date)} of {user!r}" if several else self.day(date)
            for user, each in self.users.items()
            for date in dates(each.sampled)
        ]

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        table = self.traces.table
        return {
            "readings": self.readings,
            "zone": None if self.traces.zone is None else str(self.traces.zone),
            "slot_seconds": None if table is None else table.slot.total_seconds(),
            "numbered_days": self.numbered,
            "steps": self.sampling.horizon,
            "aligned": self.aligned,
            "shifted": self.shifted,
            "conflicts": [each._asdict() for each in self.conflicts],
            "placeholders": dict(self.traces.ignored.placeholders),
            "users": {user: each.to_json() | self._days_of(each) for user, each in self.users.items()},
        }

    def _days_of(self, user: UserReadings) -> dict[str, Any]:
        """The first and the last reading, and the days that are left out."""
        first, last = user.readings[0].time, user.readings[-1].time
        return {
            "first": self.time(first) if self.numbered else first,
            "last": self.time(last) if self.numbered else last,
            "too_empty": [{"day": self.name(day.date), "filled": day.filled} for day in user.sampled.too_empty],
            "without_readings": [self.name(date) for date in user.sampled.without_readings],
        }


def inspect(traces: Traces, sampling: Sampling | None = None, user: str | None = None) -> Inspection:
    """Inspect traces, of all users unless one is named, and cut them into days.

    >>> traces = Traces.of([("ada", f"2027-03-01T{hour:02}:00", "home") for hour in range(24)])
    >>> [note[:45] for note in inspect(traces).notes()]
    ['24 of 24 readings at the beginning of a step:']
    """
    rule = Sampling() if sampling is None else sampling
    sampled = rule.by_user(traces) if user is None else {user: rule.days(traces, user)}
    users = {
        name: UserReadings(readings := traces.of_user(name), each, _contexts(readings))
        for name, each in sampled.items()
    }
    aligned = sum(_is_aligned(reading, traces.zone, rule.step) for each in users.values() for reading in each.readings)
    return Inspection(users, rule, traces, aligned)


def _contexts(readings: Sequence[Reading]) -> Counter[str]:
    return Counter(reading.context for reading in readings if reading.context is not None)


def _is_aligned(reading: Reading, zone: dt.tzinfo | None, step: dt.timedelta) -> bool:
    local = reading.time if zone is None else reading.time.astimezone(zone)
    return (
        not dt.timedelta(hours=local.hour, minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        % step
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
