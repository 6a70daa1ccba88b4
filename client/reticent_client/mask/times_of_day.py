"""Steps as times of day: the steps of a day share 24 hours of local wall clock equally."""

from __future__ import annotations

import re

_MINUTES = 24 * 60
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
    """The time of day at which a step begins.

    >>> time_of(17, 48)
    '08:30'
    """
    minutes = -(-step * _MINUTES // horizon)
    return f"{minutes // 60:02}:{minutes % 60:02}"
