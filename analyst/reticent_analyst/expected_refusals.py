"""The refusals that an analyst must expect: the default limits of phones and key servers that a query breaks."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from reticent.privacy import DEFAULT_BUDGET, Query, QueryLimits

__all__ = ["KEY_SERVERS", "PHONES", "ExpectedRefusal", "expected_refusals"]

PHONES = "phones"
KEY_SERVERS = "key servers"

_PHONES = QueryLimits(  # a phone knows no cohort's size, and limits bytes, not ciphertexts
    max_epsilon=DEFAULT_BUDGET.epsilon,
    max_delta=DEFAULT_BUDGET.delta,
    min_cohort_share=0.0,
    max_ciphertexts=sys.maxsize,
)


@dataclass(frozen=True)
class ExpectedRefusal:
    """A limit that a query breaks.

    Args:
        by: The parties that have this limit by default: `PHONES`, `KEY_SERVERS`, or both.
        why: The limit, and the query's value.
    """

    by: tuple[str, ...]
    why: str


def expected_refusals(query: Query, ciphertexts: int) -> tuple[ExpectedRefusal, ...]:
    """All default limits that a query breaks.

    Args:
        query: The query.
        ciphertexts: The number of ciphertexts that each phone sends for it.
    """
    parties: dict[str, list[str]] = {}
    for party, limits in ((PHONES, _PHONES), (KEY_SERVERS, QueryLimits())):
        for violation in limits.violations(query, ciphertexts).values():
            parties.setdefault(violation, []).append(party)
    return tuple(ExpectedRefusal(tuple(by), why) for why, by in parties.items())
