"""Queries of all kinds of tests: of so many bits, unless something else is said."""

from typing import Any

from reticent.privacy import Counter, Query


def bits(size: int = 1, **changes: Any) -> Query:
    """Which of so many things each of 200 phones has."""
    fields: dict[str, Any] = {
        "id": "q",
        "counters": [Counter(f"c{number}", 0, 1) for number in range(size)],
        "epsilon": 1.0,
        "delta": 1e-6,
        "l2_squared": size,
        "l1": size,
        "noise": "skellam",
        "population": 200,
        "cohorts": 1,
        "min_contributions": 150,
        "liars": 10,
        "key_id": "k1",
        "closes_after": 60,
    }
    return Query(**{**fields, **changes})
