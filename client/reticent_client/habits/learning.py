"""Learns a chain from days, and tests it on other days.

The training days are not protected, because policies made from the chain are public. Learn only from days that the user
is willing to disclose.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reticent_client.errors import TooFewDays
from reticent_client.habits.evaluation import Evaluation, evaluate
from reticent_client.habits.pooling import nearby, pooled, widened
from reticent_client.habits.sampling import DatedDay
from reticent_client.mask.chain import UNKNOWN, MarkovChain
from reticent_client.mask.limits import whole_number
from reticent_client.mask.policy import VectorPolicy
from reticent_client.mask.problem import TOLERANCE
from reticent_client.mask.provenance import Provenance

OTHER = "other"
"""The context of all places that have no label of their own."""

DAY, WEEKDAY, WEEKEND = "day", "weekday", "weekend"

DEFAULT_TRAIN = 0.5
DEFAULT_SMOOTHING = 2.0
DEFAULT_MIN_DAYS = 14
SHARED_DAYS = 2.0
"""The number of days of all kinds that a chain for weekdays or weekends includes."""

FEW_OF_A_KIND = 4
"""With fewer days of its own kind, a chain for weekdays or weekends says little about them: they hardly outweigh the
days of all kinds. Without any it is the chain of all days."""

MAX_PROBABILITIES = 20_000_000
"""The most probabilities of a learned chain; more would take gigabytes."""

Days = Sequence[DatedDay]


@dataclass(frozen=True)
class Habits:
    """The learned chains, their training days and their test."""

    chains: Mapping[str, MarkovChain]
    """A chain for every "day", or one for "weekday" and one for "weekend"."""
    training: tuple[DatedDay, ...]
    test_days: tuple[DatedDay, ...]
    """The days that were not used for learning, with the labels of the chains."""
    evaluation: Evaluation | None
    """The test of the chains; None if all days were used for training."""

    @property
    def chain(self) -> MarkovChain:
        """The one chain of all days; `ValueError` where weekends have their own."""
        if DAY not in self.chains:
            raise ValueError("weekdays and weekends have chains of their own: take one from chains, or use on(date)")
        return self.chains[DAY]

    def on(self, date: dt.date) -> MarkovChain:
        """The chain of a date."""
        return self.chains[kind_of(DatedDay(date, ()), self.chains)]


def learn(
    days: Days | Mapping[str, Days],
    *,
    train: float = DEFAULT_TRAIN,
    smoothing: float = DEFAULT_SMOOTHING,
    population: MarkovChain | None = None,
    apart: bool = False,
    top: int | None = None,
    min_days: int = DEFAULT_MIN_DAYS,
) -> Habits:
    """Learn the habits of a user or of a population from the first days, and test them on the others.

    Args:
        days: The days of a user, or a mapping from the users of a population to their days.
        train: The share of each user's days to learn from; 1 means all days and no test.
        smoothing: The number of unseen days to add: days of the population's chain or, without one, days on which the
            user does at each hour what was seen up to an hour earlier or later. With 0 the chain is the plain counts.
        population: The chain of other people, with as many steps. With it any number of days is enough.
        apart: Learn weekdays and weekends apart. Each chain includes a few days of both, so that a weekend may contain
            what was seen on weekdays only. Without days of its own it is the chain of all days.
        top: The number of contexts that keep their label: those with most steps in the training days, and those of the
            population. All others become "other", together with a context of that name.
        min_days: With fewer days to learn from, and no population's chain, `TooFewDays` is raised.
    """
    _check(train, smoothing, top, min_days)
    by_user = days if isinstance(days, Mapping) else {"": days}
    cuts = {user: int(len(user_days) * train + 1e-9) for user, user_days in by_user.items()}
    training = [day for user, user_days in by_user.items() for day in _in_order(user_days)[: cuts[user]]]
    test_days = [day for user, user_days in by_user.items() for day in _in_order(user_days)[cuts[user] :]]
    if len(training) < min_days and population is None:
        raise TooFewDays(len(training), min_days)
    if top is not None:
        known = _most_visited(training, top) | set(() if population is None else population.contexts)
        training, test_days = ([merged(day, known) for day in part] for part in (training, test_days))
    chains = _chains(training, smoothing, population, apart=apart)
    evaluation = evaluate([(chains[kind_of(day, chains)], day.labels) for day in test_days]) if test_days else None
    return Habits(chains, tuple(training), tuple(test_days), evaluation)


def silent(contexts: Sequence[str], horizon: int) -> VectorPolicy:
    """The policy that releases nothing, for a phone whose user's habits are not known yet.

    >>> silent(["home"], 24).utility
    0.0
    """
    chain = MarkovChain.uniform(contexts, horizon)
    rise = np.full((chain.horizon, chain.size), TOLERANCE)  # no belief rises at all, but a delta lies above 0
    return VectorPolicy(Provenance("silent", chain, rise, (chain,), 0.0), np.ones(rise.shape))


def merged(day: DatedDay, known: set[str]) -> DatedDay:
    """The same day with "other" instead of unknown contexts; gaps stay gaps."""
    return DatedDay(day.date, tuple(label if label is None or label in known else OTHER for label in day.labels))


def kind_of(day: DatedDay, chains: Mapping[str, MarkovChain]) -> str:
    """The kind of chain for a day."""
    if DAY in chains:
        return DAY
    return WEEKEND if day.is_weekend else WEEKDAY


def _chains(training: Days, smoothing: float, population: MarkovChain | None, *, apart: bool) -> dict[str, MarkovChain]:
    _check_size(training, population)
    overall = _completed(training, smoothing, population)
    if not apart:
        return {DAY: overall}
    return {kind: _own(training, overall, weekend=kind == WEEKEND) for kind in (WEEKDAY, WEEKEND)}


def _completed(training: Days, smoothing: float, population: MarkovChain | None) -> MarkovChain:
    """The counted chain, completed with unseen days."""
    if not training and population is not None:
        return population
    counted = MarkovChain.fit(day.labels for day in training)
    if smoothing == 0:
        return counted if population is None else widened(counted, pooled([counted, population], [1, 1]).contexts)
    hour = max(1, counted.horizon // 24)
    return pooled([counted, nearby(counted, hour) if population is None else population], [len(training), smoothing])


def _own(training: Days, overall: MarkovChain, *, weekend: bool) -> MarkovChain:
    """The chain of weekdays or weekends, with some days of both."""
    user_days = [day.labels for day in training if day.is_weekend == weekend]
    if not user_days:
        return overall
    return pooled([MarkovChain.fit(user_days, contexts=overall.contexts), overall], [len(user_days), SHARED_DAYS])


def _in_order(days: Days) -> Days:
    dates = [day.date for day in days]
    if len(set(dates)) < len(dates):
        twice = next(date for date, count in Counter(dates).items() if count > 1)
        raise ValueError(f"the day {twice} is given twice")
    return sorted(days, key=lambda day: day.date)


def _most_visited(days: Days, top: int) -> set[str]:
    visits = Counter(label for day in days for label in day.labels if label is not None)
    return set(sorted(visits, key=lambda label: (-visits[label], label))[:top])


def _check(train: float, smoothing: float, top: int | None, min_days: int) -> None:
    if not 0 < train <= 1:
        raise ValueError(f"train is the share of the days to learn from, above 0 and at most 1: got {train}")
    if not (smoothing >= 0 and np.isfinite(smoothing)):
        raise ValueError(f"smoothing is a number of days, at least 0: got {smoothing}")
    if top is not None and whole_number(top, "top is a number of contexts") < 1:
        raise ValueError(f"top is a number of contexts, at least 1: got {top}")
    if whole_number(min_days, "min_days is a number of days") < 1:
        raise ValueError(f"min_days is a number of days, at least 1: got {min_days}")


def _check_size(days: Days, population: MarkovChain | None) -> None:
    """Refuse a chain that would fill the memory: it has a probability for each step and pair of contexts."""
    labels = {UNKNOWN if label is None else label for day in days for label in day.labels}
    labels |= set(() if population is None else population.contexts)
    horizon = max((len(day.labels) for day in days), default=0)
    if horizon * len(labels) ** 2 > MAX_PROBABILITIES:
        raise ValueError(
            f"a chain of {horizon} steps over {len(labels)} contexts is too large to learn: "
            "keep only the most visited contexts (top), or take longer steps"
        )
