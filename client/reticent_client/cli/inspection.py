"""`reticent mask inspect`: what traces hold, and what `reticent mask learn` would leave out."""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from reticent.console.options import AsJson, in_json
from reticent.times import duration
from reticent_client.cli.mask_files import busy
from reticent_client.habits.inspection import Inspection, inspect
from reticent_client.habits.sampling import DEFAULT_MIN_FILLED, DEFAULT_STEP, Sampling
from reticent_client.habits.trace_files import read_traces
from reticent_client.mask.explanation_text import percent
from reticent_client.mask.timetable import LEAD

_SHOWN = 8  # contexts
_USERS = 20


@Parameter(name="*")
@dataclass(frozen=True)
class TraceOptions:
    """The options for reading traces and cutting them into days.

    Args:
        user: The user, if the traces hold several.
        zone: The user's time zone, such as Europe/Paris.
        slots: The number of slots of a day, if the traces are a table of slots and its last slots never occur.
        step: The length of a step: 1h, 30min, 1h30min, 90s. The default is one hour, or the slot of a table.
        hold: How long a reading stays valid. The default is one step.
        lead: The phone decides a step this long before it begins. The default is 1s. Use 0s if readings are at the
            beginnings of steps, as in a table of hours.
        min_filled: A day is left out if fewer than this share of its steps have a context.
    """

    user: str | None = None
    zone: str | None = None
    slots: int | None = None
    step: str | None = None
    hold: str | None = None
    lead: str | None = None
    min_filled: float = DEFAULT_MIN_FILLED

    def read(self, path: Path | None) -> Inspection:
        """The days of traces; the default is standard input. A spinner shows what is going on."""
        with busy(f"Reading {name_of(path)}") as show:
            traces = read_traces(sys.stdin.buffer if path is None else path, zone=self.zone, slots=self.slots)
            if traces.table is not None and (self.hold is not None or self.lead is not None):
                raise ValueError(
                    f"{name_of(path)} is a table of slots, which hold while they last: "
                    "--hold and --lead mean nothing to it"
                )
            slot = DEFAULT_STEP if traces.table is None else traces.table.slot
            sampling = Sampling(
                slot if self.step is None else duration(self.step, "--step"),
                None if self.hold is None else duration(self.hold, "--hold"),
                self.min_filled,
                LEAD if self.lead is None else duration(self.lead, "--lead"),
            )
            show(f"Sampling {len(traces)} readings")
            return inspect(traces, sampling, self.user)


DEFAULTS = TraceOptions()


def inspect_traces(traces: Path | None = None, /, *, options: TraceOptions = DEFAULTS, as_json: AsJson = False) -> None:
    """Show what traces hold, and what learn would leave out of them, and why. Nothing is learned or written.

    Args:
        traces: The traces, as for learn. The default is standard input.
        options: How they are cut into days.
        as_json: Print JSON.
    """
    found = options.read(traces)
    if as_json:
        sys.stdout.write(in_json(found.to_json()) + "\n")
        return
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=False)
    for table in _tables(found):
        console.print(table)
    sys.stdout.writelines(f"note: {note}\n" for note in found.notes())


def name_of(traces: Path | None) -> str:
    """The name of the traces, for people."""
    return "standard input" if traces is None else str(traces)


def _tables(found: Inspection) -> Iterator[Table]:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in _rows(found):
        table.add_row(name, value)
    yield table
    if len(found.users) > 1:
        users = Table(box=None, pad_edge=False)
        for column in ("user", "readings", "days", "too empty", "without readings", "filled"):
            users.add_column(column, justify="left" if column == "user" else "right")
        for user, each in list(found.users.items())[:_USERS]:
            days = each.sampled
            counts = (len(each.readings), len(days.days), len(days.too_empty), len(days.without_readings))
            users.add_row(user, *map(str, counts), percent(each.filled))
        if len(found.users) > _USERS:
            users.add_row(f"{len(found.users) - _USERS} more")
        yield users


def _rows(found: Inspection) -> Iterator[tuple[str, str]]:
    users = list(found.users.values())
    yield "users", str(len(users))
    first, last = (found.time(edge(each.readings[k].time for each in users)) for edge, k in ((min, 0), (max, -1)))
    yield "readings", f"{found.readings}, {first} to {last}"
    yield "times", _times(found)
    if len(users) == 1 and users[0].interval is not None:
        yield "interval", f"{users[0].interval} between two readings (median)"
    contexts = sum((each.contexts for each in users), Counter[str]())
    most = ", ".join(f"{label} {count}" for label, count in contexts.most_common(_SHOWN))
    more = f" and {len(contexts) - _SHOWN} more" if len(contexts) > _SHOWN else ""
    yield "contexts", f"{len(contexts)}: {most}{more}"
    yield "of nothing", f"{sum(each.nothing for each in users)} readings"
    filled = sum(each.filled * len(each.sampled.days) for each in users)
    days = sum(len(each.sampled.days) for each in users)
    steps = f"{found.sampling.horizon} steps"
    yield "days", f"{days} of {steps}" + (f", on average {percent(filled / days)} filled" if days else "")


def _times(found: Inspection) -> str:
    traces = found.traces
    if traces.table is not None:
        days = "numbered days" if found.numbered else "dates"
        return f"a table of {dt.timedelta(days=1) // traces.table.slot} slots a day, by {days}"
    return "local, of a clock that never jumps" if traces.zone is None else f"local in {traces.zone}"
