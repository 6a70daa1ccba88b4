"""Steps as times of day: the steps of a day share 24 hours of local wall clock equally."""

from __future__ import annotations

import datetime as dt
import re

_MINUTES = 24 * 60
_LENGTH = re.compile(r"(?P<count>\d+(\.\d+)?)\s*(?P<unit>[a-z]+)")
_UNITS = {
    unit: seconds
    for seconds, units in {
        1: ("s", "sec", "second", "seconds"),
        60: ("m", "min", "minute", "minutes"),
        3600: ("h", "hour", "hours"),
        86400: ("d", "day", "days"),
    }.items()
    for unit in units
}
_TIME = re.compile(r"(?P<hour>\d{1,2}):(?P<minute>\d\d)")


def step_at(text: str, horizon: int) -> int:
    """The step of a time such as 08:30, or of a number of a step.

    >>> step_at("08:30", 48), step_at("17", 48)
    (17, 17)
    """
    time = _TIME.fullmatch(text)
    if time is not None:
        hour, minute = int(time["hour"]), int(time["minute"])
        if hour > 23 or minute > 59:
            raise ValueError(f"{text} is no time of day")
        return (60 * hour + minute) * horizon // _MINUTES
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"a step is a time of day such as 08:30, or a number: got {text!r}")
    step = int(text)
    if step >= horizon:
        raise ValueError(f"step {step} lies outside the day of {horizon} steps")
    return step


def time_of(step: int, horizon: int) -> str:
    """When a step begins.

    >>> time_of(17, 48)
    '08:30'
    """
    minutes = -(-step * _MINUTES // horizon)
    return f"{minutes // 60:02}:{minutes % 60:02}"


def duration(text: str) -> dt.timedelta:
    """A length of time such as 30min, 1h or 2d.

    >>> print(duration("90min"))
    1:30:00
    """
    length = _LENGTH.fullmatch(text.strip().lower())
    if length is None or length["unit"] not in _UNITS:
        raise ValueError(f"a length of time is a number and a unit, as 30s, 30min, 1h or 2d: got {text!r}")
    try:
        return dt.timedelta(seconds=float(length["count"]) * _UNITS[length["unit"]])
    except OverflowError:
        raise ValueError(f"{text} is longer than any time") from None
