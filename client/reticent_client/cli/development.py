"""`reticent phone run --traces`: a phone to develop against, which lives past days on a fast clock, with a store."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from reticent.clock import PacedClock
from reticent_client.apps.mask_runner import LAST_DAY
from reticent_client.apps.messages import MASKED, Step
from reticent_client.apps.tokens import Apps
from reticent_client.apps.trace_sensor import Outage, TraceSensor
from reticent_client.counting.enrolment import MEMBERSHIP
from reticent_client.habits.trace_files import read_traces
from reticent_client.mask.timetable import Timetable
from reticent_client.store import PhoneStore

FAST = 600.0
"""Seconds of the traces that pass in one second."""


@dataclass(frozen=True)
class Development:
    """The replacements of the machine's clock and of the standard input of a phone."""

    sensor: TraceSensor
    clock: PacedClock
    hold: dt.timedelta | None
    is_new: bool
    """Whether no step was decided with this store before."""


def prepare(
    store: PhoneStore,
    path: Path,
    horizon: int,
    *,
    user: str | None,
    zone: str | None,
    hold: dt.timedelta | None,
    fast: float,
    was_off: dt.timedelta,
    sensor_off: list[str],
) -> Development:
    """Mark the store as one of a phone in development, and continue where its last run ended."""
    steps = store.messages()
    if not store.in_development and (steps or store.slot(LAST_DAY).read() or store.slot(MEMBERSHIP).read()):
        raise ValueError(f"{store.path} is the store of a phone in real time: --traces needs another --store")
    traces = read_traces(path, zone=zone)
    sensor = TraceSensor(traces, user, [Outage.parse(each) for each in sensor_off])
    start = was_off + (_begin_of(Step.decode(steps[-1][1][MASKED]), sensor.zone) if steps else _first(sensor, horizon))
    if not sensor.readings or sensor.readings[-1].time <= start:
        reached = start.astimezone(sensor.zone)
        raise ValueError(f"{path} has no reading after {reached:%Y-%m-%d %H:%M}, the time of {store.path}")
    if hold is None and traces.table is not None:
        hold = traces.table.slot
    found = Development(sensor, PacedClock(start, fast), hold, is_new=not steps)
    store.mark_in_development()
    Apps(store).forget_since()
    return found


def _first(sensor: TraceSensor, horizon: int) -> dt.datetime:
    """Half a step before the first day of the traces."""
    timetable = Timetable(horizon, sensor.zone)
    midnight = dt.datetime.combine(sensor.first_day, dt.time(), sensor.zone)
    return midnight.astimezone(dt.UTC) - timetable.step / 2


def _begin_of(step: Step, zone: dt.tzinfo) -> dt.datetime:
    """The time at which a step began, or the last one before it that the clock did not skip."""
    midnight = dt.datetime.combine(step.date, dt.time(), zone).astimezone(dt.UTC)
    beginnings = Timetable(step.steps, zone).day(step.date)[: step.step + 1]
    return max((at for at in beginnings if at is not None), default=midnight)
