"""One world for the simulator: people with days, places, searches and clicks, in a town with ads.

Everything follows from the seed. A person is the same in every process and however many people there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reticent.hierarchy import Context
from reticent.randomness import seeded
from reticent.rates import RateTable
from reticent_client import AdSettings
from reticent_sim.world import rate_tables
from reticent_sim.world.businesses import LEAVES, PARENTS, Floats, leaf_shares
from reticent_sim.world.clicks import typed_text
from reticent_sim.world.people import CONTEXTS, HOME, HOSPITAL, HOURS, Day, Person
from reticent_sim.world.routine import Routine, routine
from reticent_sim.world.town import (
    ATTENTION,
    HOMES,
    HOSPITAL_SITE,
    INTERESTS,
    KINDS,
    NEIGHBOURHOODS,
    OFFICES,
    SENSITIVE_QUERIES,
    STATION_SITE,
    STREET,
    TEXTS,
    Town,
)

__all__ = ["ADS_REQUESTED", "APP", "Citizen", "UserSearch", "World"]

APP = "maps"
"""The app that may show ads."""
ADS_REQUESTED = 10
"""The ads that a phone requests from the service."""
CACHE_SECONDS = 1800.0
"""For less than a step: a step never uses a reply of the step before."""

SEARCHING, AWAKE = 0.5, range(7, 23)
"""The probability of a search in an hour, and the hours with searches."""
TASTE = 0.4
"""The share of a person's searches for the general category of the interest."""
ATTENTION_SPREAD = 0.2
"""The largest difference of a person's attention from the mean."""

COUNTER_MOST = 4
"""The largest value of each counter."""
PART = 4  # hours of a part of a day
PARTS = tuple(f"{start:02}-{start + PART:02}" for start in range(0, HOURS, PART))
COUNTERS = (
    *(f"hours {label} {part}" for label in CONTEXTS for part in PARTS),
    *(f"visits {label}" for label in CONTEXTS),
    "searches",
)
"""The names of the counters."""

SAMPLED_PEOPLE, SAMPLED_DAYS = 1000, 7
"""The people and the days whose searches give the frequencies of contexts."""
RARE = 1e-9  # the frequency of a context in which nobody of them searched


class UserSearch(NamedTuple):
    """A search of a person.

    Args:
        step: The hour.
        query: The text that the app sends.
    """

    step: int
    query: str


@dataclass(frozen=True)
class Citizen(Person):
    """A person of a world.

    Args:
        routine: The number of the routine.
        interest: A category.
        locations: The location of each label.
        attention: The factor in the probability of a click.
        sensitive: The sensitive labels.
    """

    routine: int
    interest: str
    locations: Mapping[str, str]
    attention: float
    sensitive: frozenset[str] = frozenset({HOSPITAL})


