"""What analysts, phones and key servers insist on unless told otherwise: one set of numbers for all three.

A query that leaves the allowance for liars to its default is within the default limits of phones and of key servers,
if enough phones are asked. Phones and operators who know their colluders better set their own limits.
"""

import math

from reticent.privacy.cost import Cost

__all__ = ["BUDGET", "MAX_CIPHERTEXTS", "MAX_COST", "MIN_COHORT_SHARE", "MIN_HONEST", "MIN_LIARS_SHARE", "min_liars"]

MIN_LIARS_SHARE = 0.05
"""The part of the fewest contributions that may be of liars or colluders. The error grows by 1 / sqrt(1 - 0.05)."""

MIN_HONEST = 20
"""The fewest contributions, less the liars that are allowed for: among so many honest phones a user hides."""

MIN_COHORT_SHARE = 0.5
"""The least part of its smallest cohort with which a query may have a cohort decrypted."""

MAX_CIPHERTEXTS = 300
"""The most that a query may ask of a phone."""

MAX_COST = Cost(4.0, 1e-4)
"""The most that one query may cost, by a key server."""

BUDGET = Cost(4.0, 1e-5)
"""The most that a phone ever spends."""


def min_liars(min_contributions: int, share: float = MIN_LIARS_SHARE) -> int:
    """How many liars a query must allow for at least; one, unless the share is 0.

    Args:
        min_contributions: The fewest contributions of a cohort that may be decrypted.
        share: The part of them.

    >>> min_liars(5572), min_liars(20), min_liars(21), min_liars(3), min_liars(3, 0.0)
    (279, 1, 2, 1, 0)
    """
    return math.ceil(round(share * min_contributions, 9))  # 0.05 x 140 is 7.000000000000001
