"""Numbers with the intervals that 95 of 100 such samples of people would cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from reticent.randomness import seeded

CONFIDENCE = 0.95
RESAMPLES = 2000

Ratio = tuple[Sequence[float], Sequence[float]]
"""The parts and the wholes of some people."""


@dataclass(frozen=True)
class Estimate:
    """A number, its interval, and from how many people it comes; no interval where there are too few of them."""

    value: float
    low: float | None
    high: float | None
    n: int

    @property
    def negative(self) -> Estimate:
        """The same number with the opposite sign."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return Estimate(-self.value, low, high, self.n)

    def to_json(self) -> dict[str, float | int | None]:
        """The estimate as plain data."""
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in asdict(self).items()}


def mean(values: Sequence[float]) -> Estimate:
    """The mean over people, with Student's interval.

    >>> mean([1.0, 2.0, 3.0]).to_json()
    {'value': 2.0, 'low': -0.484138, 'high': 4.484138, 'n': 3}
    """
    data = np.asarray(values, dtype=np.float64)
    middle = float(data.mean())
    return _around(middle, float(data.std(ddof=1) / np.sqrt(len(data))) if len(data) > 1 else None, len(data))


def extended(known: Sequence[float], differences: Sequence[float]) -> Estimate:
    """The mean over all of something known of a few: something that is known of all, and by how much it differs.

    The few must have been chosen without regard to either. Student's interval takes their number for all of it, which
    is on the careful side.
    """
    one, other = mean(known), mean(differences)
    if min(len(known), len(differences)) < 2:
        return Estimate(one.value + other.value, None, None, len(differences))
    error = sum(float(np.var(part, ddof=1)) / len(part) for part in (known, differences)) ** 0.5
    return _around(one.value + other.value, error, len(differences))


def ratio(parts: Sequence[float], wholes: Sequence[float], seed: int, *path: str | int) -> Estimate:
    """The parts of all people to the wholes of all people, with the percentile interval of a bootstrap over people."""
    a, b = np.asarray(parts, dtype=np.float64), np.asarray(wholes, dtype=np.float64)
    if b.sum() == 0:
        return Estimate(0.0, None, None, len(a))
    if len(a) < 2:
        return Estimate(float(a.sum() / b.sum()), None, None, len(a))
    drawn = _resampled(len(a), seed, *path)
    below = b[drawn].sum(axis=1)
    found = a[drawn].sum(axis=1)[below > 0] / below[below > 0]
    return Estimate(float(a.sum() / b.sum()), *_percentiles(found), len(a))


def difference_of_ratios(one: Ratio, other: Ratio, seed: int, *path: str | int) -> Estimate:
    """The first ratio of totals minus the second one of the same people, with the interval of the same bootstrap."""
    parts = [np.asarray(each, dtype=np.float64) for each in (*one, *other)]  # four, each (n,)
    people = len(parts[0])
    if any(whole.sum() == 0 for whole in parts[1::2]):
        return Estimate(0.0, None, None, people)
    a, b, c, d = (part.sum() for part in parts)
    difference = float(a / b - c / d)
    if people < 2:
        return Estimate(difference, None, None, people)
    drawn = _resampled(people, seed, *path)
    a, b, c, d = (part[drawn].sum(axis=1) for part in parts)
    defined = (b > 0) & (d > 0)
    return Estimate(difference, *_percentiles(a[defined] / b[defined] - c[defined] / d[defined]), people)


def share(count: int, n: int) -> Estimate:
    """The share of the people of whom something is true, with Wilson's interval.

    >>> share(5, 10).to_json()
    {'value': 0.5, 'low': 0.236593, 'high': 0.763407, 'n': 10}
    """
    found = stats.binomtest(count, n).proportion_ci(CONFIDENCE, method="wilson")
    return Estimate(count / n, float(found.low), float(found.high), n)


def percent(value: float | Estimate, digits: int = 1) -> str:
    """A share as text, with its interval if it has one."""
    if isinstance(value, float):
        return f"{100 * value:.{digits}f} %"
    text = f"{100 * value.value:.{digits}f} %"
    if value.low is None or value.high is None:
        return text
    return f"{text} ({100 * value.low:.{digits}f} to {100 * value.high:.{digits}f})"


def _resampled(people: int, seed: int, *path: str | int) -> npt.NDArray[np.int64]:
    """The numbers of the people of each sample, (RESAMPLES, people)."""
    return seeded(seed, "bootstrap", *path).integers(people, size=(RESAMPLES, people))


def _percentiles(found: npt.NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(found, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(low), float(high)


def _around(middle: float, error: float | None, n: int) -> Estimate:
    if error is None:
        return Estimate(middle, None, None, n)
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    return Estimate(middle, middle - reach, middle + reach, n)
