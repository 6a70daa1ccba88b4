"""The cohorts with which a query tolerates the wild phones of a scenario."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from reticent.privacy import QueryLimits
from reticent_analyst import Question
from reticent_analyst.cohort_odds import MAX_COHORTS, choose_cohorts
from reticent_sim.engine.malice.assignment import WILD

__all__ = ["Tolerance", "expected_absence", "min_honest", "tolerant_cohorts", "wild_phones"]

SPARE = 0.02
"""The share of phones that are assumed to be absent beside the expected ones."""
MOST_ABSENT = 0.9
MISSING = ("garbage", "silence")
"""The kinds of malicious phones that never contribute."""
LEAST_HONEST = 2


def expected_absence(phones: int, absent: float, malice: Mapping[int, str]) -> float:
    """The probability that a phone does not contribute to a query, and some more."""
    missing = sum(kind in MISSING for kind in malice.values()) / phones
    return min(MOST_ABSENT, 1 - (1 - absent) * (1 - missing) + SPARE)


def wild_phones(malice: Mapping[int, str]) -> int:
    """The number of phones that spoil the sum of their cohort."""
    return sum(kind == WILD for kind in malice.values())


def min_honest(phones: int, cohorts: int) -> int:
    """The fewest honest contributions that are decrypted: fewer than by default if the cohorts are small."""
    return max(LEAST_HONEST, min(QueryLimits.min_honest, phones // (2 * cohorts)))


class Tolerance(NamedTuple):
    """The cohorts of a query.

    Args:
        cohorts: Their number.
        wild: The number of wild phones for which the query plans; 0 if there are too few phones to plan for any.
    """

    cohorts: int
    wild: int


def tolerant_cohorts(phones: int, absent: float, malice: Mapping[int, str]) -> Tolerance:
    """The fewest cohorts of which wild phones probably spoil less than half; fewer if there are too few phones.

    Args:
        phones: The number of phones.
        absent: The probability that a phone is absent.
        malice: The malicious phones, with their kinds.
    """
    wild = wild_phones(malice)
    expected = expected_absence(phones, absent, malice)
    with contextlib.suppress(ValueError):
        return Tolerance(_planned(phones, expected, wild, None), wild)
    cohorts = min(2 * wild + 1, phones, MAX_COHORTS)
    while cohorts > 1:
        cohorts = cohorts // 2 | 1
        with contextlib.suppress(ValueError):
            return Tolerance(_planned(phones, expected, wild, cohorts), wild)
    return Tolerance(1, 0)


def _planned(phones: int, absent: float, wild: int, cohorts: int | None) -> int:
    """The number of cohorts of a plan.

    Raises:
        ValueError: There are too few phones.
    """
    plan = choose_cohorts(
        population=phones, absent=absent, lying=wild, risk=Question.risk, variance=1.0, cohorts=cohorts
    )
    if plan.min_contributions - plan.liars < min_honest(phones, plan.cohorts):
        raise ValueError(f"{phones} phones are too few for {plan.cohorts} cohorts")
    return plan.cohorts
