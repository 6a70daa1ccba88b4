"""A step on the wire: every message has the same size, whatever its content."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from reticent.v1 import phone_pb2
from reticent_client.mask.limits import MAX_LABEL as MAX_LABEL  # noqa: PLC0414  # whoever writes messages finds it here
from reticent_client.mask.times_of_day import time_of

SIZE = 320
"""The size of every message, in bytes. The longest message takes 170 without padding, and its padding 128 or more.

A padding of 128 bytes and more has a length of two bytes, so that each size can be reached exactly.
"""

MASKED, RAW = "masked", "raw"
"""The streams: of what is released, and of every context, for trusted apps."""

_PADDING_HEADER = 3
_DAYS = 1 << 20  # more than a day has steps, so that positions grow from day to day


@dataclass(frozen=True)
class Step:
    """One step, as an app receives it."""

    position: int
    """Grows from step to step, across days and restarts."""
    date: dt.date
    """The local date."""
    step: int
    """The number of the step in its day, from 0."""
    steps: int
    """The number of steps of a day."""
    context: str | None
    """The released context; None if nothing is released."""
    raw: bool = False
    """Whether the stream has every context, released or not, for a trusted app."""

    @property
    def time(self) -> str:
        """The local time of day at which the step begins.

        >>> Step(0, dt.date(2027, 2, 1), 17, 48, None).time
        '08:30'
        """
        return time_of(self.step, self.steps)

    def encode(self) -> bytes:
        """The message, padded to the one size.

        >>> {len(Step(9, dt.date(2027, 2, 1), 1, 8, context).encode()) for context in (None, "home", "x" * 128)}
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
        """The step of a message."""
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
    """The position of a step among all steps of all days."""
    return date.toordinal() * _DAYS + step


def check_label(label: str) -> None:
    """Refuse a context that does not fit into a message; the error, which may be logged, does not quote it."""
    try:
        size = len(label.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise ValueError("a context is text that UTF-8 can write") from error
    if size > MAX_LABEL:
        raise ValueError(f"a context has at most {MAX_LABEL} bytes of UTF-8: got {size}")
