"""From the decrypted sums of cohorts to a release, and the interface of everything that counts phones.

ReticentError
└── CountError
    ├── QueryBurnt      too few cohorts are left: nothing is released
    └── AlreadyDecided  a query is decided once; a second attempt is another query
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from reticent.errors import ExitCode, ReticentError
from reticent.privacy._query import Query
from reticent.privacy._release import Release
from reticent.privacy._sparse import SparseRows

Contributions: TypeAlias = npt.NDArray[Any] | Iterable[npt.NDArray[Any] | SparseRows]
"""The counters of simulated phones: one row for each phone, in one array or in blocks of rows."""

OUTLIER_DEVIATIONS = 4
"""An outlying cohort is farther from the median than so many of its standard deviations, plus `OUTLIER_PHONES`."""

OUTLIER_PHONES = OUTLIER_DEVIATIONS**2 / 6
"""So many phones at their bounds are tolerated in a cohort on top: rare values are not nearly normal."""

_UNSEEN = 2  # phones at their bounds, by which a true sum may differ from the sum that is seen

Floats: TypeAlias = npt.NDArray[np.float64]


class CountError(ReticentError):
    """A query has no release."""


class QueryBurnt(CountError):
    """Fewer than half of the cohorts are left.

    Args:
        query: The id of the query.
        left_out: The cohorts that were burnt, or void.
        cohorts: The number of cohorts.
        spent: The decrypted cohorts, whose phones have spent their budget all the same.
    """

    exit_code = ExitCode.BAD_ANSWER

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
    """The query was released or burnt before."""


class Counts(Protocol):
    """Counts phones: the analyst's client of real servers, or a simulation."""

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        """Run a query, wait for its end, and return the release.

        Args:
            query: The query.
            counters: In a simulation, the counters of each phone. Real phones use their own.

        Raises:
            BudgetExceeded: The query costs more than is left.
            QueryBurnt: Too few phones contributed.
            AlreadyDecided: The query was decided before.
        """


@dataclass(frozen=True)
class CohortSum:
    """The result of one cohort.

    Args:
        contributors: The number of phones that contributed.
        sums: The noisy sum of each counter, in steps of the grid; None if the cohort was burnt.
    """

    contributors: int
    sums: tuple[int, ...] | None


def estimate(query: Query, cohorts: Sequence[CohortSum], *, seeded: bool) -> Release:
    """Estimate the totals over all contributors from the results of the cohorts.

    The sums of the cohorts that are left are added, and scaled by contributors to those that were burnt. If a cohort is
    an outlier in a counter (one liar can put it anywhere), that counter's value is the number of contributors times the
    median average of the other cohorts.

    Args:
        query: The query.
        cohorts: All cohorts, in order.
        seeded: Whether any noise came from a seeded generator, which anybody can replay.

    Raises:
        QueryBurnt: Fewer than half of the cohorts are left.
    """
    if len(cohorts) != query.cohorts:
        raise ValueError(f"{query.id!r} has {query.cohorts} cohorts: got {len(cohorts)}")
    left_out = [number for number, cohort in enumerate(cohorts) if cohort.sums is None]
    kept = [number for number, cohort in enumerate(cohorts) if cohort.sums is not None]
    if 2 * len(left_out) > query.cohorts:
        raise QueryBurnt(query.id, left_out, query.cohorts, kept)
    kept_cohorts = _KeptCohorts(
        query, [cohorts[number] for number in kept], sum(cohort.contributors for cohort in cohorts)
    )
    by_median = kept_cohorts.outlying.any(axis=0)
    scales = np.array([counter.scale for counter in query.counters], dtype=np.float64)
    value = np.where(by_median, kept_cohorts.scaled_median(), kept_cohorts.scaled_sum())
    variance = kept_cohorts.variance() + np.where(by_median, kept_cohorts.variance_of_median(), 0.0)
    is_noise = not left_out and not by_median.any()
    return Release(
        query=query.id,
        counters=tuple(counter.name for counter in query.counters),
        value=tuple((value / scales).tolist()),
        variance=tuple((variance / scales**2).tolist()),
        noise=query.noise if is_noise else None,
        contributors=kept_cohorts.everyone,
        epsilon=query.epsilon,
        delta=query.delta,
        scales=tuple(counter.scale for counter in query.counters),
        cohorts_left_out=tuple(left_out),
        cohorts_outlying=tuple(tuple(np.array(kept)[column].tolist()) for column in kept_cohorts.outlying.T),
        seeded=seeded,
    )