@dataclass(frozen=True)
class World(Town):
    """A town with people.

    Args:
        seed: Everything follows from it.
        people: The number of people.
        routines: The number of routines that they share.
        ad_count: The number of ads.

    >>> world = World(seed=1, people=1000)
    >>> world.person(3).interest, world.person(3).day(0)[11:14], world.searches(3, 0)[0]
    ('sushi', ['work', 'cafe', 'work'], UserSearch(step=7, query='thai 2'))
    """

    people: int
    routines: int = field(default=48, kw_only=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process makes the same world from the arguments."""
        return partial(World, self.seed, self.people, routines=self.routines, ad_count=self.ad_count), ()

    def person(self, number: int) -> Citizen:
        """One of the people."""
        return _person(self, _checked("a person", number, self.people))

    def routine(self, number: int) -> Routine:
        """One of the routines."""
        return routine(self.seed, _checked("a routine", number, self.routines))

    def location(self, number: int, label: str) -> str:
        """The location of a label of a person."""
        return self.person(number).locations[label]

    def searches(self, number: int, day: int) -> list[UserSearch]:
        """The searches of a person on a day, at most one an hour."""
        return list(_lived(self, number, day)[1])

    def context(self, number: int, day: int, search: UserSearch) -> Context:
        """The exact context of a search: that of the actual place, whatever the mask releases."""
        citizen = self.person(number)
        label = _lived(self, number, day)[0][search.step]
        return citizen.locations[HOME if label is None else label], citizen.interest, search.query

    def click_probability(self, number: int, context: Context, ad: str) -> float:
        """The probability that a person clicks on an ad in a context."""
        place = self._numbers[context], self.ad_names.index(ad)
        return float(self.person(number).attention * self.appeal[place])

    def clicks(self, number: int, day: int, step: int, ad: str) -> bool:
        """Whether a person clicks on an ad that is shown for the search of a step; False without a search."""
        coin = seeded(self.seed, "person", number, "click", day, step, ad).random()
        return any(
            coin < self.click_probability(number, self.context(number, day, search), ad)
            for search in self.searches(number, day)
            if search.step == step
        )

    def exact_rates(self) -> RateTable:
        """The true rates. Those of several contexts together have the weights of the people's searches in a week."""
        return rate_tables.exact(self, self._frequency)

    def served_rates(self, learned: RateTable | None) -> RateTable:
        """The rates that the ad service loads, if these are the learned ones."""
        return rate_tables.served(self, learned)

    def counters(self, number: int, day: int) -> dict[str, float]:
        """The counters of a person's day: the hours and the visits of each label, and the searches."""
        lived, searches = _lived(self, number, day)
        counts = dict.fromkeys(COUNTERS, 0)
        for hour, label in enumerate(lived):
            if label is not None:
                counts[f"hours {label} {PARTS[hour // PART]}"] += 1
                counts[f"visits {label}"] += hour == 0 or lived[hour - 1] != label
        counts["searches"] = len(searches)
        return {name: float(min(count, COUNTER_MOST)) for name, count in counts.items()}

    @property
    def counter_names(self) -> tuple[str, ...]:
        """The names of the counters; each counts from 0 to `COUNTER_MOST`."""
        return COUNTERS

    def write(self, folder: Path) -> None:
        """Write the files of the ads: `hierarchy.json` and `catalogue.csv`."""
        self.hierarchy.save(folder / "hierarchy.json")
        (folder / "catalogue.csv").write_text(self.catalogue_csv(), encoding="utf-8")

    def settings(
        self, number: int, address: str, folder: Path, delta: float, *, authority: Path | None = None
    ) -> AdSettings:
        """The settings for ads of a person.

        Args:
            number: The person.
            address: The address of the ad service.
            folder: The folder that `write` wrote into.
            delta: The bound on what a request discloses about each sensitive context.
            authority: The certificate of the authority that certifies the service.
        """
        citizen = self.person(number)
        texts = [typed_text(LEAVES.index(SENSITIVE_QUERIES), rank) for rank in range(len(TEXTS))]
        return AdSettings(
            hierarchy=folder / "hierarchy.json",
            service=address,
            authority=authority,
            apps=(APP,),
            sensitive=tuple((place, citizen.interest, text) for place in self.locations for text in texts),
            delta=delta,
            ads=ADS_REQUESTED,
            places=citizen.locations,
            interest=citizen.interest,
            cache_for=CACHE_SECONDS,
        )

    @cached_property
    def _numbers(self) -> dict[Context, int]:
        """The number of each exact context."""
        return {context: number for number, context in enumerate(self.hierarchy.contexts)}

    @cached_property
    def _frequency(self) -> Floats:
        """(contexts,): the frequencies of the contexts of searches."""
        found = [
            self.hierarchy.leaf(self.context(number, day, search))
            for number in range(min(self.people, SAMPLED_PEOPLE))
            for day in range(SAMPLED_DAYS)
            for search in self.searches(number, day)
        ]
        counts = np.bincount(found, minlength=len(self.hierarchy.contexts)) + RARE
        return np.asarray(counts / counts.sum())


def _checked(title: str, number: int, end: int) -> int:
    if not 0 <= number < end:
        raise ValueError(f"{title} has a number from 0 to {end - 1}: got {number}")
    return number


@lru_cache(1 << 16)
def _person(world: World, number: int) -> Citizen:
    rng, shared = seeded(world.seed, "person", number, "places"), number % world.routines
    home, work, friends = rng.integers(NEIGHBOURHOODS, size=3).tolist()
    sites = {
        **dict.fromkeys(CONTEXTS, (home, STREET)),
        HOME: (home, HOMES),
        "work": (work, OFFICES),
        "friends": (friends, HOMES),
        "transit": STATION_SITE,
        HOSPITAL: HOSPITAL_SITE,
    }
    return Citizen(
        seed=world.seed,
        number=number,
        habits=world.routine(shared).habits,
        routine=shared,
        interest=INTERESTS[rng.integers(len(INTERESTS))],
        locations={label: world.place(site) for label, site in sites.items()},
        attention=ATTENTION + ATTENTION_SPREAD * rng.uniform(-1, 1),
    )


@lru_cache(1 << 14)
def _lived(world: World, number: int, day: int) -> tuple[Day, tuple[UserSearch, ...]]:
    """The places and the searches of a person's day."""
    citizen = world.person(number)
    rng = seeded(world.seed, "person", number, "searches", day)
    shares = leaf_shares()[KINDS]
    liked = shares * [PARENTS[LEAVES[kind]] == PARENTS[citizen.interest] for kind in KINDS]
    chances = TASTE * liked / liked.sum() + (1 - TASTE) * shares / shares.sum()
    steps = [hour for hour in AWAKE if rng.random() < SEARCHING]
    kinds = rng.choice(KINDS, len(steps), p=chances).tolist()
    ranks = rng.choice(len(TEXTS), len(steps), p=TEXTS).tolist()
    searches = (UserSearch(step, typed_text(kind, rank)) for step, kind, rank in zip(steps, kinds, ranks, strict=True))
    return citizen.day(day), tuple(searches)
