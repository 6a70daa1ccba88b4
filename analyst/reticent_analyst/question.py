"""A question: a query that does not depend on the enrolled phones and the active key yet.

A question has the counters, the cost to a user, and the expected shares of absent phones and of liars. The cohorts and
their thresholds follow from these and from the number of phones.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from reticent.privacy import (
    COST_RANGES,
    MAX_FRACTION_BITS,
    Bin,
    Counter,
    NoiseKind,
    Query,
    Release,
    mechanism_of,
    share_variance,
)
from reticent_analyst.cohort_odds import MAX_PHONES, CohortPlan, choose_cohorts
from reticent_analyst.intervals import Statistic, statistics_of
from reticent_analyst.question_file import fields_of

__all__ = ["DAY", "Question", "QuestionSequence"]

DAY = 86_400
RISK = 1e-3
"""The default of the accepted probability that nothing is released."""

Scaling = Literal["none", "balanced"]
"""The ways in which a question sets the scales of its counters."""

_AT_LEAST_ONE = ("l2_squared", "l1", "population", "cohorts", "enough")


@dataclass(frozen=True, kw_only=True)
class Question:
    """The counters, their cost, and assumptions about the phones. Values of None are chosen from the number of phones.

    Args:
        id: The query's name. A second attempt needs another one.
        counters: The counters with their bounds.
        epsilon: The cost to each user, together with delta.
        delta: See epsilon.
        absent: The probability that a phone does not contribute.
        scaling: "none", or "balanced": each counter gets the scale with which its bound is about that of the counter
            with the largest bound, so that all have about the same error, relative to their bounds. The bounds on the
            whole vector then follow from the counters.
        l2_squared: A bound on the squared L2 norm of one user's whole vector, scaled. By default it follows from the
            counters. A smaller bound needs less noise; a larger one has no effect.
        l1: A bound on the L1 norm, likewise. A question of a sequence needs both.
        noise: "skellam" for whole numbers, "gaussian" for fixed-point numbers.
        fraction_bits: The resolution of fixed-point numbers. By default it follows from the noise.
        lying: The share of the enrolled phones that lie or collude. The number of cohorts follows from it.
        risk: The accepted probability that nothing is released, because phones are absent or lie.
        population: The number of phones; by default, all that are enrolled.
        cohorts: The number of cohorts; by default, the fewest that tolerate the liars.
        min_contributions: The fewest contributions with which a cohort may be decrypted; by default, the most accurate.
        liars: The liars among `min_contributions` against whom privacy holds. The default is a twentieth, as phones and
            key servers require. It is more if a cohort would otherwise have more liars with a probability above `risk`.
        closes_after: The duration of collecting, in seconds or as a timedelta.
        enough: Collecting ends as soon as each cohort has this many contributions.
        means: The counters of which the release is also shown as a mean over the contributors.
        ratios: The numerator and the denominator of each ratio of two totals, by its name.
        histograms: The edges of each histogram, by the name of the number that phones have. Each bin is a counter, and
            contains its lower edge; a phone is in at most one bin.
        sequence: The name of the sequence that the question belongs to: see `QuestionSequence`.

    >>> question = Question(id="gym", counters=[Counter("visits", 0, 2)], epsilon=1.0, delta=1e-6, absent=0.3)
    >>> query = question.to_query(population=10_000, key_id="k1")
    >>> query.cohorts, query.min_contributions, query.liars, query.l2_squared
    (1, 6858, 343, 4)
    """

    id: str
    counters: Sequence[Counter]
    epsilon: float
    delta: float
    absent: float
    scaling: Scaling = "none"
    l2_squared: int | None = None
    l1: int | None = None
    noise: NoiseKind = "skellam"
    fraction_bits: int | None = None
    lying: float = 0.0
    risk: float = RISK
    population: int | None = None
    cohorts: int | None = None
    min_contributions: int | None = None
    liars: int | None = None
    closes_after: int | dt.timedelta = DAY
    enough: int | None = None
    sequence: str | None = None
    means: Sequence[str] = ()
    ratios: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    histograms: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("absent", "lying"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), as a share of the phones: got {getattr(self, name)!r}")
        for name, (low, high) in COST_RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} must lie in [{low:g}, {high:g}]: got {getattr(self, name)!r}")
        if not 0 < self.risk < 1:
            raise ValueError(f"risk must lie in (0, 1): got {self.risk!r}")
        if not self.counters and not self.histograms:
            raise ValueError("a question needs at least one counter or histogram: got none")
        self._check_bounds()
        self._check_statistics()
        object.__setattr__(self, "closes_after", _whole_seconds(self.closes_after))

    def _check_bounds(self) -> None:
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1: got {value!r}")
        if self.sequence is not None and None in {self.l1, self.l2_squared}:
            raise ValueError(f"the bounds l1 and l2_squared of the whole sequence {self.sequence!r} must be given")
        if self.scaling not in get_args(Scaling):
            raise ValueError(f"scaling must be one of {', '.join(get_args(Scaling))}: got {self.scaling!r}")
        if self.scaling == "balanced" and any(counter.scale != 1 for counter in self.counters):
            raise ValueError('scaling = "balanced" computes the scales: counters state none of their own')
        if self.scaling == "balanced" and {self.l1, self.l2_squared} != {None}:
            raise ValueError("l1 and l2_squared bound the scaled vector: with them, each counter must state its scale")

    def _check_statistics(self) -> None:
        for name, edges in self.histograms.items():
            if len(edges) < 2 or any(not low < high for low, high in pairwise(edges)):
                raise ValueError(f"the edges of the histogram {name!r} must be at least two, and grow: got {[*edges]}")
        names = {counter.name for counter in self._counters()}
        if unknown := sorted({*self.means, *(name for pair in self.ratios.values() for name in pair)} - names):
            raise ValueError(f"means and ratios are of counters of the question: got {', '.join(map(repr, unknown))}")
        for name, (above, below) in self.ratios.items():
            if above == below:
                raise ValueError(f"the ratio {name!r} must be of two counters: got {above!r} twice")

    def statistics(self, release: Release, level: float = 0.95) -> list[Statistic]:
        """The totals, means, shares and ratios of the question's release, with intervals that hold all together.

        Args:
            release: The release.
            level: The probability that all intervals contain the truth, if nobody lied.

        Raises:
            ValueError: The release is of other counters.
        """
        names = tuple(counter.name for counter in self._counters())
        if release.counters != names:
            raise ValueError(f"the release of {release.query!r} is of other counters: {', '.join(release.counters)}")
        return statistics_of(release, means=self.means, ratios=self.ratios, level=level)

    def to_query(self, population: int, key_id: str) -> Query:
        """The query for this many phones.

        Args:
            population: The number of enrolled phones.
            key_id: The active key.

        Raises:
            ValueError: No query of these phones answers the question.
        """
        l1, l2_squared = self._norms()
        population = population if self.population is None else self.population
        chosen = choose_cohorts(
            population=population,
            absent=self.absent,
            lying=self.liars_among(population),
            risk=self.risk,
            cohorts=self.cohorts,
            min_contributions=self.min_contributions,
            liars=self.liars,
            variance=self._variance(l2_squared, l1),
        )
        return Query(
            id=self.id,
            counters=self._counters(),
            epsilon=self.epsilon,
            delta=self.delta,
            l2_squared=l2_squared,
            l1=l1,
            noise=self.noise,
            fraction_bits=self._fraction_bits(chosen, l2_squared, l1),
            population=population,
            cohorts=chosen.cohorts,
            min_contributions=chosen.min_contributions,
            liars=chosen.liars,
            key_id=key_id,
            closes_after=_whole_seconds(self.closes_after),
            enough=self.enough,
            sequence=self.sequence,
        )

    def liars_among(self, population: int) -> int:
        """The expected number of liars among so many phones."""
        if population > MAX_PHONES:
            raise ValueError(f"population must be at most {MAX_PHONES:,}: got {population}")
        return math.ceil(round(self.lying * population, 9))

    @classmethod
    def load(cls, path: str | Path) -> Question:
        """Read a question from a TOML file, as docs/counting.md describes it.

        Raises:
            ValueError: The file is no question.
        """
        content = Path(path).read_text(encoding="utf-8")
        try:
            return cls.from_toml(content)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def from_toml(cls, text: str) -> Question:
        """Read a question from a text in TOML.

        Raises:
            ValueError: The text is no question.
        """
        return cls(**fields_of(text))

    def _counters(self) -> Sequence[Counter]:
        """The counters with their scales, and those of the histograms' bins."""
        *scales, of_bins = self._scales()
        bins = [Bin(name, *pair) for name, edges in self.histograms.items() for pair in pairwise(edges)]
        return [
            *(counter._replace(scale=scale) for counter, scale in zip(self.counters, scales, strict=True)),
            *(Counter(each.name, 0, 1, of_bins) for each in bins),
        ]

    def _scales(self) -> list[int]:
        """The scale of each counter, and that of all bins."""
        if self.scaling == "none":
            return [*(counter.scale for counter in self.counters), 1]
        most = [*(max(-counter.low, counter.high) for counter in self.counters), 1]
        return [max(1, round(max(most) / each)) if each else 1 for each in most]

    def _norms(self) -> tuple[int, int]:
        """The L1 bound and the squared L2 bound. Each is as tight as the counters and the other bound imply."""
        if self.sequence is not None and self.l1 is not None and self.l2_squared is not None:
            return self.l1, self.l2_squared  # they are over more than these counters
        counters = self._counters()
        most = [counter.most for counter in counters[: len(self.counters)]]
        most += [self._scales()[-1]] * len(self.histograms)  # a phone is in one bin of each
        square = sum(each * each for each in most)
        l2_squared = min(square, square if self.l2_squared is None else self.l2_squared)
        if self.l1 is not None:
            l2_squared = min(l2_squared, max(most) * self.l1, self.l1**2)
        l1 = min(sum(most), math.isqrt(len(most) * l2_squared - 1) + 1)
        if mechanism_of(self.noise).whole:
            l1 = min(l1, l2_squared)
        return (l1 if self.l1 is None else min(l1, self.l1)), l2_squared

    def _variance(self, l2_squared: int, l1: int, fraction_bits: int | None = None) -> float:
        """The variance of the noise; without fraction bits, before a grid is chosen."""
        l2 = math.sqrt(l2_squared)
        return mechanism_of(self.noise).variance(self.epsilon, self.delta, l2, l1, fraction_bits)

    def _fraction_bits(self, chosen: CohortPlan, l2_squared: int, l1: int) -> int:
        """The fewest bits with which a share of the noise is wide enough for its grid."""
        if self.fraction_bits is not None:
            return self.fraction_bits
        enough = mechanism_of(self.noise).min_share_deviation
        for bits in range(MAX_FRACTION_BITS):
            variance = share_variance(self._variance(l2_squared, l1, bits), chosen.min_contributions, chosen.liars)
            if math.ldexp(math.sqrt(variance), bits) >= enough:
                return bits
        return MAX_FRACTION_BITS


