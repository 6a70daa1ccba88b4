"""Which queries the operator of a key server lets be asked, whatever phones would accept."""

from __future__ import annotations

from dataclasses import dataclass

from reticent.privacy import Query, defaults
from reticent.protocol import Refusal, Refused

__all__ = ["QueryLimits"]


@dataclass(frozen=True)
class QueryLimits:
    """What a query may ask at most, or must have at least.

    Args:
        max_epsilon: The largest.
        max_delta: The largest.
        min_cohort_share: The least part of its smallest cohort with which a query may have a cohort decrypted.
        min_honest: The least number of contributions, liars taken off, with which it may.
        max_ciphertexts: The most that a phone may be asked for.
        min_liars_share: The least part of its fewest contributions that a query must allow to be those of liars.
    """

    max_epsilon: float = defaults.MAX_COST.epsilon
    max_delta: float = defaults.MAX_COST.delta
    min_cohort_share: float = defaults.MIN_COHORT_SHARE
    min_honest: int = defaults.MIN_HONEST
    max_ciphertexts: int = defaults.MAX_CIPHERTEXTS
    min_liars_share: float = defaults.MIN_LIARS_SHARE

    def __post_init__(self) -> None:
        if not (self.max_epsilon > 0 and 0 < self.max_delta <= 1):
            raise ValueError(f"max_epsilon and max_delta must be positive: got {self.max_epsilon} and {self.max_delta}")
        if not 0 <= self.min_cohort_share <= 1:
            raise ValueError(f"min_cohort_share must lie in [0, 1]: got {self.min_cohort_share}")
        if not 0 <= self.min_liars_share < 1:
            raise ValueError(f"min_liars_share must lie in [0, 1): got {self.min_liars_share}")
        if self.min_honest < 0 or self.max_ciphertexts < 1:
            raise ValueError(f"min_honest must not be negative, and max_ciphertexts be positive: got {self!r}")

    def check(self, query: Query, ciphertexts: int) -> None:
        """Refuse a query that is not within the limits.

        Raises:
            Refused: BAD_QUERY, with the first limit that it breaks.
        """
        share = query.min_contributions / (query.population // query.cohorts)
        honest = query.min_contributions - query.liars
        liars = defaults.min_liars(query.min_contributions, self.min_liars_share)
        for asked, limit, sentence in (
            (query.epsilon, self.max_epsilon, "epsilon may be at most {1:g}: got {0:g}"),
            (query.delta, self.max_delta, "delta may be at most {1:g}: got {0:g}"),
            (ciphertexts, self.max_ciphertexts, "a phone may be asked for at most {1} ciphertexts: got {0}"),
            (
                -share,
                -self.min_cohort_share,
                "min_contributions must be at least {3:g} of the smallest cohort: got {2:.3g}",
            ),
            (
                -query.liars,
                -liars,
                f"of {query.min_contributions} contributions, liars must be at least {{3}}: got {{2}}",
            ),
            (-honest, -self.min_honest, "min_contributions must exceed liars by at least {3}: got {2}"),
        ):
            if asked > limit:
                raise Refused(Refusal.BAD_QUERY, sentence.format(asked, limit, -asked, -limit))
