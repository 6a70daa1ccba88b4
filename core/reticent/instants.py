"""Instants as they are stored and sent: milliseconds of Unix time."""

from __future__ import annotations

import datetime as dt

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


def milliseconds(moment: dt.datetime) -> int:
    """Of Unix time, which is how an instant is stored and sent."""
    return (moment - _EPOCH) // _MILLISECOND


def instant(count: int) -> dt.datetime:
    """The instant that was so many milliseconds after the beginning of Unix time.

    >>> milliseconds(instant(1_803_902_400_000))
    1803902400000
    """
    return _EPOCH + count * _MILLISECOND
