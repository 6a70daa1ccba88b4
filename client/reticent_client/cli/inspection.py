"""`reticent mask inspect`: what traces hold, and what `reticent mask learn` would leave out."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from reticent.console.options import AsJson, in_json
from reticent.times import duration
from reticent_client.habits.inspection import Inspection, inspect
from reticent_client.habits.sampling import DEFAULT_MIN_FILLED, DEFAULT_STEP, Sampling
from reticent_client.habits.trace_files import read_traces
from reticent_client.mask.explanation_text import percent
from reticent_client.mask.timetable import LEAD

_SHOWN = 8  # contexts
_USERS = 20


@dataclass(frozen=True)
class DayOptions:
    """The options of `inspect` and `learn` that say how traces are read and cut into days."""

    user: str | None
    zone: str | None
    slots: int | None
    step: str | None
    hold: str | None
    lead: str | None
    min_filled: float


def inspect_traces(
    traces: Path | None = None,
    /,
    *,
    user: str | None = None,
    zone: str | None = None,
    slots: int | None = None,
    step: str | None = None,
    hold: str | None = None,
    lead: str | None = None,
    min_filled: float = DEFAULT_MIN_FILLED,
    as_json: AsJson = False,
) -> None:
    """Show what traces hold, and what learn would leave out of them, and why. Nothing is learned or written.

    Args:
        traces: The traces, as for learn. The default is standard input.
        user: The user to inspect; all by default.
        zone: The user's time zone, such as Europe/Paris.
        slots: The number of slots of a day, if the traces are a table of slots and its last slots never occur.
        step: The length of a step: 1h, 30min, 1h30min, 90s. The default is one hour, or the slot of a table.
        hold: How long a reading stays valid. The default is one step.
        lead: The phone decides a step this long before it begins. The default is 1s.
        min_filled: The share of the steps that a day must have a context at, or it is left out.
        as_json: Write JSON for machines.
    """
    with busy(f"Reading {name_of(traces)}") as show:
        found = read_and_sample(traces, show, DayOptions(user, zone, slots, step, hold, lead, min_filled))
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


def read_and_sample(path: Path | None, show: Callable[[str], None], options: DayOptions) -> Inspection:
    """The days of traces; `show` receives what is going on."""
    traces = read_traces(sys.stdin.buffer if path is None else path, zone=options.zone, slots=options.slots)
    if traces.table is not None and (options.hold is not None or options.lead is not None):
        raise ValueError(
            f"{name_of(path)} is a table of slots, which hold while they last: --hold and --lead mean nothing to it"
        )
    slot = DEFAULT_STEP if traces.table is None else traces.table.slot
    sampling = Sampling(
        slot if options.step is None else duration(options.step, "--step"),
        None if options.hold is None else duration(options.hold, "--hold"),
        options.min_filled,
        LEAD if options.lead is None else duration(options.lead, "--lead"),
    )
    show(f"Sampling {len(traces)} readings")
    return inspect(traces, sampling, options.user)


@contextlib.contextmanager
def busy(text: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner with a text, which can be replaced."""
    with Console(stderr=True).status(text) as status:
        yield status.update


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
            counts = (len(each.readings), len(days.days), len(days.too_empty), days.without_readings)
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
        days = "numbered days" if traces.table.numbered else "dates"
        return f"a table of {dt.timedelta(days=1) // traces.table.slot} slots a day, by {days}"
    return "local, of a clock that never jumps" if traces.zone is None else f"local in {traces.zone}"
