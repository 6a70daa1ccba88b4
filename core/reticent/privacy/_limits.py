"""The limits on one query, with the defaults that analysts, phones and key servers share.

A query that leaves `liars` to its default is within the default limits of phones and of key servers, if enough phones
are enrolled. Users and operators set their own limits: `Participation` on the phone, `QueryLimits` on the key server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from reticent.privacy._cost import Cost
from reticent.privacy._query import Query

__all__ = ["DEFAULT_BUDGET", "QueryLimits", "min_liars"]

DEFAULT_BUDGET = Cost(4.0, 1e-5)
"""The default budget of a phone for all its queries together."""


@dataclass(frozen=True, kw_only=True)
class QueryLimits:
    """The limits that the operator of a key server sets on each query.

    A new limit is a field here, with its line below and its condition in `violations`. The option of `reticent keys
    serve` and the analyst's plan follow from it.

    Args:
        max_epsilon: Largest epsilon of a query.
        max_delta: Largest delta of a query.
        min_cohort_share: Smallest share of a cohort that may be decrypted: min_contributions over the cohort's phones.
        min_honest: Fewest honest contributions that may be decrypted: min_contributions less liars.
        min_liars_share: Smallest share of min_contributions that a query must tolerate as liars.
        max_ciphertexts: Most ciphertexts that one phone sends.
    """

    max_epsilon: float = 4.0
    max_delta: float = 1e-4
    min_cohort_share: float = 0.5
    min_honest: int = 20
    min_liars_share: float = 0.05  # the error grows by 1 / sqrt(1 - 0.05)
    max_ciphertexts: int = 300

    def __post_init__(self) -> None:
        for holds, sentence in (
            (self.max_epsilon > 0, f"max_epsilon must be positive: got {self.max_epsilon}"),
            (0 < self.max_delta <= 1, f"max_delta must lie in (0, 1]: got {self.max_delta}"),
            (0 <= self.min_cohort_share <= 1, f"min_cohort_share must lie in [0, 1]: got {self.min_cohort_share}"),
            (self.min_honest >= 0, f"min_honest must not be negative: got {self.min_honest}"),
            (0 <= self.min_liars_share < 1, f"min_liars_share must lie in [0, 1): got {self.min_liars_share}"),
            (self.max_ciphertexts > 0, f"max_ciphertexts must be positive: got {self.max_ciphertexts}"),
        ):
            if not holds:
                raise ValueError(sentence)

    def violations(self, query: Query, ciphertexts: int) -> dict[str, str]:
        """The limits that a query breaks: a sentence for each, by the limit's name.

        Args:
            query: The query.
            ciphertexts: The number of ciphertexts that each phone sends for it.
        """
        threshold = query.min_contributions
        share, honest = threshold / (query.population // query.cohorts), threshold - query.liars
        liars = min_liars(threshold, self.min_liars_share)
        checks = {
            "max_epsilon": (
                query.epsilon <= self.max_epsilon,
                f"epsilon must be at most {self.max_epsilon:g}: got {query.epsilon:g}",
            ),
            "max_delta": (
                query.delta <= self.max_delta,
                f"delta must be at most {self.max_delta:g}: got {query.delta:g}",
            ),
            "max_ciphertexts": (
                ciphertexts <= self.max_ciphertexts,
                f"a phone must send at most {self.max_ciphertexts} ciphertexts: got {ciphertexts}",
            ),
            "min_cohort_share": (
                share >= self.min_cohort_share,
                f"min_contributions must be at least {self.min_cohort_share:g} of the smallest cohort: got {share:.3g}",
            ),
            "min_liars_share": (
                query.liars >= liars,
                f"liars must be at least {liars} of {threshold} contributions: got {query.liars}",
            ),
            "min_honest": (
                honest >= self.min_honest,
                f"min_contributions must exceed liars by at least {self.min_honest}: got {honest}",
            ),
        }
        return {name: sentence for name, (holds, sentence) in checks.items() if not holds}


def min_liars(min_contributions: int, share: float = QueryLimits.min_liars_share) -> int:
    """The fewest liars that a query must tolerate; at least one, unless the share is 0.

    Args:
        min_contributions: The fewest contributions of a cohort that may be decrypted.
        share: The share of them that may be liars.

    >>> min_liars(5572), min_liars(20), min_liars(21), min_liars(3), min_liars(3, 0.0)
    (279, 1, 2, 1, 0)
    """
    return math.ceil(round(share * min_contributions, 9))  # 0.07 x 100 is 7.000000000000001
