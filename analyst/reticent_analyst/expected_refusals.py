"""Which queries phones and key servers with default settings refuse: an analyst knows before asking."""

from __future__ import annotations

from dataclasses import dataclass

from reticent.privacy import Cost, Query
from reticent.privacy.defaults import BUDGET, MAX_CIPHERTEXTS, MAX_COST, MIN_COHORT_SHARE, MIN_HONEST, min_liars

__all__ = ["KEY_SERVERS", "PHONES", "Refusal", "refusals"]

PHONES = "phones"
KEY_SERVERS = "key servers"


@dataclass(frozen=True)
class Refusal:
    """Why parties with default settings refuse a query.

    Args:
        by: Which ones: `PHONES`, `KEY_SERVERS`, or both.
        why: What the query has, and what they want.
    """

    by: tuple[str, ...]
    why: str


def refusals(query: Query, ciphertexts: int) -> tuple[Refusal, ...]:
    """All that parties with default settings have against a query.

    Args:
        query: Which one.
        ciphertexts: How many it asks of a phone.
    """
    min_contributions, honest, liars = (
        query.min_contributions,
        query.min_contributions - query.liars,
        min_liars(query.min_contributions),
    )
    smallest = query.population // query.cohorts
    cost = f"it costs ({query.epsilon:g}, {query.delta:g}), "
    found = (
        (
            query.liars < liars,
            (PHONES, KEY_SERVERS),
            f"liars {query.liars:,} of {min_contributions:,}, they want {liars:,}",
        ),
        (
            honest < MIN_HONEST,
            (PHONES, KEY_SERVERS),
            f"{honest} honest of {min_contributions:,}, they want {MIN_HONEST}",
        ),
        (_exceeds(query, BUDGET), (PHONES,), f"{cost}their budget is ({BUDGET.epsilon:g}, {BUDGET.delta:g})"),
        (_exceeds(query, MAX_COST), (KEY_SERVERS,), f"{cost}they allow ({MAX_COST.epsilon:g}, {MAX_COST.delta:g})"),
        (
            min_contributions < MIN_COHORT_SHARE * smallest,
            (KEY_SERVERS,),
            (
                f"min_contributions {min_contributions:,} of a cohort of {smallest:,}, "
                f"they want a part of {MIN_COHORT_SHARE:g}"
            ),
        ),
        (ciphertexts > MAX_CIPHERTEXTS, (KEY_SERVERS,), f"{ciphertexts:,} ciphertexts, they allow {MAX_CIPHERTEXTS}"),
    )
    return tuple(Refusal(by, why) for is_broken, by, why in found if is_broken)


def _exceeds(query: Query, limit: Cost) -> bool:
    return query.epsilon > limit.epsilon or query.delta > limit.delta
