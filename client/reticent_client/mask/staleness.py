"""Detects changed habits: how much of the user's behaviour is new to the chain.

No days follow a chain exactly, and some people's less than others'. So the rule compares recent days with the first
ones after learning, and reports a large difference. The first days may be new already, which no comparison shows. So
it also reports if more than a quarter of the steps are off the model. docs/promises.md states the cost of following
its advice: a chain learned from raw days is a release of those days.

Each policy has its own days, and a day ends when the policy's next one begins. A policy for weekends reports on the
Sunday of the third of them at the earliest.

The numbers below were chosen on two populations, under mask_sensitive and hybrid, with chains that were smoothed by
0.1 or not at all.

- Sixty simulated people, chains of four or twelve weeks: in 5000 days of unchanged habits, at most two people were
  reported, neither for the off-model share. After two weeks their days were replaced by another person's: nine changes
  in ten were detected within a week.
- Twenty-six students, smoothed chains of a month: seven were reported in the next month of the term, in which habits
  may have changed. Without smoothing it was fourteen under mask_sensitive and ten under hybrid, seven and three of
  them only because more than a quarter of a week was off the model. Ten and four had such a week; over the whole
  month, one and none. With another person's places, all but one were detected within a week; with only another's
  times, half or more.

If another person's days began on the first day after learning, the comparison detected students with other places, and
almost no other change in months. Without smoothing, the off-model share detected within a week a good quarter of the
simulated people (a third under mask_sensitive) and more than half of the students with other times. With smoothing by
0.1 no known context is off the model: it detected one simulated person in twelve, and no student with other times.
With smoothing by 0.5 or more everything is so likely that most changes stay undetected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

RECENT_DAYS = 7
"""The number of finished days that count as recent. With fourteen, a change takes more than a week to show."""

MIN_DAYS = 5
"""The fewest recent days on which habits are said to have changed: one odd day, or a weekend, is none."""

FIRST_DAYS = 14
"""The days after learning that tell how much is new anyway: two of each day of the week, where one policy has them all.

A policy that has only some of them counts those: these take seven weeks for one that has the weekends."""

RARE = 0.03
"""A context with a lower probability at a step is unusual there. A smoothed chain has no known context off the model:
only this limit shows a change of habits."""

FACTOR = 2.0
MARGIN = 0.05
"""Habits have changed where more than `FACTOR` times the usual share is unusual, and `MARGIN` more."""

MAX_USUAL = 0.25
"""No larger share passes for usual, and until the first days are over this one does: a chain by which more than half of
all steps are unusual does not describe its user."""

MAX_OFF_MODEL = 0.25
"""If a larger share is off the model, the chain does not describe its user, whatever the first days were like: habits
may have changed before them."""


@dataclass(frozen=True)
class Recent:
    """The unusual share of the last finished days: off the model, or rare at that step by the chain.

    Only steps with a reading that was decided count: not what was missing, missed or suspended.

    >>> recent = Recent(days=7, steps=160, unusual=40, off_model=16, usual=0.04)
    >>> recent.rate, recent.limit, recent.stale
    (0.25, 0.13, True)
    """

    days: int
    steps: int
    unusual: int
    off_model: int
    """Those of the unusual ones that the chain does not know, or rules out given the last release."""
    usual: float | None
    """The share that was unusual in the first days after learning; None until these are over."""

    @property
    def rate(self) -> float | None:
        """The share of the steps that was unusual; None without steps."""
        return self.unusual / self.steps if self.steps else None

    @property
    def off_model_rate(self) -> float | None:
        """The share of the steps that was off the model; None without steps."""
        return self.off_model / self.steps if self.steps else None

    @property
    def limit(self) -> float:
        """The unusual share above which habits have changed."""
        usual = MAX_USUAL if self.usual is None else min(self.usual, MAX_USUAL)
        return FACTOR * usual + MARGIN

    @property
    def stale(self) -> bool:
        """Whether habits have changed. If so, learn them again."""
        if self.rate is None or self.days < MIN_DAYS:
            return False
        return self._off or self.rate > self.limit

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain data."""
        return {
            "days": self.days,
            "steps": self.steps,
            "unusual": self.unusual,
            "off_model": self.off_model,
            "usual": self.usual,
            "rate": self.rate,
            "off_model_rate": self.off_model_rate,
            "limit": self.limit,
            "stale": self.stale,
        }

    def __str__(self) -> str:
        if self.rate is None:
            return "no recent days"
        if self._off:
            return f"{self.off_model_rate:.0%} of the last {self.days} days' steps were off the model"
        usual = "" if self.usual is None else f", {self.usual:.0%} were at first"
        return f"{self.rate:.0%} of the last {self.days} days' steps were unusual{usual}"

    @property
    def _off(self) -> bool:
        """Whether too much is off the model, whatever was usual at first."""
        return self.off_model_rate is not None and self.off_model_rate > MAX_OFF_MODEL


class UnusualSteps:
    """Counts unusual steps; keeps each of the last days, and the sum of the first ones."""

    def __init__(self) -> None:
        self._today = [0, 0, 0]  # steps, unusual ones, those of them off the model
        self._recent: list[list[int]] = []  # the same for each of the last days
        self._first = [0, 0, 0]  # days, steps, unusual ones

    def count(self, *, unusual: bool, off_model: bool = False) -> None:
        """Count a step of today; an off-model step is unusual."""
        self._today[0] += 1
        self._today[1] += unusual or off_model
        self._today[2] += off_model

    def finish_day(self) -> None:
        """End today; a day without a counted step is ignored."""
        steps, unusual, _ = self._today
        if steps:
            self._recent = [*self._recent, self._today][-RECENT_DAYS:]
            if self._first[0] < FIRST_DAYS:
                self._first = [a + b for a, b in zip(self._first, (1, steps, unusual), strict=True)]
        self._today = [0, 0, 0]

    def recent(self) -> Recent:
        """The last finished days, beside the first."""
        days, steps, unusual = self._first
        return Recent(
            days=len(self._recent),
            steps=sum(day[0] for day in self._recent),
            unusual=sum(day[1] for day in self._recent),
            off_model=sum(day[2] for day in self._recent),
            usual=unusual / steps if days == FIRST_DAYS else None,
        )

    def to_json(self) -> dict[str, Any]:
        """The counts as plain data."""
        return {"today": self._today, "recent": self._recent, "first": self._first}

    @classmethod
    def from_json(cls, data: dict[str, Sequence[Any]]) -> UnusualSteps:
        """The counts that `to_json` wrote."""
        made = cls()
        made._today = list(data["today"])
        made._recent = [list(day) for day in data["recent"]]
        made._first = list(data["first"])
        return made
