"""Time as it is written down: instants as milliseconds of Unix time, lengths of time as people type them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable

Now = Callable[[], dt.datetime]
"""Says what time it is, in UTC."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)

_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_PART = re.compile(r"(\d{1,6})(s|min|h|d)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


def milliseconds(moment: dt.datetime) -> int:
    """Of Unix time, which is how an instant is stored and sent."""
    return (moment - _EPOCH) // _MILLISECOND


def instant(count: int) -> dt.datetime:
    """The instant that was so many milliseconds after the beginning of Unix time.

    >>> milliseconds(instant(1_803_902_400_000))
    1803902400000
    """
    return _EPOCH + count * _MILLISECOND


def duration(text: str, option: str) -> dt.timedelta:
    """A length of time.

    >>> duration("1h30min", "--step")
    datetime.timedelta(seconds=5400)
    """
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{option} is a length of time such as 1d, 90min or 30s: got {text!r}")
    return dt.timedelta(seconds=sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text)))
