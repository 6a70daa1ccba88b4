"""Queries of all kinds of tests, with whatever a test changes."""

import itertools
from typing import Any

from reticent.paillier import PublicKey
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


_numbers = itertools.count()


def visits(key: PublicKey, phones: int, **changes: Any) -> Query:
    """Whether each of so many phones has visited a place: one cohort, of which one more than half are enough."""
    fields: dict[str, Any] = {
        "id": f"query {next(_numbers)}",
        "counters": [Counter("visits", 0, 1)],
        "delta": 1e-5,
        "population": phones,
        "min_contributions": phones // 2 + 1,
        "liars": 0,
        "key_id": key.key_id.hex(),
        "closes_after": 3600,
    }
    return bits(**fields | changes)
