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
        epsilon: The largest.
        delta: The largest.
        fewest_share: The least part of its smallest cohort with which a query may have a cohort decrypted.
        honest: The least number of contributions, liars taken off, with which it may.
        ciphertexts: The most that a phone may be asked for.
        liars_share: The least part of its fewest contributions that a query must allow to be those of liars.
    """

    epsilon: float = defaults.LARGEST.epsilon
    delta: float = defaults.LARGEST.delta
    fewest_share: float = defaults.FEWEST_SHARE
    honest: int = defaults.LEAST_HONEST
    ciphertexts: int = defaults.MOST_CIPHERTEXTS
    liars_share: float = defaults.LIARS_SHARE

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and 0 < self.delta <= 1):
            raise ValueError(f"epsilon and delta must be positive: got {self.epsilon} and {self.delta}")
        if not 0 <= self.fewest_share <= 1:
            raise ValueError(f"fewest_share must lie in [0, 1]: got {self.fewest_share}")
        if not 0 <= self.liars_share < 1:
            raise ValueError(f"liars_share must lie in [0, 1): got {self.liars_share}")
        if self.honest < 0 or self.ciphertexts < 1:
            raise ValueError(f"honest must not be negative, and ciphertexts be positive: got {self!r}")

    def check(self, query: Query, ciphertexts: int) -> None:
        """Refuse a query that is not within the limits.

        Raises:
            Refused: BAD_QUERY, with the first limit that it breaks.
        """
        share = query.fewest / (query.population // query.cohorts)
        honest = query.fewest - query.liars
        liars = defaults.least_liars(query.fewest, self.liars_share)
        for asked, limit, sentence in (
            (query.epsilon, self.epsilon, "epsilon may be at most {1:g}: got {0:g}"),
            (query.delta, self.delta, "delta may be at most {1:g}: got {0:g}"),
            (ciphertexts, self.ciphertexts, "a phone may be asked for at most {1} ciphertexts: got {0}"),
            (-share, -self.fewest_share, "fewest must be at least {3:g} of the smallest cohort: got {2:.3g}"),
            (-query.liars, -liars, f"of {query.fewest} contributions, liars must be at least {{3}}: got {{2}}"),
            (-honest, -self.honest, "fewest must exceed liars by at least {3}: got {2}"),
        ):
            if asked > limit:
                raise Refused(Refusal.BAD_QUERY, sentence.format(asked, limit, -asked, -limit))
