"""The habits of the people of a world, who share nine contexts.

Habits are strong, so that chains are sparse. Everybody sometimes visits a hospital: some at fixed hours, some at any
hour, some with a revealing stop before or after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reticent.randomness import seeded
from reticent_sim.world.people import (
    EVERY_DAY,
    HOSPITAL,
    WEEKDAYS,
    WEEKEND,
    Day,
    Habit,
    Person,
    one_of,
    some_of,
)

__all__ = ["CARE", "Routine", "routine"]


@dataclass(frozen=True)
class Routine:
    """Habits that several people share, each on days of their own."""

    seed: int
    number: int
    habits: tuple[Habit, ...]
    sensitive: frozenset[str] = frozenset({HOSPITAL})

    def days(self, count: int) -> list[Day]:
        """The first days with these habits, to learn from; day 0 is a Monday. Nobody lives exactly these days."""
        return Person(self.seed, -1 - self.number, self.habits).days(range(count))


def routine(seed: int, number: int) -> Routine:
    """One of the routines of a seed, which are the same however many of them there are."""
    rng = seeded(seed, "person", number, "habits")
    care = CARE[number % len(CARE)]
    return Routine(seed, number, (*_leisure(rng), *_work(rng), *care(rng), *_gaps(rng)))


def _leisure(rng: np.random.Generator) -> Iterator[Habit]:
    yield Habit("shop", (5,), 0.9, (one_of(rng, 10, 11),), (1, 2))
    yield Habit("shop", some_of(rng, WEEKDAYS, 2), 0.8, (one_of(rng, 17, 18, 19),))
    yield Habit("friends", WEEKEND, 0.6, (one_of(rng, 14, 19),), (2, 3, 3))
    yield Habit("friends", some_of(rng, WEEKDAYS, 1), 0.7, (20,), (2, 2, 3))
    if rng.random() < 0.7:
        yield Habit("cafe", WEEKEND, 0.5, (one_of(rng, 9, 15),))
    if rng.random() < 0.7:
        yield Habit("gym", some_of(rng, WEEKDAYS, 2), 0.85, (one_of(rng, 18, 19),))
    if rng.random() < 0.4:
        yield Habit("pharmacy", EVERY_DAY, 0.1, (one_of(rng, 10, 17),))


def _work(rng: np.random.Generator) -> Iterator[Habit]:
    way = "transit" if rng.random() < 0.7 else None
    match one_of(rng, 0, 0, 0, 1, 2, 3):
        case 0:  # office hours
            start = one_of(rng, 8, 9)
            yield Habit("work", WEEKDAYS, 0.95, (start, start, start, start + 1), (8, 8, 9), way, way)
            yield Habit("cafe", some_of(rng, WEEKDAYS, 3), 0.6, (12,))
        case 1:  # the early shift
            yield Habit("work", WEEKDAYS, 0.95, (6,), (8,), way, way)
            yield Habit("cafe", WEEKDAYS, 0.5, (16,))
        case 2:  # three mornings a week
            yield Habit("work", some_of(rng, WEEKDAYS, 3), 0.9, (9,), (4, 5), way, way)
            yield Habit("cafe", WEEKDAYS, 0.5, (15,))
        case _:  # retired
            yield Habit("cafe", EVERY_DAY, 0.6, (10,))
            yield Habit("friends", WEEKDAYS, 0.4, (15,), (2, 3))


def _dialysis(rng: np.random.Generator) -> Iterator[Habit]:
    days = ((0, 2, 4), (1, 3, 5))[one_of(rng, 0, 1)]
    yield Habit(HOSPITAL, days, 0.95, (one_of(rng, 7, 14),), (4,), before="transit")


def _physiotherapy(rng: np.random.Generator) -> Iterator[Habit]:
    yield Habit(HOSPITAL, some_of(rng, EVERY_DAY, 3), 0.9, (one_of(rng, 8, 17),), after="cafe")


def _check_ups(rng: np.random.Generator) -> Iterator[Habit]:
    chance = 0.1 * one_of(rng, 2, 3, 4)
    yield Habit(HOSPITAL, EVERY_DAY, chance, (9, 10, 11, 14, 15), (1, 2), after="pharmacy")


def _relative(rng: np.random.Generator) -> Iterator[Habit]:
    chance = 0.1 * one_of(rng, 3, 4)
    yield Habit(HOSPITAL, EVERY_DAY, chance, (16, 17, 17, 18), (1, 2), before="shop")


def _infusions(rng: np.random.Generator) -> Iterator[Habit]:
    days = (one_of(rng, 1, 3), 5)
    yield Habit(HOSPITAL, days, 0.85, (one_of(rng, 10, 13),), (2, 3), before="transit", after="transit")


CARE = (_dialysis, _physiotherapy, _check_ups, _relative, _infusions)


def _gaps(rng: np.random.Generator) -> Iterator[Habit]:
    if rng.random() < 0.4:
        yield Habit(None, EVERY_DAY, 0.5, (0,), (5, 6))
    yield Habit(None, EVERY_DAY, 0.1, (7, 13, 18, 22))
