"""A resident's use of the phone and way of moving: the contexts of section 3.7.2's last experiment.

An activity context is a combination such as "riding, app". How somebody moves follows from where they are; what they
do with the phone has habits of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from reticent_sim.world.people import EVERY_DAY, HOURS, WEEKDAYS, WEEKEND, Day, Habit
from reticent_sim.world.places import STATION

IDLE, CALL, TEXT, APP = "idle", "call", "text", "app"
SITTING, WALKING, RIDING = "sitting", "walking", "riding"

ON_FOOT = ("shop", "park")
"""The kinds of places at which people walk; at stations they ride."""


def uses(rng: np.random.Generator) -> tuple[Habit, ...]:
    """The times and kinds of a resident's use of the phone."""
    return tuple(_uses(rng))


def _uses(rng: np.random.Generator) -> Iterator[Habit]:
    wakes, evening = int(rng.integers(6, 9)), int(rng.integers(19, 22))
    yield Habit(APP, EVERY_DAY, rng.uniform(0.5, 0.95), (wakes,))
    yield Habit(APP, EVERY_DAY, rng.uniform(0.5, 0.95), (evening, evening, evening + 1), (1, 2))
    yield Habit(APP, WEEKDAYS, rng.uniform(0.2, 0.8), (12,))
    yield Habit(TEXT, EVERY_DAY, rng.uniform(0.1, 0.6), (wakes + 1, wakes + 2, 13, 17))
    yield Habit(TEXT, EVERY_DAY, rng.uniform(0.1, 0.6), (evening - 1,))
    yield Habit(CALL, WEEKDAYS, rng.uniform(0.1, 0.6), (10, 11, 15, 16))
    yield Habit(CALL, WEEKEND, rng.uniform(0.2, 0.8), (int(rng.integers(15, 20)),))
    yield Habit(CALL, (int(rng.integers(7)),), 0.8, (evening - 2,))


def activities(where: Day, habits: tuple[Habit, ...], weekday: int, rng: np.random.Generator) -> Day:
    """The activity context of each hour of a day that was spent at these places."""
    used: Day = [IDLE] * HOURS
    for habit in habits:
        if weekday in habit.weekdays:
            habit.join(used, rng)
    strolls = rng.random(HOURS) < 0.03
    return [
        None if place is None else f"{_moves(place, bool(stroll))}, {use}"
        for place, use, stroll in zip(where, used, strolls, strict=True)
    ]


def _moves(place: str, stroll: bool) -> str:
    kind = place.split(" ", maxsplit=1)[0]
    if kind == STATION:
        return RIDING
    return WALKING if kind in ON_FOOT or stroll else SITTING
