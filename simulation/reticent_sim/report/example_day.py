"""The example day of a month: one check reveals a visit by its silence, another hides it and little else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reticent_client import Adversary, MaskIt
from reticent_sim.experiments.month import BEST, LEAKY, MonthPart
from reticent_sim.world.people import HOSPITAL, HOURS, Day

Floats = npt.NDArray[np.float64]

SHOWN_CHECKS = (LEAKY, "hybrid", BEST)
CANDIDATES, RUNS = 3, 3
"""The number of candidate days in each part of a month, and of runs of each check over them."""


@dataclass(frozen=True)
class CheckedDay:
    """The releases of one check on a day, and the adversary's belief in the hospital."""

    check: str
    outputs: Day
    beliefs: Floats  # (T,)

    @property
    def released(self) -> int:
        """The number of hours released."""
        return HOURS - self.outputs.count(None)


@dataclass(frozen=True)
class ExampleDay:
    """A day, what three checks released of it, and the adversary's beliefs."""

    seed: int
    person: int
    day: int
    delta: float
    contexts: Day
    prior: Floats  # (T,): the belief in the hospital before anything is released
    checked: tuple[CheckedDay, ...]

    @property
    def visits(self) -> list[int]:
        """The hours in the hospital."""
        return [hour for hour, context in enumerate(self.contexts) if context == HOSPITAL]

    @property
    def interest(self) -> float:
        """A score: how clearly the first check reveals a visit, how much the last releases, how varied the day is."""
        leaky, *_, best = self.checked
        rise = max((leaky.beliefs[hour] - self.prior[hour] for hour in self.visits), default=0.0)
        return float(rise + best.released / HOURS + _variety(self.contexts) / 5)


def example_days(part: MonthPart) -> Iterator[ExampleDay]:
    """The most varied days of a part of a month."""
    days = part.followed or part.strayed
    for number in sorted(days, key=lambda number: _variety(part.person.day(number)))[-CANDIDATES:]:
        for run in range(RUNS):
            yield _example(part, number, run)


def _example(part: MonthPart, number: int, run: int) -> ExampleDay:
    contexts = part.person.day(number)
    column = part.chain.index(HOSPITAL)
    checked = []
    for check in SHOWN_CHECKS:
        policy = part.policies[check]
        outputs = MaskIt(policy, part.coins("scene", check, number, run)).filter_day(contexts)
        beliefs, _ = Adversary(policy).beliefs_of_real_day(outputs)
        checked.append(CheckedDay(check, outputs, beliefs[:, column]))
    prior = part.chain.prior[:, column]
    return ExampleDay(part.person.seed, part.person.number, number, part.delta, contexts, prior, tuple(checked))


def _variety(day: Day) -> int:
    """The number of contexts in a day; below 0 without a visit to the hospital, or with gaps."""
    return len(set(day)) - len(day) * ((HOSPITAL not in day) + (None in day))
