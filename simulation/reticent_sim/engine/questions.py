"""The questions of a scenario, and a check of them before anything starts."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

from reticent.privacy import Counter, QueryLimits
from reticent_analyst import Question
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.tolerance import expected_absence
from reticent_sim.world.world import COUNTER_MOST

__all__ = ["OPEN_FOR", "check_questions", "count_question", "rates_options"]

OPEN_FOR = dt.timedelta(minutes=8)
"""The simulated time for which a query is open."""
RATES_SCALE = 3
"""The scale of the lowest level of an estimate of rates."""
SQUARES_PER_ENTRY = 45
"""The squared norm of an entry's counters, except the root's, in a contribution that is not scaled down."""


def count_question(scenario: Scenario, day: int) -> Question:
    """The count at the end of a day."""
    names = scenario.world.counter_names[: scenario.counters]
    return Question(
        id=f"counters-{day}",
        counters=[Counter(name, 0, COUNTER_MOST) for name in names],
        epsilon=scenario.epsilon,
        delta=scenario.count_delta,
        **_common(scenario, scenario.cohorts),
    )


def rates_options(scenario: Scenario) -> dict[str, Any]:
    """The options of an estimate of rates.

    Ads bid on categories of queries, the lowest level that is counted. So that level has most of the budget. It counts
    all pairs of the ads with more than 0 views at the root, although the root's counts are noisy. A person searches for
    several things, so that few contributions have nearly the largest possible norm: phones scale these down.
    """
    return {
        "depth": 1,
        "min_support": 0.0,
        "lowest_scale": RATES_SCALE,
        "l2_squared": scenario.entries * (scenario.entries + SQUARES_PER_ENTRY),
    } | _common(scenario, scenario.rates_cohorts)


def check_questions(scenario: Scenario) -> None:
    """Refuse a scenario whose questions the servers would refuse, or that has too few phones for them.

    Raises:
        ValueError: One sentence says what to change.
    """
    limits = QueryLimits(min_honest=scenario.min_honest)
    example = count_question(scenario, 0)
    questions = [(example, "a count")] if scenario.counts else []
    if scenario.ads:
        rates = replace(
            example,
            epsilon=scenario.rates_epsilon,
            delta=scenario.rates_delta,
            **_common(scenario, scenario.rates_cohorts),
        )
        questions.append((rates, "an estimate of rates"))
    for question, name in questions:
        try:
            query = question.to_query(scenario.phones, "a key")
        except ValueError as error:
            raise ValueError(f"{name} is not possible with {scenario.phones} phones: {error}") from error
        for violation in limits.violations(query, ciphertexts=1).values():
            raise ValueError(f"{name} is not possible with {scenario.phones} phones: {violation}")


def _common(scenario: Scenario, cohorts: int | None) -> dict[str, Any]:
    """The options of both. Without a stated number of cohorts, they tolerate wild phones, if possible."""
    return {
        "absent": expected_absence(scenario.phones, scenario.absent, scenario.malice),
        "cohorts": cohorts or scenario.tolerance.cohorts,
        "lying": 0.0 if cohorts else scenario.tolerance.wild / scenario.phones,
        "closes_after": OPEN_FOR,
    }
