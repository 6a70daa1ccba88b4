"""The day that best shows what silence reveals: one check reveals a visit, another hides it and little else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reticent_client import Adversary, MaskIt
from reticent_sim.month import BEST, LEAKY, MonthPart
from reticent_sim.world.people import HOSPITAL, HOURS, Day

Floats = npt.NDArray[np.float64]

SHOWN = (LEAKY, "hybrid", BEST)
LIVELIEST, TOSSES = 3, 3
"""The number of candidate days in each part of a month, and of coin tosses for each."""


@dataclass(frozen=True)
class View:
    """What one check released of a day, and the adversary's belief in the hospital."""

    check: str
    outputs: Day
    beliefs: Floats  # (T,)

    @property
    def released(self) -> int:
        """The number of hours released."""
        return HOURS - self.outputs.count(None)


@dataclass(frozen=True)
class Scene:
    """A day as it happened, and as three checks released it, with the adversary's beliefs."""

    seed: int
    person: int
    day: int
    delta: float
    happened: Day
    prior: Floats  # (T,): the belief in the hospital before anything is released
    views: tuple[View, ...]

    @property
    def visits(self) -> list[int]:
        """The hours in the hospital."""
        return [hour for hour, context in enumerate(self.happened) if context == HOSPITAL]

    @property
    def interest(self) -> float:
        """How clearly the first check reveals a visit, how much the last one releases, how varied the day is."""
        leaky, *_, best = self.views
        rise = max((leaky.beliefs[hour] - self.prior[hour] for hour in self.visits), default=0.0)
        return float(rise + best.released / HOURS + _liveliness(self.happened) / 5)


def scenes(part: MonthPart) -> Iterator[Scene]:
    """The liveliest days of a part of a month."""
    days = part.followed or part.strayed
    for number in sorted(days, key=lambda number: _liveliness(part.person.day(number)))[-LIVELIEST:]:
        for toss in range(TOSSES):
            yield _scene(part, number, toss)


def _scene(part: MonthPart, number: int, toss: int) -> Scene:
    happened = part.person.day(number)
    column = part.chain.index(HOSPITAL)
    views = []
    for check in SHOWN:
        policy = part.policies[check]
        outputs = MaskIt(policy, part.coins("scene", check, number, toss)).filter_day(happened)
        beliefs, _ = Adversary(policy).beliefs_of_real_day(outputs)
        views.append(View(check, outputs, beliefs[:, column]))
    prior = part.chain.prior[:, column]
    return Scene(part.person.seed, part.person.number, number, part.delta, happened, prior, tuple(views))


def _liveliness(day: Day) -> int:
    """The number of contexts in a day; below 0 without a visit to the hospital, or with gaps."""
    return len(set(day)) - len(day) * ((HOSPITAL not in day) + (None in day))
