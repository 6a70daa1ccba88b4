"""A resident: a person with places, habits and holidays, and a phone that recorded them for some months."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from reticent.randomness import seeded
from reticent_sim.world import phone
from reticent_sim.world.people import HOURS, Day, Habit, Person, weekday
from reticent_sim.world.places import places
from reticent_sim.world.resident_habits import habits

MIN_DAYS, MAX_DAYS = 36, 269
"""The days that a phone recorded. In Reality Mining, they are 30 to 269; here, some of them have few readings."""
LENGTHS = (1.15, 1.84)
"""The beta distribution between the two whose average is that of Reality Mining, 122 days, and a few more."""

ACTIVE_EVERY = 4
"""One resident in so many also has a record of activities: 23 of 91."""

AWAY = "away"
HOLIDAYS = 70  # days from one to the next, on average
MAX_HOLIDAY = 8


@dataclass(frozen=True)
class Holiday:
    """Days spent elsewhere."""

    first: int
    last: int

    def covers(self, day: int) -> bool:
        """Whether a day belongs to it."""
        return self.first <= day <= self.last


@dataclass(frozen=True)
class Resident:
    """One of the people of a seed, and how many days of theirs were recorded."""

    person: Person
    recorded: int
    holidays: tuple[Holiday, ...]
    uses: tuple[Habit, ...]
    """Their use of the phone; empty where that was not recorded."""

    @property
    def name(self) -> str:
        """Their name in traces."""
        return f"p{self.person.number:02}"

    def day(self, number: int) -> Day:
        """Their places in each hour of a day, None where nothing was read; day 0 is a Monday."""
        lived = self.person.day(number)
        for holiday in self.holidays:
            if holiday.covers(number):
                leaves, returns = (11 if number == holiday.first else 0), (17 if number == holiday.last else HOURS)
                lived = [_moved(place, leaves <= hour < returns) for hour, place in enumerate(lived)]
        return lived

    def days(self, numbers: Iterable[int] | None = None) -> list[Day]:
        """Several days, or all that were recorded."""
        return [self.day(number) for number in (range(self.recorded) if numbers is None else numbers)]

    def activities(self, number: int) -> Day:
        """Their use of the phone and way of moving in each hour of a day."""
        if not self.uses:
            raise ValueError(f"the activities of {self.name} were not recorded")
        rng = seeded(self.person.seed, "resident", self.person.number, "activities", number)
        return phone.activities(self.day(number), self.uses, weekday(number), rng)


def resident(seed: int, number: int) -> Resident:
    """One of the residents of a seed, who are the same however many of them there are.

    >>> resident(1, 5).name, resident(1, 5).recorded
    ('p05', 71)
    """
    rng = seeded(seed, "resident", number)
    person = Person(seed, number, habits(rng, places(rng)))
    recorded = MIN_DAYS + round((MAX_DAYS - MIN_DAYS) * rng.beta(*LENGTHS))
    holidays = tuple(_holidays(rng))
    uses = phone.uses(rng) if number % ACTIVE_EVERY == 1 else ()
    return Resident(person, recorded, holidays, uses)


def _holidays(rng: np.random.Generator) -> Iterator[Holiday]:
    first = int(rng.exponential(HOLIDAYS))
    while first < MAX_DAYS:
        last = first + int(rng.integers(2, MAX_HOLIDAY))
        yield Holiday(first, last)
        first = last + 7 + int(rng.exponential(HOLIDAYS))


def _moved(place: str | None, elsewhere: bool) -> str | None:
    if not elsewhere or place is None:
        return place
    return AWAY
