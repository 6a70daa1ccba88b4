"""Traces: rows of user, time and context. `trace_files` reads them from files, `frames` converts data frames.

Times are either instants or local wall clock, never both. The time zone maps an instant to a day and an hour, so
instants need one. A local time that occurred twice means its first occurrence.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from reticent_client.mask.limits import MAX_LABEL
from reticent_client.mask.timetable import FIRST_YEAR, LAST_YEAR, time_zone

COLUMNS = ("user", "time", "context")

MAX_NAME = 200
"""The longest name of a user, in characters."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_EXAMPLES = "2027-03-01T08:30:00, 2027-03-01 08:30 or 2027-03-01T07:30:00Z"


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
    time: dt.datetime | str
    """Text in ISO 8601, or what a frame made of it."""
    context: str


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
    def of(
        cls, rows: Iterable[tuple[str, dt.datetime | str, str | None]], *, zone: str | dt.tzinfo | None = None
    ) -> Self:
        """The traces of rows in memory; rows count from 0 in errors."""
        numbered = (Row(number, user, time, context or "") for number, (user, time, context) in enumerate(rows))
        return cls.gathered(numbered, "row {}".format, "the rows", zone)

    @classmethod
    def gathered(
        cls, rows: Iterable[Row], where: Callable[[int], str], place: str, zone: str | dt.tzinfo | None
    ) -> Self:
        """The traces of rows that are checked one by one; `where` names the place of a row in an error."""
        region = time_zone(zone) if isinstance(zone, str) else zone
        found: dict[str, dict[dt.datetime, str | None]] = {}
        aware: bool | None = None
        for number, user, time, context in rows:
            try:
                moment = _moment(time)
                if aware is None:
                    aware = moment.tzinfo is not None
                instant = _instant(moment, region, aware=aware)
                readings = found.get(user)
                if readings is None:
                    readings = found[_user(user)] = {}
                label = checked_label(context)
                if readings.setdefault(instant, label) != label:
                    raise ValueError(_twice(user, moment, region, readings[instant], label))  # noqa: TRY301  # the place is added
            except ValueError as error:
                raise ValueError(f"{where(number)}: {error}") from error
        if not found:
            raise ValueError(f"{place}: there are no readings")
        by_time = {user: tuple(Reading(*each) for each in sorted(found[user].items())) for user in sorted(found)}
        return cls(by_time, region)


def _moment(time: dt.datetime | str) -> dt.datetime:
    """A time of day on a date, whatever it is written as."""
    if isinstance(time, dt.datetime):
        return time
    if not isinstance(time, str):
        raise ValueError(f"a time is a datetime or text such as {_EXAMPLES}: got {time!r}")
    if len(time) <= MAX_NAME and ("T" in time or " " in time):
        try:
            return dt.datetime.fromisoformat(time)
        except ValueError:
            pass
    raise ValueError(f"a time is written as {_EXAMPLES}: got {_shown(time)}")


def _instant(moment: dt.datetime, zone: dt.tzinfo | None, *, aware: bool) -> dt.datetime:
    """The instant in UTC; `ValueError` for years without a day in some zone."""
    message = f"the time {moment.isoformat()} is too far from now: years lie between {FIRST_YEAR} and {LAST_YEAR}"
    try:
        instant = _in_utc(moment, zone, aware=aware)
    except OverflowError:
        raise ValueError(message) from None
    if not FIRST_YEAR <= instant.year <= LAST_YEAR:
        raise ValueError(message)
    return instant


def _in_utc(moment: dt.datetime, zone: dt.tzinfo | None, *, aware: bool) -> dt.datetime:
    if (moment.tzinfo is not None) != aware:
        has, had = ("an offset", "none") if not aware else ("no offset", "one")
        raise ValueError(f"the time {moment.isoformat()} has {has}, and the times before it have {had}")
    if aware:
        if zone is None:
            raise ValueError(
                f"the time {moment.isoformat()} has an offset, which does not say when the user's days begin: "
                "give their time zone, such as Europe/Paris or UTC"
            )
        return moment.astimezone(dt.UTC)
    if zone is None:
        return moment.replace(tzinfo=dt.UTC)
    instant = moment.replace(tzinfo=zone, fold=0).astimezone(dt.UTC)
    shown = instant.astimezone(zone).replace(tzinfo=None)
    if shown != moment:
        raise ValueError(
            f"no clock in {zone} ever showed {moment.isoformat()}, for it was set forward then: "
            "give another zone, or none for a clock that never jumps"
        )
    return instant


def checked_label(text: object) -> str | None:
    """A context without surrounding white space, checked so that apps can receive it; None for a reading of nothing.

    A phone removes the white space of its readings too, so that both use the same label.
    """
    label = text.strip() if isinstance(text, str) else text
    if label in ("", None):
        return None
    label = _printable(label, "context")
    size = len(label.encode("utf-8"))
    if size > MAX_LABEL:
        raise ValueError(f"a context has at most {MAX_LABEL} bytes of UTF-8: {_shown(label)} has {size}")
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
        raise ValueError(f"a {kind} has a name without control characters: got {_shown(text)}")
    return text


def _twice(user: str, moment: dt.datetime, zone: dt.tzinfo | None, one: str | None, other: str | None) -> str:
    first, second = ("nothing" if label is None else repr(label) for label in (one, other))
    message = f"user {user!r} is in {first} and in {second} at {moment.isoformat()}"
    if moment.tzinfo is None and zone is not None:
        offsets = {moment.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)}
        if len(offsets) > 1:
            message += " (the clock showed this hour twice: write the times with their offset)"
    return message


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
