"""Who takes part in an experiment: people with days, from the made-up population or from traces of real ones.

The first half of somebody's days is what their chain is learned from, the second what it is judged on.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from reticent.randomness import seeded
from reticent_client import MarkovChain
from reticent_client.habits.sampling import DEFAULT_MIN_FILLED, Sampling
from reticent_client.habits.traces import Traces
from reticent_client.mask.chain import UNKNOWN
from reticent_sim.month import follows
from reticent_sim.world import Resident, resident
from reticent_sim.world.people import HOURS

Day = tuple[str | None, ...]

MIN_DAYS = 30
"""Whoever has fewer days takes no part."""
MIN_CONTEXTS = 2
"""With fewer in the first half there is nothing to choose a sensitive one from."""
NIGHT = 6  # o'clock, until which most people are at home


@dataclass(frozen=True)
class Subject:
    """Somebody who takes part."""

    name: str
    days: tuple[Day, ...]

    @property
    def learned(self) -> tuple[Day, ...]:
        """The first half of the days."""
        return self.days[: len(self.days) // 2]

    @property
    def judged(self) -> tuple[Day, ...]:
        """The second half."""
        return self.days[len(self.days) // 2 :]

    @cached_property
    def chain(self) -> MarkovChain:
        """One chain for all days of the week, counted from the first half, without smoothing."""
        return MarkovChain.fit(self.learned)

    @property
    def contexts(self) -> tuple[str, ...]:
        """What the chain knows, and a person can call sensitive."""
        return tuple(label for label in self.chain.contexts if label != UNKNOWN)

    @property
    def seen(self) -> int:
        """The number of contexts in all the days."""
        return len({label for day in self.days for label in day if label is not None})

    @property
    def home(self) -> str:
        """Where most nights are spent; in doubt, where most time is."""
        steps = len(self.days[0]) * NIGHT // HOURS
        nights = Counter(label for day in self.learned for label in day[:steps] if label is not None)
        always = Counter(label for day in self.learned for label in day if label is not None)
        return max(always, key=lambda label: (nights[label], always[label], label))

    @cached_property
    def halves(self) -> tuple[list[Day], list[Day]]:
        """The days of the second half that follow the chain, and those that do not."""
        followed: list[Day] = []
        strayed: list[Day] = []
        for day in self.judged:
            (followed if follows(self.chain, list(day)) else strayed).append(day)
        return followed, strayed

    def sensitive(self, seed: int, count: int) -> tuple[str, ...]:
        """So many contexts, drawn uniformly; fewer are always among more."""
        order = seeded(seed, "sensitive", self.name).permutation(len(self.contexts))
        return tuple(self.contexts[place] for place in order[:count])


def from_population(
    seed: int, people: int, *, steps: int, max_days: int | None = None, activities: bool = False
) -> list[Subject]:
    """The residents of a seed; of their activities, those of whom they were recorded."""
    everybody = (resident(seed, number) for number in range(people))
    taking_part = (who for who in everybody if who.uses or not activities)
    return _able(
        Subject(who.name, tuple(_kept(_days(who, max_days, activities=activities), steps))) for who in taking_part
    )


def from_traces(path: Path, *, steps: int, people: int | None = None, zone: str | None = None) -> list[Subject]:
    """The users of a file with the columns user, time and context; what is read when a step begins is of that step."""
    traces = Traces.read(path, zone=zone)
    sampled = Sampling(dt.timedelta(days=1) / steps, lead=dt.timedelta()).everybody(traces)
    found = _able(Subject(user, tuple(day.labels for day in days.days)) for user, days in sampled.items())
    if not found:
        raise ValueError(
            f"{path}: nobody has {MIN_DAYS} days or more with readings at half of their steps, and "
            f"{MIN_CONTEXTS} contexts in the first half of them"
        )
    return found[:people]


def _days(who: Resident, most: int | None, *, activities: bool) -> Iterator[Sequence[str | None]]:
    for number in range(who.recorded if most is None else min(who.recorded, most)):
        yield who.activities(number) if activities else who.day(number)


def _kept(days: Iterable[Sequence[str | None]], steps: int) -> Iterator[Day]:
    """Days of so many steps, by the rule for traces: a day needs readings at half of them."""
    for day in days:
        labels = tuple(day[:: HOURS // steps])
        if sum(label is not None for label in labels) >= DEFAULT_MIN_FILLED * steps:
            yield labels


def _able(subjects: Iterable[Subject]) -> list[Subject]:
    return [who for who in subjects if len(who.days) >= MIN_DAYS and len(who.contexts) >= MIN_CONTEXTS]
