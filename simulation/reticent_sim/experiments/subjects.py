"""The subjects of an experiment: people with days, from the simulated population or from traces of real people.

A chain is learned from the first half of a subject's days and evaluated on the second half.
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
from reticent_client.habits.trace_files import read_traces
from reticent_client.mask.chain import UNKNOWN
from reticent_sim.engine.observer import follows
from reticent_sim.world import Resident, resident
from reticent_sim.world.people import HOURS

Day = tuple[str | None, ...]

MIN_DAYS = 30
"""People with fewer days are left out."""
MIN_CONTEXTS = 2
"""People with fewer contexts in the first half are left out: there is no choice of a sensitive one."""
NIGHT = 6  # o'clock, until which most people are at home


@dataclass(frozen=True)
class Subject:
    """A person of an experiment."""

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
        """The contexts of the chain that can be sensitive."""
        return tuple(label for label in self.chain.contexts if label != UNKNOWN)

    @property
    def seen(self) -> int:
        """The number of contexts in all the days."""
        return len({label for day in self.days for label in day if label is not None})

    @property
    def home(self) -> str:
        """The context of most nights; of contexts with as many nights, the one of most hours."""
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
        """`count` contexts, drawn uniformly; a smaller draw is always part of a larger one."""
        order = seeded(seed, "sensitive", self.name).permutation(len(self.contexts))
        return tuple(self.contexts[place] for place in order[:count])


def from_population(
    seed: int, people: int, *, steps: int, max_days: int | None = None, activities: bool = False
) -> list[Subject]:
    """The residents of a seed; with `activities`, those whose activities were recorded."""
    residents = (resident(seed, number) for number in range(people))
    recorded = (each for each in residents if each.uses or not activities)
    return _eligible(
        Subject(each.name, tuple(_kept(_days(each, max_days, activities=activities), steps))) for each in recorded
    )


def from_traces(path: Path, *, steps: int, people: int | None = None, zone: str | None = None) -> list[Subject]:
    """The users of a file with the columns user, time and context; a reading at the beginning of a step counts."""
    traces = read_traces(path, zone=zone)
    sampled = Sampling(dt.timedelta(days=1) / steps, lead=dt.timedelta()).by_user(traces)
    found = _eligible(Subject(user, tuple(day.labels for day in days.days)) for user, days in sampled.items())
    if not found:
        raise ValueError(
            f"{path}: nobody has {MIN_DAYS} days or more with readings at half of their steps, and "
            f"{MIN_CONTEXTS} contexts in the first half of them"
        )
    return found[:people]


def _days(resident: Resident, most: int | None, *, activities: bool) -> Iterator[Sequence[str | None]]:
    for number in range(resident.recorded if most is None else min(resident.recorded, most)):
        yield resident.activities(number) if activities else resident.day(number)


def _kept(days: Iterable[Sequence[str | None]], steps: int) -> Iterator[Day]:
    """Days of `steps` steps; days with too few readings are left out, as for traces."""
    for day in days:
        labels = tuple(day[:: HOURS // steps])
        if sum(label is not None for label in labels) >= DEFAULT_MIN_FILLED * steps:
            yield labels


def _eligible(subjects: Iterable[Subject]) -> list[Subject]:
    return [subject for subject in subjects if len(subject.days) >= MIN_DAYS and len(subject.contexts) >= MIN_CONTEXTS]
