"""Queries to ask and to plan, and what is decided about them."""

from pathlib import Path
from typing import Any

from reticent.privacy import CohortSum, Counter, Query
from tests.parties.queries import bits

SAMPLES = Path(__file__).parents[2] / "examples" / "queries"


def gym_query(name: str = "gym", **changes: Any) -> Query:
    """Two counters of 60 phones in three cohorts, unless changed."""
    fields: dict[str, Any] = {
        "id": name,
        "counters": [Counter("visits", 0, 2), Counter("hours", -1, 1)],
        "l2_squared": 4,
        "l1": 2,
        "population": 60,
        "cohorts": 3,
        "min_contributions": 12,
        "liars": 2,
    }
    return bits(**{**fields, **changes})


KNOWN = [CohortSum(15, (20, -3)), CohortSum(16, (25, 2)), CohortSum(14, (18, 0))]
"""What becomes of `gym_query()`, by cohort."""

BURNT = CohortSum(3, None)


def census(size: int = 1, **changes: Any) -> Query:
    """Which of so many things each of 600 phones has, in one cohort, unless changed."""
    return bits(size, **{"population": 600, "min_contributions": 400, **changes})
