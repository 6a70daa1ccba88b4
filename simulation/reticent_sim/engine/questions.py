"""The questions of a scenario, and a check of them before anything starts."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

from reticent.privacy import Counter, QueryLimits
from reticent_analyst import Question
from reticent_sim.engine.scenario import Scenario
from reticent_sim.world.world import COUNTER_MOST

__all__ = ["OPEN_FOR", "check_questions", "count_question", "rates_options"]

OPEN_FOR = dt.timedelta(minutes=8)
"""The simulated time for which a query is open."""
SPARE = 0.02
"""The share of phones that are assumed to be absent beside the expected ones."""
MOST_ABSENT = 0.9
MISSING = ("garbage", "silence")
"""The kinds of malicious phones that never contribute."""


def count_question(scenario: Scenario, day: int) -> Question:
    """The count at the end of a day."""
    names = scenario.world.counter_names[: scenario.counters]
    return Question(
        id=f"counters-{day}",
        counters=[Counter(name, 0, COUNTER_MOST) for name in names],
        epsilon=scenario.epsilon,
        delta=scenario.count_delta,
        cohorts=scenario.cohorts,
        lying=0.0 if scenario.cohorts is not None else len(scenario.malice) / scenario.phones,
        **_common(scenario),
    )


def rates_options(scenario: Scenario) -> dict[str, Any]:
    """The options of the questions of an estimate of rates."""
    return {"cohorts": scenario.rates_cohorts} | _common(scenario)


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
            lying=0.0,
            cohorts=scenario.rates_cohorts,
        )
        questions.append((rates, "an estimate of rates"))
    for question, name in questions:
        try:
            query = question.to_query(scenario.phones, "a key")
        except ValueError as error:
            raise ValueError(f"{name} is not possible with {scenario.phones} phones: {error}") from error
        for violation in limits.violations(query, ciphertexts=1).values():
            raise ValueError(f"{name} is not possible with {scenario.phones} phones: {violation}")


def _common(scenario: Scenario) -> dict[str, Any]:
    missing = sum(kind in MISSING for kind in scenario.malice.values()) / scenario.phones
    absent = 1 - (1 - scenario.absent) * (1 - missing) + SPARE
    return {"absent": min(MOST_ABSENT, absent), "closes_after": OPEN_FOR}
