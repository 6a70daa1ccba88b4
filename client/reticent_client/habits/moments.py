"""The times of readings: ISO 8601, with an offset or without, or numbers that count from 1970."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from decimal import Decimal

from reticent_client.mask.timetable import FIRST_YEAR, LAST_YEAR

Time = dt.datetime | str | float
"""A time as it stands in a file or a frame."""

_LONGEST = 200  # characters of a time
_EXAMPLES = "2027-03-01T08:30:00, 2027-03-01 08:30, 2027-03-01T07:30:00Z or 1803886200"
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]*)?", re.ASCII)
_BEGINNING = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_1985, _2286 = 473_385_600, 10**10  # in seconds; narrow, so that a date without dashes is not taken for such a number
_EPOCHS = tuple((_1985 * unit, _2286 * unit, Decimal(1_000_000) / unit) for unit in (1, 10**3, 10**6, 10**9))


def moment(time: Time) -> dt.datetime:
    """A time of day on a date, whatever it is written as."""
    if isinstance(time, dt.datetime):
        return time
    if isinstance(time, bool) or not isinstance(time, str | int | float):
        raise ValueError(f"a time is a datetime or written as {_EXAMPLES}: got {time!r}")
    text = str(time)
    if len(text) <= _LONGEST:
        if _NUMBER.fullmatch(text):
            return _epoch(Decimal(text))
        if "T" in text or " " in text:
            with contextlib.suppress(ValueError):
                return dt.datetime.fromisoformat(text)
    raise ValueError(f"a time is written as {_EXAMPLES}: got {shown(text)}")


def _epoch(number: Decimal) -> dt.datetime:
    """The instant of a number of seconds, or of a smaller unit, since 1970."""
    for first, last, microseconds in _EPOCHS:
        if first <= number < last:
            return _BEGINNING + dt.timedelta(microseconds=int(number * microseconds))
    raise ValueError(
        f"a time as a number counts the seconds (or milli-, micro- or nanoseconds) since 1970, from 1985 to 2286: "
        f"got {number}"
    )


def instant(moment: dt.datetime, zone: dt.tzinfo | None, *, aware: bool) -> dt.datetime:
    """The instant in UTC; `ValueError` for years without a day in some zone."""
    message = f"the time {moment.isoformat()} is too far from now: years lie between {FIRST_YEAR} and {LAST_YEAR}"
    try:
        found = _in_utc(moment, zone, aware=aware)
    except OverflowError:
        raise ValueError(message) from None
    if not FIRST_YEAR <= found.year <= LAST_YEAR:
        raise ValueError(message)
    return found


def _in_utc(moment: dt.datetime, zone: dt.tzinfo | None, *, aware: bool) -> dt.datetime:
    if (moment.tzinfo is not None) != aware:
        has, had = ("an offset", "none") if not aware else ("no offset", "one")
        raise ValueError(f"the time {moment.isoformat()} has {has}, and the times before it have {had}")
    if aware:
        if zone is None:
            raise ValueError(
                f"the time {moment.isoformat()} is an instant, which does not say when the user's days begin: "
                "give their time zone, such as Europe/Paris or UTC"
            )
        return moment.astimezone(dt.UTC)
    if zone is None:
        return moment.replace(tzinfo=dt.UTC)
    found = moment.replace(tzinfo=zone, fold=0).astimezone(dt.UTC)
    if found.astimezone(zone).replace(tzinfo=None) != moment:
        raise ValueError(
            f"no clock in {zone} ever showed {moment.isoformat()}, for it was set forward then: "
            "give another zone, or none for a clock that never jumps"
        )
    return found


def shown(text: str) -> str:
    """A text for an error, in part if it is long."""
    return repr(text if len(text) <= 40 else text[:40] + "…")
