"""A step as it crosses the wire: every message has one size, whatever it says."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from reticent.v1 import phone_pb2
from reticent_client.mask.limits import MAX_LABEL as MAX_LABEL  # noqa: PLC0414  # whoever writes messages finds it here
from reticent_client.mask.times_of_day import time_of

SIZE = 320
"""Of every message, in bytes. The rest of the longest message takes 170, and its padding at least 128 more.

A padding of 128 bytes and more has a length of two bytes, so that each size can be reached exactly.
"""

_PADDING_HEADER = 3
_DAYS = 1 << 20  # more than a day has steps, so that positions grow from day to day


@dataclass(frozen=True)
class Step:
    """What an app is told about one step."""

    position: int
    """Grows from step to step, across days and restarts."""
    date: dt.date
    """The local date."""
    step: int
    """Which step of the day, from 0 on."""
    steps: int
    """How many a day has."""
    context: str | None
    """Where the user is, None where nothing is released."""
    raw: bool = False
    """Whether this is every context, released or not: for the apps that the user trusts."""

    @property
    def time(self) -> str:
        """When the step begins by the local wall clock.

        >>> Step(0, dt.date(2027, 2, 1), 17, 48, None).time
        '08:30'
        """
        return time_of(self.step, self.steps)

    def encode(self) -> bytes:
        """The message, padded to the one size.

        >>> {len(Step(9, dt.date(2027, 2, 1), 1, 8, told).encode()) for told in (None, "home", "x" * 128)}
        {320}
        """
        message = phone_pb2.Step(
            position=self.position,
            day=self.date.isoformat(),
            step=self.step,
            steps=self.steps,
            time=self.time,
            context=self.context,
            raw=self.raw,
        )
        message.padding = bytes(SIZE - message.ByteSize() - _PADDING_HEADER)
        return message.SerializeToString()

    @classmethod
    def decode(cls, payload: bytes) -> Step:
        """The step that a message is about."""
        message = phone_pb2.Step.FromString(payload)
        return cls(
            message.position,
            dt.date.fromisoformat(message.day),
            message.step,
            message.steps,
            message.context if message.HasField("context") else None,
            message.raw,
        )


def position(date: dt.date, step: int) -> int:
    """Where a step stands among all steps of all days."""
    return date.toordinal() * _DAYS + step


def check_label(label: str) -> None:
    """Refuse a context that no message can carry."""
    try:
        size = len(label.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise ValueError(f"a context is text that UTF-8 can write: got {label!r}") from error
    if size > MAX_LABEL:
        raise ValueError(f"a context has at most {MAX_LABEL} bytes of UTF-8: {label[:40]!r}... has {size}")
