"""Totals, means, shares and ratios of a release, with intervals that hold all together.

docs/counting.md ("Means, ratios and histograms") derives them.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

from reticent.privacy import Bin, Release, mechanism_of

__all__ = ["Kind", "Statistic", "ratio_interval", "statistics_of", "to_csv"]

Kind = Literal["total", "mean", "share", "ratio"]


@dataclass(frozen=True)
class Statistic:
    """A number that follows from a release, with its interval.

    Args:
        kind: "total" of a counter, "mean" of it over the contributors, "share" of the contributors in a bin, or "ratio"
            of two totals.
        name: The counter, the bin, or the name of the ratio.
        value: The estimate. A ratio with the denominator 0 is not a number.
        low: The lower end of the interval; of a ratio, it may be infinite.
        high: The upper end.
    """

    kind: Kind
    name: str
    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        """The statistic as plain data; what is not finite is null."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


class _Total(NamedTuple):
    """The total of a counter, and half the width of its interval."""

    value: float
    reach: float


def statistics_of(
    release: Release,
    *,
    means: Sequence[str] = (),
    ratios: Mapping[str, tuple[str, str]] | None = None,
    level: float = 0.95,
) -> list[Statistic]:
    """The statistics of a release: with probability `level`, all intervals contain the truth, if nobody lied.

    Args:
        release: The release.
        means: The counters to show the mean of as well.
        ratios: The numerator and the denominator of each ratio, by its name.
        level: The probability.

    >>> release = Release("walk", ("km", "walked"), (900.0, 300.0), (100.0, 4.0), "gaussian", 1000, 1.0, 1e-6)
    >>> for each in statistics_of(release, ratios={"km per walker": ("km", "walked")}):
    ...     print(each.kind, each.name, round(each.value, 2), round(each.low, 2), round(each.high, 2))
    total km 900.0 876.06 923.94
    total walked 300.0 295.21 304.79
    ratio km per walker 3.0 2.91 3.09
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1): got {level!r}")
    ratios = ratios or {}
    if unknown := sorted({*means, *(name for pair in ratios.values() for name in pair)} - {*release.counters}):
        raise ValueError(f"the release of {release.query!r} has no counter {', '.join(map(repr, unknown))}")
    each_level = 1 - (1 - level) / (len(release.counters) + len(ratios))
    reach = (release.interval(each_level)[:, 1] - release.value).tolist()
    totals = {name: _Total(*each) for name, *each in zip(release.counters, release.value, reach, strict=True)}
    phones = release.contributors
    found = [
        _interval("share", name, each, phones) if Bin.of(name) else _interval("total", name, each, 1)
        for name, each in totals.items()
    ]
    found += [_interval("mean", name, totals[name], phones) for name in means]
    wide = dict(zip(release.counters, _normal_reach(release, each_level), strict=True))
    for name, pair in ratios.items():
        above, below = (_Total(totals[each].value, max(totals[each].reach, wide[each])) for each in pair)
        low, high = ratio_interval(above, below, is_independent=release.noise is not None)
        found.append(Statistic("ratio", name, above.value / below.value if below.value else math.nan, low, high))
    return found


def ratio_interval(
    above: tuple[float, float], below: tuple[float, float], *, is_independent: bool
) -> tuple[float, float]:
    """The interval of a ratio of two totals, by Fieller's theorem.

    Args:
        above: The numerator, and half the width of its interval.
        below: The denominator, likewise.
        is_independent: Whether their errors are independent; otherwise the interval is valid for any dependence.

    Returns:
        The ends; infinite if the denominator's interval contains 0.
    """
    (a, s), (b, t) = above, below
    if abs(b) <= t:
        return -math.inf, math.inf
    if not is_independent:
        corners = [(a + s * i) / (b + t * j) for i in (-1, 1) for j in (-1, 1)]
        return min(corners), max(corners)
    square = b * b - t * t
    root = math.sqrt(s * s * square + t * t * a * a)
    return (a * b - root) / square, (a * b + root) / square


def to_csv(statistics: Iterable[Statistic]) -> str:
    """The statistics as CSV, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Statistic)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(asdict, statistics))
    return text.getvalue()


def _interval(kind: Kind, name: str, total: _Total, phones: int) -> Statistic:
    value, reach = total.value / phones, total.reach / phones
    return Statistic(kind, name, value, value - reach, value + reach)


def _normal_reach(release: Release, level: float) -> list[float]:
    """Half the widths of intervals for normal errors. Those of whole-number noise may be narrower by half a step."""
    if release.noise is not None and not mechanism_of(release.noise).whole:
        return [0.0] * len(release.variance)
    quantile = NormalDist().inv_cdf((1 + level) / 2)
    return [quantile * math.sqrt(variance) for variance in release.variance]
