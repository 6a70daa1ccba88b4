"""Formats of time: instants as milliseconds of Unix time, durations as people type them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable

Now = Callable[[], dt.datetime]
"""A function that returns the present in UTC."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)

_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_PART = re.compile(r"(\d{1,6})(s|min|h|d)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


def milliseconds(moment: dt.datetime) -> int:
    """Milliseconds of Unix time, the stored form of an instant."""
    return (moment - _EPOCH) // _MILLISECOND


def instant(count: int) -> dt.datetime:
    """The instant at so many milliseconds of Unix time.

    >>> milliseconds(instant(1_803_902_400_000))
    1803902400000
    """
    return _EPOCH + count * _MILLISECOND


def duration(text: str, option: str) -> dt.timedelta:
    """The duration in an option's text.

    >>> duration("1h30min", "--step")
    datetime.timedelta(seconds=5400)
    """
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{option} is a duration such as 1d, 90min or 30s: got {text!r}")
    return dt.timedelta(seconds=sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text)))
