"""The refusals that an analyst must expect: the default limits of phones and key servers that a query breaks."""

from __future__ import annotations

from dataclasses import dataclass

from reticent.privacy import DEFAULT_BUDGET, Query, QueryLimits

__all__ = ["KEY_SERVERS", "PHONES", "ExpectedRefusal", "expected_refusals"]

PHONES = "phones"
KEY_SERVERS = "key servers"

_BUDGET = QueryLimits(max_epsilon=DEFAULT_BUDGET.epsilon, max_delta=DEFAULT_BUDGET.delta)
_PHONE_LIMITS = ("max_epsilon", "max_delta", "min_liars_share", "min_honest")


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
    by_phones = _BUDGET.violations(query, ciphertexts)
    violations = [(by_phones[name], PHONES) for name in _PHONE_LIMITS if name in by_phones]
    violations += [(violation, KEY_SERVERS) for violation in QueryLimits().violations(query, ciphertexts).values()]
    parties: dict[str, list[str]] = {}
    for violation, party in violations:
        parties.setdefault(violation, []).append(party)
    return tuple(ExpectedRefusal(tuple(by), why) for why, by in parties.items())
