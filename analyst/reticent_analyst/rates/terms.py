"""The terms of an estimate, which all its runs share, and the budget that follows from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from reticent.arguments import checked_integer, checked_not_negative, checked_text
from reticent.privacy import NoiseKind, mechanism_of
from reticent_analyst.question import QuestionSequence

__all__ = ["EstimateTerms"]

GAUSSIAN_BITS = 12
"""The fraction bits of Gaussian noise: up to a million phones, the grid is fine enough for a deviation of 1 in all."""


@dataclass(frozen=True, kw_only=True)
class EstimateTerms:
    """The terms of an estimate.

    Args:
        name: The name of the sequence of queries. The ids of the queries begin with it.
        epsilon: The cost of all levels together to each user, together with delta.
        delta: See epsilon.
        entries: The most entries of a user's log that count.
        depth: The lowest level that is counted: 0 is the root.
        min_support: The children of a node are counted if its count exceeds this, and there the ads with more views in
            the node. If None, three standard deviations of the count's error.
        noise: The mechanism.
        fraction_bits: As in a question; if None, what the noise needs.
        lowest_scale: The scale of the counters of the lowest level; those of the others have 1. With a larger one, the
            noise of the lowest level is smaller and that of the others larger.
        l2_squared: A bound on the squared L2 norm of all that a user contributes, scaled. A smaller bound needs less
            noise, and phones scale larger contributions down. If None, it is the largest possible norm.

    >>> terms = EstimateTerms(name="ctr", epsilon=1.0, delta=1e-6, entries=4, depth=2)
    >>> terms.sequence.l2_squared, terms.sequence.l1
    (96, 24)
    """

    name: str
    epsilon: float
    delta: float
    entries: int
    depth: int
    min_support: float | None = None
    noise: NoiseKind = "skellam"
    fraction_bits: int | None = None
    lowest_scale: int = 1
    l2_squared: int | None = None

    def __post_init__(self) -> None:
        checked_text("the name of an estimate", self.name)
        checked_integer("entries", self.entries, 1)
        checked_integer("depth", self.depth, 0)
        if self.min_support is not None:
            checked_not_negative("min_support", self.min_support)
        checked_integer("lowest_scale", self.lowest_scale, 1)
        if self.l2_squared is not None:
            checked_integer("l2_squared", self.l2_squared, 1)

    @property
    def levels(self) -> int:
        """The most levels that may be counted."""
        return self.depth + 1

    @property
    def sequence(self) -> QuestionSequence:
        """The budget of all levels.

        At each level, the m entries of a user change the counts of nodes by m in total, and clicks and views without a
        click by m in total. So the squared L2 norm grows by 2 m² at most, and the L1 norm by 2 m: corollary 2 of Götz's
        dissertation has 3 m². The number of levels is fixed before the first query, and so are the bounds. The counters
        of a level have its scale.
        """
        scales = [self.scale(depth) for depth in range(self.levels)]
        largest = 2 * self.entries**2 * sum(scale * scale for scale in scales)
        l2_squared = largest if self.l2_squared is None else min(largest, self.l2_squared)
        l1 = 2 * self.entries * sum(scales)
        bits = GAUSSIAN_BITS if self.noise == "gaussian" else 0
        return QuestionSequence(
            name=self.name,
            epsilon=self.epsilon,
            delta=self.delta,
            l2_squared=l2_squared,
            l1=min(l1, l2_squared) if mechanism_of(self.noise).whole else l1,
            noise=self.noise,
            fraction_bits=bits if self.fraction_bits is None else self.fraction_bits,
        )

    def scale(self, depth: int) -> int:
        """The scale of the counters of a level."""
        return self.lowest_scale if depth == self.depth else 1

    def to_json(self) -> dict[str, Any]:
        """The terms as plain data."""
        return asdict(self)