@dataclass(frozen=True, kw_only=True)
class QuestionSequence:
    """Questions that share one budget: a user's contributions to all of them together are bounded, and cost once.

    Each question may depend on the releases before it.

    Args:
        name: The name of the sequence.
        epsilon: The cost of all questions together to a user, together with delta.
        delta: See epsilon.
        l2_squared: A bound on the squared L2 norm of all that one user contributes.
        l1: A bound on the L1 norm of the same.
        noise: As in a question.
        fraction_bits: As in a question. All questions share it, so "gaussian" needs it.

    >>> week = QuestionSequence(name="week 9", epsilon=1.0, delta=1e-6, l2_squared=7, l1=7)
    >>> week.question("week 9, Monday", [Counter("visited", 0, 1)], absent=0.2).sequence
    'week 9'
    """

    name: str
    epsilon: float
    delta: float
    l2_squared: int
    l1: int
    noise: NoiseKind = "skellam"
    fraction_bits: int = 0

    def question(self, name: str, counters: Sequence[Counter], **others: Any) -> Question:
        """A question of the sequence.

        Args:
            name: Its id.
            counters: Its counters.
            others: Other arguments of `Question`, except those of the sequence.
        """
        shared = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        if taken := shared.keys() & others.keys():
            raise ValueError(f"the sequence {self.name!r} sets {', '.join(sorted(taken))} for all of its questions")
        return replace(Question(id=name, counters=counters, **shared, **others), sequence=self.name)


def _whole_seconds(length: int | dt.timedelta) -> int:
    if not isinstance(length, dt.timedelta):
        return length
    seconds, rest = divmod(length, dt.timedelta(seconds=1))
    if rest:
        raise ValueError(f"closes_after must be a whole number of seconds: got {length}")
    return seconds
