"""Traces and days as pandas frames; pandas comes with the extra "frames"."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Any

from reticent.errors import MissingExtra
from reticent_client.habits.sampling import DatedDay
from reticent_client.habits.traces import COLUMNS, Row, Traces, checked_label
from reticent_client.mask.days_file import HEADER
from reticent_client.mask.limits import MAX_STEPS

try:
    import pandas as pd
except ImportError as _error:
    raise MissingExtra("a data frame", "frames", "pandas") from _error


def traces_from_frame(frame: pd.DataFrame, *, zone: str | dt.tzinfo | None = None) -> Traces:
    """The traces of a frame with the columns user, time and context; a context that is missing is nothing read."""
    return Traces.gathered(rows_of(frame, "the frame"), "the frame, row {}".format, "the frame", zone)


def traces_to_frame(traces: Traces) -> pd.DataFrame:
    """The traces as a frame, users and times in order; times are in the traces' zone, or local without one."""
    rows = [(user, *reading) for user, readings in traces.readings.items() for reading in readings]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    frame["time"] = pd.to_datetime(frame["time"], utc=True)
    local = frame["time"].dt
    frame["time"] = local.tz_localize(None) if traces.zone is None else local.tz_convert(traces.zone)
    return frame.astype({"user": "string", "context": "string"})


def rows_of(frame: pd.DataFrame, place: str) -> Iterator[Row]:
    """The rows of a frame, checked for what only a frame can hold; rows count from 0."""
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"{place} must be a pandas DataFrame: got {frame!r}")
    users, times, contexts = (_column(frame, name, place) for name in COLUMNS)
    if pd.api.types.is_datetime64_any_dtype(times):
        times = times.dt.floor("us")  # a datetime knows no nanoseconds
    columns = (each.astype(object) for each in (users, times, contexts))
    for number, (user, time, context) in enumerate(zip(*columns, strict=True)):
        where = f"{place}, row {number}"
        if _is_missing(user) or _is_missing(time):
            raise ValueError(f"{where}: the {'user' if _is_missing(user) else 'time'} is missing")
        if not isinstance(user, str):
            raise ValueError(f"{where}: a user is text: got {user!r}")
        yield Row(number, user, _time(time), _label(context, where))


def days_to_frame(days: Iterable[DatedDay]) -> pd.DataFrame:
    """Days as a frame with the columns day, step and context; the context of a gap is missing."""
    rows = [(pd.Timestamp(day.date), step, label) for day in days for step, label in enumerate(day.labels)]
    return pd.DataFrame(rows, columns=HEADER).astype({"step": "int64", "context": "string"})


def days_from_frame(frame: pd.DataFrame) -> list[DatedDay]:
    """The days of a frame that `days_to_frame` made, or one like it; a step without a row is a gap."""
    days, steps, contexts = (_column(frame, name, "the frame") for name in HEADER)
    if not pd.api.types.is_integer_dtype(steps):
        raise ValueError(f"the frame: the column 'step' must hold whole numbers: it holds {steps.dtype}")
    found: dict[dt.date, dict[int, str | None]] = {}
    for number, (day, step, context) in enumerate(
        zip(days.astype(object), steps, contexts.astype(object), strict=True)
    ):
        where = f"the frame, row {number}"
        if _is_missing(day) or not isinstance(day, dt.date):
            raise ValueError(f"{where}: a day is a date: got {day!r}")
        date = day.date() if isinstance(day, dt.datetime) else day
        labels = found.setdefault(date, {})
        if not 0 <= step < MAX_STEPS:
            raise ValueError(f"{where}: a step lies between 0 and {MAX_STEPS - 1}: got {step}")
        if step in labels:
            raise ValueError(f"{where}: step {step} of {date} occurs twice")
        label = _label(context, where)
        try:
            labels[int(step)] = checked_label(label)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    length = 1 + max((step for labels in found.values() for step in labels), default=-1)
    return [DatedDay(date, tuple(map(found[date].get, range(length)))) for date in sorted(found)]


def _column(frame: pd.DataFrame, name: str, place: str) -> pd.Series[Any]:
    if list(frame.columns).count(name) != 1:
        raise ValueError(f"{place}: there must be one column {name!r}: the columns are {list(frame.columns)}")
    return frame[name]


def _label(context: object, where: str) -> str:
    """The context, empty where it is missing."""
    if _is_missing(context):
        return ""
    if not isinstance(context, str):
        raise ValueError(f"{where}: a context is text: got {context!r}")
    return context


def _time(time: object) -> Any:
    return time.to_pydatetime() if isinstance(time, pd.Timestamp) else time


def _is_missing(value: object) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)  # noqa: PLR0124  # NaN
