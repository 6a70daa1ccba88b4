"""What analysts, phones and key servers insist on unless told otherwise: one set of numbers for all three.

A query that leaves the allowance for liars to its default is within the default limits of phones and of key servers,
if enough phones are asked. Phones and operators who know their colluders better set their own limits.
"""

import math

from reticent.privacy.cost import Cost

__all__ = ["BUDGET", "FEWEST_SHARE", "LARGEST", "LEAST_HONEST", "LIARS_SHARE", "MOST_CIPHERTEXTS", "least_liars"]

LIARS_SHARE = 0.05
"""The part of the fewest contributions that may be of liars or colluders. The error grows by 1 / sqrt(1 - 0.05)."""

LEAST_HONEST = 20
"""The fewest contributions, less the liars that are allowed for: among so many honest phones a user hides."""

FEWEST_SHARE = 0.5
"""The least part of its smallest cohort with which a query may have a cohort decrypted."""

MOST_CIPHERTEXTS = 300
"""The most that a query may ask of a phone."""

LARGEST = Cost(4.0, 1e-4)
"""The most that one query may cost, by a key server."""

BUDGET = Cost(4.0, 1e-5)
"""The most that a phone ever spends."""


def least_liars(fewest: int, share: float = LIARS_SHARE) -> int:
    """How many liars a query must allow for at least; one, unless the share is 0.

    Args:
        fewest: The fewest contributions of a cohort that may be decrypted.
        share: The part of them.

    >>> least_liars(5572), least_liars(20), least_liars(21), least_liars(3), least_liars(3, 0.0)
    (279, 1, 2, 1, 0)
    """
    return math.ceil(round(share * fewest, 9))  # 0.05 x 140 is 7.000000000000001