class _KeptCohorts:
    """The cohorts that were not burnt, and the estimates that follow from them for each counter, scaled.

    The variance of a counter among phones is unknown. Two bounds hold: the variance of a counter with this mean that
    takes only its two bounds, and the L2 bound. For counters of 0 and 1 the first is exact. The mean is unknown too: if
    all sums are 0, some phones may still have contributed more. See docs/privacy.md, "A release".
    """

    def __init__(self, query: Query, cohorts: Sequence[CohortSum], everyone: int) -> None:
        self.query = query
        self.everyone = everyone
        self.sizes = np.array([cohort.contributors for cohort in cohorts], dtype=np.float64)  # (kept,)
        sums = [cohort.sums or () for cohort in cohorts]
        self.total = np.array([sum(column) * query.unit for column in zip(*sums, strict=True)])  # (d,), added exactly
        self.means = np.array([[entry * query.unit for entry in row] for row in sums]) / self.sizes[:, None]
        self.outlying = self._is_outlying()  # (kept, d)
        most = 2 * self.outlying.sum(axis=0) > len(cohorts)
        self.counted = ~self.outlying | most  # (kept, d); all, if most are outlying
        self.number = self.counted.sum(axis=0)  # (d,)
        self.contributors = self.sizes @ self.counted  # (d,) to these

    def scaled_sum(self) -> Floats:
        return np.asarray(self.total * (self.everyone / self.sizes.sum()))

    def scaled_median(self) -> Floats:
        return np.asarray(self.everyone * self._middle())

    def variance(self) -> Floats:
        """The variance of the scaled sum: the noise, and the sampling of the cohorts that are left from all."""
        drawn = (1 / self.contributors - 1 / self.everyone) * self.everyone / max(1, self.everyone - 1)
        return np.asarray(self.everyone**2 * (self.query.share_variance / self.contributors + self._among() * drawn))

    def variance_of_median(self) -> Floats:
        """The variance that a median over cohorts, which are nearly normal, adds to that of their mean."""
        typical = (self.counted / self.sizes[:, None]).sum(axis=0) / self.number
        one = self.query.share_variance + self._among()
        added = variance_of_normal_median(self.number) * typical - 1 / self.contributors
        return np.asarray(self.everyone**2 * one * np.maximum(0.0, added))

    def _middle(self) -> Floats:
        return np.asarray(np.nanmedian(np.where(self.counted, self.means, np.nan), axis=0))

    def _is_outlying(self) -> npt.NDArray[np.bool_]:
        """Whether a cohort is farther from the median than an honest one by chance, by Bernstein's inequality."""
        middle, own = np.median(self.means, axis=0), 1 / self.sizes[:, None]
        rare = np.maximum(own, own.mean())  # the median is no surer of what is rare than most cohorts are
        one = self.query.share_variance + self._among_phones(middle, 1 / rare)
        reach = OUTLIER_DEVIATIONS * np.sqrt(one * (own + self._of_median(own))) + OUTLIER_PHONES * self._most() * rare
        return np.asarray(np.abs(self.means - middle) > reach)

    def _of_median(self, own: Floats) -> Floats:
        """The variance that the median's own error adds to the variance `own` of each cohort's distance from it.

        It excludes the part that the two have in common: for cohorts of equal size, nothing is left.
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
        """The most that one phone adds to each counter, in either direction."""
        low, high = self._bounds()
        return np.minimum(np.maximum(-low, high), self.query.l2)

    def _bounds(self) -> tuple[Floats, Floats]:
        low, high = np.array([counter.scaled for counter in self.query.counters], dtype=np.float64).T
        return low, high


def variance_of_normal_median(size: npt.NDArray[np.int_]) -> Floats:
    """The variance of the median of so many independent normal variables of variance 1, to within one percent.

    It tends to pi/(2 size); the correction was fitted to exact values.
    """
    correction = np.where(size % 2 == 0, 1.43 - 0.6 / size, 0.43 + 0.14 / size)
    return np.asarray(math.pi / (2 * (size + correction)))
