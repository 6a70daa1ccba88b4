"""One person's month under every check: the releases, and what an adversary learned.

The chains are learned from the days before the month. Weekdays and weekends have separate chains, because an adversary
knows the calendar. Days that leave the chain are off the model: the checks promise nothing for them, and they are
counted separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.randomness import seeded
from reticent_client import MarkovChain, Policy, audit
from reticent_client.mask.chain import UNKNOWN
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.engine.observer import follows
from reticent_sim.world.people import CONTEXTS, HOSPITAL, HOURS, WEEKDAYS, WEEKEND, Person, weekday

LEARNED_DAYS = 84  # twelve weeks
SENSITIVE = frozenset({HOSPITAL})
KINDS = {"weekday": WEEKDAYS, "weekend": WEEKEND}

LEAKY = "mask_sensitive"
BEST = "optimal"
Progress = Callable[[str], None]
"""Called with the name of each check before it is computed."""


@dataclass(frozen=True)
class Totals:
    """The results of a check on some days: either days that follow the chain, or days that leave it."""

    days: int = 0
    released: int = 0
    visits: int = 0
    """Hours in the hospital."""
    breaches: int = 0
    """Hours in the hospital at which the belief in it rose by more than delta."""
    largest_gain: float = 0.0
    """The largest rise of the belief in the hospital, true or not."""
    off_model_hours: int = 0
    """Hours that were suppressed because their context is off the model."""

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.days + other.days,
            self.released + other.released,
            self.visits + other.visits,
            self.breaches + other.breaches,
            max(self.largest_gain, other.largest_gain),
            self.off_model_hours + other.off_model_hours,
        )


@dataclass(frozen=True)
class Score:
    """A check over the days of some people."""

    check: str
    expected: float = 0.0
    """The expected releases of all days, if they follow the chains."""
    ceiling: float = 0.0
    """The most that any private policy can expect to release on them."""
    complete: bool = True
    on_model: Totals = Totals()
    off_model: Totals = Totals()
    readings: float = 0.0
    """The expected hours with a reading."""

    def __add__(self, other: Score) -> Score:
        return Score(
            self.check,
            self.expected + other.expected,
            self.ceiling + other.ceiling,
            self.complete and other.complete,
            self.on_model + other.on_model,
            self.off_model + other.off_model,
            self.readings + other.readings,
        )

    @property
    def days(self) -> int:
        """The number of all days."""
        return self.on_model.days + self.off_model.days

    def per_day(self, total: float) -> float:
        """A total over the days, divided by their number."""
        return total / max(self.days, 1)

    def to_json(self) -> dict[str, Any]:
        """One row of the table. Releases are hours a day."""
        return {
            "check": self.check,
            "readings": self.per_day(self.readings),
            "expected": self.per_day(self.expected),
            "realised": self.per_day(self.on_model.released + self.off_model.released),
            "ceiling": self.per_day(self.ceiling),
            "to_ceiling": self.per_day(self.ceiling - self.expected),
            "visits": self.on_model.visits,
            "breaches": self.on_model.breaches,
            "largest_gain": self.on_model.largest_gain,
            "off_model_hours": self.off_model.off_model_hours,
            "off_model_visits": self.off_model.visits,
            "off_model_breaches": self.off_model.breaches,
            "off_model_largest_gain": self.off_model.largest_gain,
            "complete": self.complete,
        }


@dataclass(frozen=True)
class MonthPart:
    """The days of one kind in a person's month, and a policy of each check for them."""

    person: Person
    chain: MarkovChain
    policies: Mapping[str, Policy]
    followed: Sequence[int]
    """The days that follow the chain, by number."""
    strayed: Sequence[int]
    """The days that leave the chain."""
    delta: float

    def scores(self) -> list[Score]:
        """The score of each check."""
        days = len(self.followed) + len(self.strayed)
        best = self.policies[BEST]
        most = best.utility if best.ceiling is None else best.ceiling
        return [
            Score(
                check,
                policy.utility * days,
                most * days,
                policy.complete,
                self._totals(policy, self.followed),
                self._totals(policy, self.strayed),
                policy.readings * days,
            )
            for check, policy in self.policies.items()
        ]

    def coins(self, *path: str | int) -> np.random.Generator:
        """The generator of the coins of a policy of this person."""
        return seeded(self.person.seed, "person", self.person.number, "coins", *path)

    def _totals(self, policy: Policy, numbers: Sequence[int]) -> Totals:
        if not numbers:
            return Totals()
        days = self.person.days(numbers)
        # No window: the belief in "some hour of the day" is not in the table, and takes as long as everything else.
        found = audit(policy, days, delta=self.delta, rng=self.coins(policy.check, *numbers), window=())
        total = found.total
        return Totals(
            days=total.days,
            released=total.released,
            visits=total.visits,
            breaches=total.breaches,
            largest_gain=total.largest.rise if total.largest else 0.0,
            off_model_hours=total.off_model + total.gaps_off_model,
        )


def month(person: Person, days: int, delta: float, progress: Progress) -> list[MonthPart]:
    """A person's month, by kinds of days, and the policies for it."""
    past, present = range(LEARNED_DAYS), range(LEARNED_DAYS, LEARNED_DAYS + days)
    return [
        _part(person, _of_kind(past, kind), now, delta, progress)
        for kind in KINDS.values()
        if (now := _of_kind(present, kind))
    ]


def _part(person: Person, past: Sequence[int], now: Sequence[int], delta: float, progress: Progress) -> MonthPart:
    chain = MarkovChain.fit(person.days(past), contexts=(*CONTEXTS, UNKNOWN), horizon=HOURS)
    policies = {}
    for name, check in CHECKS.items():
        progress(name)
        policies[name] = check.policy(chain, SENSITIVE, delta)
    followed = [number for number in now if follows(chain, person.day(number))]
    strayed = [number for number in now if number not in followed]
    return MonthPart(person, chain, policies, followed, strayed, delta)


def _of_kind(numbers: Iterable[int], weekdays: Sequence[int]) -> list[int]:
    return [number for number in numbers if weekday(number) in weekdays]
