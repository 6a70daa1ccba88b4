"""How a query is answered: what all who count share, and from cohorts' decrypted sums to a release.

ReticentError
└── CountError
    ├── QueryBurnt      too few cohorts are left: nothing is released
    └── AlreadyDecided  a query is answered once, ever; a second attempt is another query
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from reticent.errors import ReticentError
from reticent.privacy._query import Query
from reticent.privacy._release import Release

Contributions: TypeAlias = npt.NDArray[Any] | Iterable[npt.NDArray[Any]]
"""What the phones of a simulation have counted: a row for each phone, all at once or in blocks of rows."""

OUTLIER_DEVIATIONS = 4
"""An outlying cohort is farther from the median than so many of its standard deviations, plus `OUTLIER_PHONES`."""

OUTLIER_PHONES = OUTLIER_DEVIATIONS**2 / 6
"""So many phones at their bounds are tolerated in a cohort on top: rare values are not nearly normal."""

_UNSEEN = 2  # phones at their bounds: by so much what all said may differ from what a sum shows of it

Floats: TypeAlias = npt.NDArray[np.float64]


class CountError(ReticentError):
    """A query has no answer."""


class QueryBurnt(CountError):
    """Fewer than half of the cohorts are left.

    Args:
        query: Which one, by its id.
        left_out: The cohorts that were burnt, or void.
        cohorts: How many there were.
        spent: The cohorts whose phones have spent their budget all the same, for they were decrypted.
    """

    def __init__(self, query: str, left_out: Sequence[int], cohorts: int, spent: Sequence[int] = ()) -> None:
        self.query = query
        self.left_out = tuple(left_out)
        self.cohorts = cohorts
        self.spent = tuple(spent)
        were = "1 was decrypted, and its" if len(self.spent) == 1 else f"{len(self.spent)} were decrypted, and their"
        rest = f"{were} phones have spent their budget"
        super().__init__(
            f"{query!r} is burnt: {len(self.left_out)} of its {cohorts} cohorts are left out, and "
            f"{rest if self.spent else 'nothing was spent'}"
        )

    def __reduce__(self) -> tuple[type[QueryBurnt], tuple[Any, ...]]:
        return type(self), (self.query, self.left_out, self.cohorts, self.spent)


class AlreadyDecided(CountError):
    """A query was answered, or burnt, before."""


class Counts(Protocol):
    """Whoever can have phones counted: the analyst's client of real servers, or a simulation."""

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        """Ask the phones, wait, and say what came of it.

        Args:
            query: What is asked.
            counters: In a simulation, what each phone has counted. Real phones take their own, and none is given.

        Raises:
            BudgetExceeded: The query costs more than is left.
            QueryBurnt: Too few phones answered.
            AlreadyDecided: The query was asked before.
        """


@dataclass(frozen=True)
class CohortSum:
    """What is known of a cohort when a query is over.

    Args:
        contributors: How many phones contributed.
        sums: The noisy sum of each counter, in steps of the grid; None where the cohort was burnt.
    """

    contributors: int
    sums: tuple[int, ...] | None


def estimate(query: Query, cohorts: Sequence[CohortSum], *, seeded: bool) -> Release:
    """The totals over all contributors, from what is known of each cohort.

    The cohorts that are left are added up, and scaled by contributors to those that are not. Where a cohort stands out
    in a counter (one liar can put it anywhere), that counter's value is the number of contributors times the median,
    over the cohorts that do not, of the sum by contributor.

    Args:
        query: What was asked.
        cohorts: All of them, in order.
        seeded: Whether the noise of any came from a generator that somebody could replay.

    Raises:
        QueryBurnt: Fewer than half of the cohorts are left.
    """
    if len(cohorts) != query.cohorts:
        raise ValueError(f"{query.id!r} has {query.cohorts} cohorts: got {len(cohorts)}")
    left_out = [number for number, cohort in enumerate(cohorts) if cohort.sums is None]
    kept = [number for number, cohort in enumerate(cohorts) if cohort.sums is not None]
    if 2 * len(left_out) > query.cohorts:
        raise QueryBurnt(query.id, left_out, query.cohorts, kept)
    left = _Left(query, [cohorts[number] for number in kept], sum(cohort.contributors for cohort in cohorts))
    by_median = left.far.any(axis=0)
    is_noise = not left_out and not by_median.any()
    return Release(
        query=query.id,
        counters=tuple(counter.name for counter in query.counters),
        value=tuple(np.where(by_median, left.scaled_median(), left.scaled_sum()).tolist()),
        variance=tuple((left.variance() + np.where(by_median, left.variance_of_median(), 0.0)).tolist()),
        noise=query.noise if is_noise else None,
        contributors=left.everyone,
        epsilon=query.epsilon,
        delta=query.delta,
        cohorts_left_out=tuple(left_out),
        cohorts_outlying=tuple(tuple(np.array(kept)[column].tolist()) for column in left.far.T),
        seeded=seeded,
    )


