"""The habits of a resident: a job, weekly appointments, occasional visits, and gaps in the readings.

Later habits replace earlier ones in a day: a job, then appointments, then deviations from both, and last the gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from reticent_sim.world.people import EVERY_DAY, HOME, HOURS, WEEKDAYS, WEEKEND, Habit, one_of, some_of
from reticent_sim.world.places import CAFE, FRIEND, SHOP, STATION, WORK, Place

APPOINTMENTS = 0.35
"""The part of the places that a resident goes to every week."""


def habits(rng: np.random.Generator, places: Sequence[Place]) -> tuple[Habit, ...]:
    """All habits of a resident who has these places."""
    regular = 1 + round(APPOINTMENTS * len(places))
    return (
        *_job(rng),
        *_common_habits(rng),
        *_appointments(rng, places[:regular]),
        *_deviations(rng),
        *_occasional_visits(rng, places[regular:]),
        *_gaps(rng),
    )


def _job(rng: np.random.Generator) -> Iterator[Habit]:
    way = STATION if rng.random() < 0.6 else None
    match one_of(rng, 0, 0, 0, 1, 1, 2, 3, 4):
        case 0:  # office hours
            start = one_of(rng, 8, 9)
            yield Habit(WORK, WEEKDAYS, 0.95, (start, start, start, start + 1), (8, 8, 8, 9), way, way)
            yield Habit(CAFE, some_of(rng, WEEKDAYS, 2), 0.7, (12,))
        case 1:  # a student: hours that differ from day to day, the same every week
            for day in WEEKDAYS:
                yield Habit(WORK, (day,), 0.9, (one_of(rng, 9, 10, 11, 13),), (one_of(rng, 3, 4, 6),), way, way)
        case 2:  # the early shift
            yield Habit(WORK, WEEKDAYS, 0.95, (6,), (8,), way, way)
        case 3:  # four evenings, one of them at the weekend
            yield Habit(WORK, (*some_of(rng, WEEKDAYS, 3), 5), 0.9, (one_of(rng, 15, 16),), (6,), way, way)
        case _:  # retired, helping out on two mornings
            yield Habit(WORK, some_of(rng, WEEKDAYS, 2), 0.8, (9,), (3,), way, way)
            yield Habit(CAFE, EVERY_DAY, 0.6, (10,))


def _common_habits(rng: np.random.Generator) -> Iterator[Habit]:
    yield Habit(SHOP, (5,), 0.85, (one_of(rng, 10, 11),), (1, 1, 2))
    yield Habit(SHOP, some_of(rng, WEEKDAYS, 2), 0.7, (one_of(rng, 17, 18, 19),))
    yield Habit(CAFE, WEEKEND, 0.3, (one_of(rng, 9, 15),))
    yield Habit(FRIEND, WEEKEND, 0.5, (one_of(rng, 14, 19),), (2, 3))


def _appointments(rng: np.random.Generator, places: Sequence[Place]) -> Iterator[Habit]:
    """Each on a day or two of the week, at its own hour, most weeks."""
    for place in places:
        days = some_of(rng, place.kind.weekdays, min(one_of(rng, 1, 1, 2), len(place.kind.weekdays)))
        start = one_of(rng, *place.kind.hours)
        late = (start, start, start, min(start + 1, HOURS - 1))
        yield Habit(place.label, days, rng.uniform(0.4, 0.9), late, (one_of(rng, *place.kind.lasts),))


def _deviations(rng: np.random.Generator) -> Iterator[Habit]:
    yield Habit(WORK, WEEKDAYS, rng.uniform(0, 0.1), (18,), (1, 2))
    yield Habit(HOME, EVERY_DAY, rng.uniform(0.02, 0.08), (0,), (HOURS,))  # ill, or tired of it all
    if rng.random() < 0.3:
        yield Habit(FRIEND, (4, 5), rng.uniform(0.1, 0.4), (22,), (2,))


def _occasional_visits(rng: np.random.Generator, places: Sequence[Place]) -> Iterator[Habit]:
    """Now and then, at any of the hours that suit; the first places more often than the last."""
    weights = 1 / np.arange(1, len(places) + 1)
    rate = rng.uniform(0.1, 0.5)  # of visits a day
    for place, weight in zip(places, weights / weights.sum(), strict=True):
        suited = len(place.kind.weekdays) / len(EVERY_DAY)
        chance = min(0.3, max(0.02, rate * weight / suited))
        yield Habit(place.label, place.kind.weekdays, chance, place.kind.hours, place.kind.lasts)


def _gaps(rng: np.random.Generator) -> Iterator[Habit]:
    if rng.random() < 0.3:  # off at night
        yield Habit(None, EVERY_DAY, 0.6, (0,), (6,))
    yield Habit(None, EVERY_DAY, rng.uniform(0, 0.04), (0,), (HOURS,))  # left at home, or empty
    yield Habit(None, EVERY_DAY, rng.uniform(0, 0.1), (19, 20, 21), (HOURS,))  # empty until it is charged
    yield Habit(None, EVERY_DAY, rng.uniform(0, 0.15), tuple(range(8, 22)))
