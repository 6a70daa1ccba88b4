"""The simulated people of the demo: where each person is, hour by hour.

People have strong habits, so their chains are sparse. Each sometimes visits a hospital: some at fixed hours, some at
any hour, some with a revealing stop before or after. Everything follows from one seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from reticent.randomness import seeded

HOURS = 24
WEEKDAYS = (0, 1, 2, 3, 4)
WEEKEND = (5, 6)
EVERY_DAY = (*WEEKDAYS, *WEEKEND)

HOME = "home"
HOSPITAL = "hospital"
CONTEXTS = (HOME, "transit", "work", "cafe", "shop", "gym", "friends", "pharmacy", HOSPITAL)
"""The contexts that a person can be in."""

Day = list[str | None]
"""A context for each hour, None where nothing was read."""


@dataclass(frozen=True)
class Habit:
    """An activity that replaces all others on some days.

    Where hours are given, each is equally likely; one that is given twice is twice as likely.
    """

    context: str | None
    """The person's place; None for hours without a reading, wherever they are."""
    weekdays: tuple[int, ...]
    """Monday is 0."""
    chance: float
    """The probability of the activity on such a day."""
    starts: tuple[int, ...]
    """The time at which it begins."""
    lasts: tuple[int, ...] = (1,)
    """For how many hours; midnight ends it."""
    before: str | None = None
    """The person's place in the hour before, if that is part of it."""
    after: str | None = None
    """The same for the hour after."""

    def join(self, day: Day, rng: np.random.Generator) -> None:
        """Take the place of what a day of this weekday held, or not."""
        happens = rng.random() < self.chance
        start = one_of(rng, *self.starts)
        stop = start + one_of(rng, *self.lasts)
        if not happens:
            return
        day[start:stop] = [self.context] * (min(stop, HOURS) - start)
        if self.before is not None and start > 0:
            day[start - 1] = self.before
        if self.after is not None and stop < HOURS:
            day[stop] = self.after


@dataclass(frozen=True)
class Person:
    """A person who is at home unless a habit applies; later habits replace earlier ones."""

    seed: int
    number: int
    habits: tuple[Habit, ...]

    def day(self, number: int) -> Day:
        """One day of their life; day 0 is a Monday.

        >>> person(seed=7, number=0).day(0)[5:12]
        ['home', 'transit', 'hospital', 'hospital', 'hospital', 'hospital', 'work']
        """
        rng = seeded(self.seed, "person", self.number, "day", number)
        day: Day = [HOME] * HOURS
        for habit in self.habits:
            if weekday(number) in habit.weekdays:
                habit.join(day, rng)
        return day

    def days(self, numbers: Iterable[int]) -> list[Day]:
        """Several days of their life."""
        return [self.day(number) for number in numbers]


def weekday(day: int) -> int:
    """The day of the week, 0 for Monday."""
    return day % len(EVERY_DAY)


def person(seed: int, number: int) -> Person:
    """One of the people of a seed, who are the same however many of them there are."""
    rng = seeded(seed, "person", number, "habits")
    care = CARE[number % len(CARE)]
    habits = (*_leisure(rng), *_work(rng), *care(rng), *_gaps(rng))
    return Person(seed, number, habits)


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


def one_of(rng: np.random.Generator, *choices: int) -> int:
    """One of some hours, days or kinds; one that is given twice is twice as likely."""
    return choices[rng.integers(len(choices))]


def some_of(rng: np.random.Generator, days: tuple[int, ...], count: int) -> tuple[int, ...]:
    """So many of some days, in their order."""
    return tuple(sorted(rng.choice(days, size=count, replace=False).tolist()))