class _Left:
    """The cohorts that were not burnt, and what follows from them for each counter.

    The variance of a counter among phones is not known; it is bounded by that of a counter with this mean which takes
    its two bounds only, and by the L2 bound. For counters of 0 and 1 this is what it is. The mean is not known either,
    and where all that was seen is 0, some may have said more all the same: docs/privacy.md, "A release".
    """

    def __init__(self, query: Query, cohorts: Sequence[CohortSum], everyone: int) -> None:
        self.query = query
        self.everyone = everyone
        self.sizes = np.array([cohort.contributors for cohort in cohorts], dtype=np.float64)  # (kept,)
        sums = [cohort.sums or () for cohort in cohorts]
        self.total = np.array([sum(column) * query.unit for column in zip(*sums, strict=True)])  # (d,), added exactly
        self.means = np.array([[entry * query.unit for entry in row] for row in sums]) / self.sizes[:, None]
        self.far = self._is_far()  # (kept, d)
        self.counted = ~self.far | (2 * self.far.sum(axis=0) > len(cohorts))  # (kept, d); all, where most are far
        self.number = self.counted.sum(axis=0)  # (d,)
        self.contributors = self.sizes @ self.counted  # (d,) to these

    def scaled_sum(self) -> Floats:
        return np.asarray(self.total * (self.everyone / self.sizes.sum()))

    def scaled_median(self) -> Floats:
        return np.asarray(self.everyone * self._middle())

    def variance(self) -> Floats:
        """Of the sum, scaled: the noise, and that those who are left were drawn from all."""
        drawn = (1 / self.contributors - 1 / self.everyone) * self.everyone / max(1, self.everyone - 1)
        return np.asarray(self.everyone**2 * (self.query.share_variance / self.contributors + self._among() * drawn))

    def variance_of_median(self) -> Floats:
        """What a median over cohorts, which are nearly normal, adds to that of their mean."""
        typical = (self.counted / self.sizes[:, None]).sum(axis=0) / self.number
        one = self.query.share_variance + self._among()
        added = variance_of_normal_median(self.number) * typical - 1 / self.contributors
        return np.asarray(self.everyone**2 * one * np.maximum(0.0, added))

    def _middle(self) -> Floats:
        return np.asarray(np.nanmedian(np.where(self.counted, self.means, np.nan), axis=0))

    def _is_far(self) -> npt.NDArray[np.bool_]:
        """Whether a cohort is farther from the median than an honest one is by chance, by Bernstein's inequality."""
        middle, own = np.median(self.means, axis=0), 1 / self.sizes[:, None]
        rare = np.maximum(own, own.mean())  # the median is no surer of what is rare than most cohorts are
        one = self.query.share_variance + self._among_phones(middle, 1 / rare)
        reach = OUTLIER_DEVIATIONS * np.sqrt(one * (own + self._of_median(own))) + OUTLIER_PHONES * self._most() * rare
        return np.asarray(np.abs(self.means - middle) > reach)

    def _of_median(self, own: Floats) -> Floats:
        """What the median's own error adds to the variance `own` of each cohort's distance from it.

        Less what the two have in common: where cohorts are equally large, nothing is left.
        """
        median = variance_of_normal_median(np.array([len(own)])) * own.mean()
        return np.asarray(np.maximum(0.0, median - 2 * own / len(own)))

    def _among(self) -> Floats:
        """The largest variance among phones that the cohorts which count allow for."""
        mean = (self.sizes[:, None] * np.where(self.counted, self.means, 0.0)).sum(axis=0) / self.contributors
        return self._among_phones(mean, self.contributors)

    def _among_phones(self, mean: Floats, phones: Floats) -> Floats:
        """The largest variance among phones of each counter, where so many phones have this mean, or nearly.

        Both bounds are concave in the mean. So the smaller is largest where one of them is, or where they meet, or as
        near to that as the mean may be.
        """
        low, high = self._bounds()
        both, square = low + high, float(self.query.l2_squared)
        meet = np.divide(square + low * high, both, out=np.zeros_like(both), where=both != 0)
        seen, unseen = np.clip(mean, low, high), _UNSEEN * self._most() / phones
        least, most = np.clip(seen - unseen, low, high), np.clip(seen + unseen, low, high)
        means = np.array([np.clip(largest, least, most) for largest in (both / 2, np.zeros_like(both), meet)])
        by_bounds = (high - means) * (means - low)
        by_l2 = np.maximum(0.0, square - means**2)
        return np.asarray(np.minimum(by_bounds, by_l2).max(axis=0))

    def _most(self) -> Floats:
        """What one phone adds to each counter, at most, either way."""
        low, high = self._bounds()
        return np.minimum(np.maximum(-low, high), self.query.l2)

    def _bounds(self) -> tuple[Floats, Floats]:
        low, high = np.array([(counter.low, counter.high) for counter in self.query.counters], dtype=np.float64).T
        return low, high


def variance_of_normal_median(size: npt.NDArray[np.int_]) -> Floats:
    """Of the median of so many independent normal variables of variance 1, to within one percent.

    pi/(2 size) is what it tends to; the rest was fitted to exact values.
    """
    correction = np.where(size % 2 == 0, 1.43 - 0.6 / size, 0.43 + 0.14 / size)
    return np.asarray(math.pi / (2 * (size + correction)))
