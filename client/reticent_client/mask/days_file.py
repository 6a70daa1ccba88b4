"""Days as CSV: a header `day,step,context`, then a line for each step; an empty context is a gap.

Days may have any name; their lines stand together, steps in order. A step without a line is a gap too. Lines before the
header that begin with "#" are comments.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from reticent_client.mask.limits import MAX_STEPS

HEADER = ["day", "step", "context"]


@dataclass(frozen=True)
class DayRecord:
    """A day of a file: its name and its contexts."""

    name: str
    labels: list[str | None]


def read_days(file: Iterable[str], place: str, horizon: int | None = None) -> list[DayRecord]:
    """The days of a file, each of `horizon` steps, or as long as the longest needs.

    `ValueError`, with the line, for anything else than such a file; also if every day is shorter than `horizon`.
    """
    days: dict[str, dict[int, str | None]] = {}
    current: str | None = None
    for where, (name, number, context) in _rows(file, place):
        if name != current and name in days:
            raise ValueError(f"{where}: day {name!r} goes on after other days")
        steps = days.setdefault(name, {})
        current = name
        step = _step(number, where, MAX_STEPS if horizon is None else horizon)
        last = next(reversed(steps), -1)
        if step <= last:
            raise ValueError(f"{where}: step {step} of day {name!r} comes after step {last}")
        steps[step] = context or None
    length = max((next(reversed(steps)) + 1 for steps in days.values()), default=0)
    if horizon is not None and 0 < length < horizon:
        raise ValueError(f"{place}: the days have {length} steps where {horizon} are expected")
    return [DayRecord(name, [steps.get(t) for t in range(horizon or length)]) for name, steps in days.items()]


def write_days(file: TextIO, days: Iterable[DayRecord], comment: str | None = None) -> None:
    """The same form; an empty context where a step has none."""
    if comment is not None:
        file.write(f"# {comment}\n")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEADER)
    for day in days:
        writer.writerows([day.name, t, label or ""] for t, label in enumerate(day.labels))


def _rows(file: Iterable[str], place: str) -> Iterator[tuple[str, Sequence[str]]]:
    """The place and the three fields of each line."""
    line = 0

    def lines() -> Iterator[str]:
        nonlocal line
        for text in file:
            line += 1
            yield text

    content = itertools.dropwhile(lambda text: text.startswith("#"), lines())
    reader = csv.reader(content, strict=True)
    try:
        if next(reader, None) != HEADER:
            raise ValueError(f"{place}:{max(line, 1)}: the first line must be {','.join(HEADER)}")
        for row in reader:
            if len(row) != len(HEADER):
                raise ValueError(f"{place}:{line}: a line has three fields, {','.join(HEADER)}: got {len(row)}")
            yield f"{place}:{line}", row
    except csv.Error as error:
        raise ValueError(f"{place}:{line}: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{place}: after line {line} there is something that is not UTF-8 text") from error


def _step(text: str, where: str, horizon: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"{where}: a step is a whole number: got {text!r}")
    step = int(text)
    if step >= horizon:
        raise ValueError(f"{where}: step {step} lies outside the day of {horizon} steps")
    return step
