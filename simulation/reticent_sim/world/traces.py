"""The population as traces: one reading at the beginning of each hour, as a CSV file with user, time and context."""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Iterable
from pathlib import Path

from reticent_sim.world.resident import Resident

FIRST_DAY = dt.date(2027, 1, 4)
"""Day 0 of everybody: a Monday."""


def write_traces(path: Path, residents: Iterable[Resident], *, activities: bool = False) -> int:
    """Write the recorded days of residents, and return the number of lines; hours without a reading have no context."""
    count = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("user", "time", "context"))
        for resident in residents:
            for number in range(resident.recorded):
                day = resident.activities(number) if activities else resident.day(number)
                midnight = dt.datetime.combine(FIRST_DAY, dt.time()) + dt.timedelta(days=number)
                for hour, context in enumerate(day):
                    writer.writerow((resident.name, (midnight + dt.timedelta(hours=hour)).isoformat(), context or ""))
                    count += 1
    return count
