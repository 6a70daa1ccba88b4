"""Simulated people: a person has habits, and where they are hour by hour follows from these and a seed."""

from __future__ import annotations

from collections.abc import Iterable
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

        >>> Person(seed=7, number=0, habits=(Habit("cafe", EVERY_DAY, 1.0, (8,), before="transit"),)).day(0)[5:10]
        ['home', 'home', 'transit', 'cafe', 'home']
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


def one_of(rng: np.random.Generator, *choices: int) -> int:
    """One of some hours, days or kinds; one that is given twice is twice as likely."""
    return choices[rng.integers(len(choices))]


def some_of(rng: np.random.Generator, days: tuple[int, ...], count: int) -> tuple[int, ...]:
    """So many of some days, in their order."""
    return tuple(sorted(rng.choice(days, size=count, replace=False).tolist()))
