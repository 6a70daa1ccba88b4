"""Traces: rows of user, time and context. `trace_files` reads them from files, `frames` converts data frames.

Times are either instants or local wall clock, never both. The time zone maps an instant to a day and an hour, so
instants need one. A local time that occurred twice means its first occurrence. A table of slots has a day and a slot
instead of a time.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from reticent_client.habits.moments import Time, instant, moment, shown
from reticent_client.mask.limits import MAX_LABEL
from reticent_client.mask.timetable import time_zone

COLUMNS = ("user", "time", "context")

FIRST_DAY = dt.date(2001, 1, 1)
"""The date that day 0 gets where days are numbered, a Monday."""

MAX_NAME = 200
"""The longest name of a user, in characters."""

PLACEHOLDERS = frozenset({"nan", "na", "n/a", "#n/a", "<na>", "null", "none", "nil", "nat"})
"""The texts that programs write for a missing value, in small letters."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Reading(NamedTuple):
    """A reading of a sensor at an instant."""

    time: dt.datetime
    """In UTC; without a time zone, the wall clock as if it were UTC."""
    context: str | None
    """None for a reading of nothing."""


class Row(NamedTuple):
    """A reading as it stands in a file or a frame."""

    number: int
    """The number of the line or the row, for errors."""
    user: str
    time: Time
    context: str


class Conflict(NamedTuple):
    """Several contexts of one user at one time, which count as a reading of nothing."""

    user: str
    where: str
    """The file and the line of the first row that differs from one before."""
    sentence: str


class SlotTable(NamedTuple):
    """The form of a table of slots: each context holds from the beginning of its slot to the end."""

    slot: dt.timedelta
    """The length of a slot."""
    numbered: bool
    """Whether days are numbered, so that nobody knows on which day of the week they were."""

    def name(self, date: dt.date) -> str:
        """A day as it stands in the table: its date or its number."""
        return str((date - FIRST_DAY).days if self.numbered else date)


@dataclass(frozen=True)
class IgnoredReadings:
    """The values that are read as a gap, although they are not empty."""

    conflicts: tuple[Conflict, ...] = ()
    placeholders: Mapping[str, int] = field(default_factory=dict)
    """The number of occurrences of each text for a missing value, such as NaN."""


@dataclass(frozen=True)
class Traces:
    """The readings of some users, each in order of time.

    >>> rows = [("ada", "2027-03-01T09:00", "work"), ("ada", "2027-03-01T08:00", "home")]
    >>> traces = Traces.of(rows, zone="Europe/Paris")
    >>> [reading.context for reading in traces.readings["ada"]]
    ['home', 'work']
    """

    readings: Mapping[str, tuple[Reading, ...]]
    zone: dt.tzinfo | None = None
    """The time zone of local days; None for a wall clock that never jumps."""
    table: SlotTable | None = None
    """The form of the table that held them, if they were in one."""
    ignored: IgnoredReadings = field(default_factory=IgnoredReadings, compare=False)

    def __len__(self) -> int:
        """The number of readings."""
        return sum(map(len, self.readings.values()))

    @property
    def users(self) -> tuple[str, ...]:
        """The names of the users, sorted."""
        return tuple(self.readings)

    def of_user(self, user: str | None = None) -> tuple[Reading, ...]:
        """The readings of a user; None means the only user."""
        if user is None and len(self.readings) != 1:
            raise ValueError(f"the traces are of {len(self.readings)} users: choose one of {_some(self.users)}")
        name = self.users[0] if user is None else user
        if name not in self.readings:
            raise ValueError(f"the traces have no user {name!r}: they have {_some(self.users)}")
        return self.readings[name]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, Time, str | None]], *, zone: str | dt.tzinfo | None = None) -> Self:
        """The traces of rows in memory; rows count from 0 in errors."""
        numbered = (Row(number, user, time, context or "") for number, (user, time, context) in enumerate(rows))
        return cls.gathered(numbered, "row {}".format, "the rows", zone)

    @classmethod
    def gathered(
        cls,
        rows: Iterable[Row],
        where: Callable[[int], str],
        place: str,
        zone: str | dt.tzinfo | None,
        table: SlotTable | None = None,
    ) -> Self:
        """The traces of rows that are checked one by one; `where` names the place of a row in an error."""
        region = time_zone(zone) if isinstance(zone, str) else zone
        found: dict[str, dict[dt.datetime, str | None]] = {}
        conflicts: dict[tuple[str, dt.datetime], Conflict] = {}
        placeholders: Counter[str] = Counter()
        aware: bool | None = None
        for number, user, time, context in rows:
            try:
                local = moment(time)
                if aware is None:
                    aware = local.tzinfo is not None
                at = instant(local, region, aware=aware)
                readings = found.get(user)
                if readings is None:
                    readings = found[_user(user)] = {}
                label = checked_label(context)
            except ValueError as error:
                raise ValueError(f"{where(number)}: {error}") from error
            if label is None and context.strip():
                placeholders[context.strip()] += 1
            if readings.setdefault(at, label) != label and (user, at) not in conflicts:
                one, other = ("nothing" if each is None else repr(each) for each in (readings[at], label))
                sentence = f"user {user!r} is in {one} and in {other} at {_when(local, region, table)}"
                conflicts[user, at] = Conflict(user, where(number), sentence)
        if not found:
            raise ValueError(f"{place}: there are no readings")
        for user, at in conflicts:
            found[user][at] = None
        by_time = {user: tuple(Reading(*each) for each in sorted(found[user].items())) for user in sorted(found)}
        return cls(by_time, region, table, IgnoredReadings(tuple(conflicts.values()), placeholders))


def checked_label(text: object) -> str | None:
    """A context without surrounding white space, checked so that apps can receive it; None for a reading of nothing.

    A text that programs write for a missing value, such as NaN, is a reading of nothing.

    A phone removes the white space of its readings too, so that both use the same label.
    """
    label = text.strip() if isinstance(text, str) else text
    if label in ("", None) or (isinstance(label, str) and label.lower() in PLACEHOLDERS):
        return None
    label = _printable(label, "context")
    size = len(label.encode("utf-8"))
    if size > MAX_LABEL:
        raise ValueError(f"a context has at most {MAX_LABEL} bytes of UTF-8: {shown(label)} has {size}")
    return label


def _user(text: object) -> str:
    """The name of a user."""
    name = _printable(text, "user")
    if not name:
        raise ValueError("a user needs a name: got an empty one")
    if len(name) > MAX_NAME:
        raise ValueError(f"a user has a name of at most {MAX_NAME} characters: got {len(name)}")
    return name


def _printable(text: object, kind: str) -> str:
    if not isinstance(text, str):
        raise ValueError(f"a {kind} is text: got {text!r}")
    if _CONTROL.search(text):
        raise ValueError(f"a {kind} has a name without control characters: got {shown(text)}")
    return text


def _when(moment: dt.datetime, zone: dt.tzinfo | None, table: SlotTable | None) -> str:
    """The time of a conflict, as it stands in the traces."""
    if table is not None and table.numbered:
        return f"{moment:%H:%M} of day {table.name(moment.date())}"
    message = moment.isoformat()
    if moment.tzinfo is None and zone is not None:
        offsets = {moment.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)}
        if len(offsets) > 1:
            message += " (the clock showed this hour twice: write the times with their offset)"
    return message


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
