"""A sensor that reads from traces: to develop and test against a phone without waiting for a user's days."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.habits.traces import Reading, Traces
from reticent_client.mask.timetable import LEAD, Timetable

_TICK = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Outage:
    """A time in which a sensor reads nothing, from its beginning to just before its end.

    >>> Outage.parse("2027-02-03T09:00/2027-02-03T15:00").end.hour
    15
    """

    begin: dt.datetime
    end: dt.datetime

    @classmethod
    def parse(cls, text: str) -> Outage:
        """The outage between two local times of ISO 8601, as in 2027-02-03T09:00/2027-02-03T15:00."""
        try:
            begin, end = map(dt.datetime.fromisoformat, text.split("/"))
            if begin.tzinfo is None and end.tzinfo is None and begin < end:
                return cls(begin, end)
        except ValueError:
            pass
        example = "2027-02-03T09:00/2027-02-03T15:00"
        raise ValueError(f"an outage is a local time, a slash and a later one, as in {example}: got {text!r}")


class TraceSensor:
    """Run by a phone in development: gives a mask each reading of some traces at its time.

    The context of a slot is read shortly before the slot begins, so that it counts for the step that begins with it.

    Args:
        traces: The readings.
        user: Whose; the only user's unless given.
        outages: When the sensor reads nothing.
    """

    def __init__(self, traces: Traces, user: str | None = None, outages: Sequence[Outage] = ()) -> None:
        self.zone = traces.zone or dt.UTC
        readings = traces.of_user(user)
        if traces.table is not None:
            readings = tuple(Reading(time - 2 * LEAD, context) for time, context in readings)
        self.readings = tuple(each for each in readings if not self._is_out(each.time, outages))
        """The readings to come."""
        self.first_day = Timetable(1, self.zone).date(traces.of_user(user)[0].time)
        """The local date of the first reading."""
        self._end = readings[-1].time

    async def run(self, mask: MaskRunner) -> None:
        """Read what is after the present time of the mask's clock, until the step after the last reading begins."""
        for time, context in self.readings:
            if time > mask.clock.now():
                await mask.clock.wait_until(time - _TICK)  # a reading at the moment of a decision counts for it
                mask.sense(context)
        await mask.clock.wait_until(self._end)
        await mask.clock.wait_until(mask.next_step.instant + _TICK)

    def _is_out(self, time: dt.datetime, outages: Sequence[Outage]) -> bool:
        local = time.astimezone(self.zone).replace(tzinfo=None)
        return any(each.begin <= local < each.end for each in outages)
