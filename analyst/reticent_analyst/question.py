"""A question: a query that does not depend on the enrolled phones and the active key yet.

A question has the counters, the cost to a user, and the expected shares of absent phones and of liars. The cohorts and
their thresholds follow from these and from the number of phones.
"""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from reticent.privacy import (
    COST_RANGES,
    MAX_FRACTION_BITS,
    MAX_INTEGER,
    Counter,
    NoiseKind,
    Query,
    mechanism_of,
    share_variance,
)
from reticent.times import duration
from reticent_analyst.cohort_odds import MAX_PHONES, CohortPlan, choose_cohorts

__all__ = ["DAY", "Question", "QuestionSequence"]

DAY = 86_400
RISK = 1e-3
"""The default of the accepted probability that nothing is released."""

_AT_LEAST_ONE = ("l2_squared", "l1", "population", "cohorts", "enough")
_SECTIONS = {"counters", "bounds", "expected"}


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to count, its cost, and what to expect of phones. What is None is chosen from the number of phones.

    Args:
        id: The query's name. A second attempt needs another one.
        counters: The counters with their bounds.
        epsilon: The cost to each user, together with delta.
        delta: See epsilon.
        absent: The probability that a phone does not contribute.
        l2_squared: A bound on the squared L2 norm of one user's whole vector. By default it follows from the counters.
            A smaller bound needs less noise; a larger one has no effect.
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

    def __post_init__(self) -> None:
        for name in ("absent", "lying"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), as a share of the phones: got {getattr(self, name)!r}")
        for name, (low, high) in COST_RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} must lie in [{low:g}, {high:g}]: got {getattr(self, name)!r}")
        if not 0 < self.risk < 1:
            raise ValueError(f"risk must lie in (0, 1): got {self.risk!r}")
        if not self.counters:
            raise ValueError("a question needs at least one counter: got none")
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1: got {value!r}")
        if self.sequence is not None and None in {self.l1, self.l2_squared}:
            raise ValueError(f"the bounds l1 and l2_squared of the whole sequence {self.sequence!r} must be given")
        object.__setattr__(self, "closes_after", _whole_seconds(self.closes_after))

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
            counters=self.counters,
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
        content = tomllib.loads(text)
        counters = [_counter(name, bounds) for name, bounds in _table(content, "counters").items()]
        found = {name: value for name, value in content.items() if name not in _SECTIONS}
        for section in ("bounds", "expected"):
            for name, value in _table(content, section).items():
                if name not in _IN_SECTION[section]:
                    raise ValueError(
                        f"[{section}] has the keys {', '.join(sorted(_IN_SECTION[section]))}: got {name!r}"
                    )
                found[name] = value
        unknown = found.keys() - _KINDS.keys()
        missing = {"id", "epsilon", "delta", "absent"} - found.keys()
        if unknown:
            raise ValueError(f"a question has the keys {_named(_KINDS)}: got {', '.join(sorted(unknown))}")
        if missing:
            raise ValueError(f"a question needs {_named(missing)}: got {_named(found) or 'nothing'}")
        if isinstance(found.get("closes_after"), str):
            found["closes_after"] = _whole_seconds(duration(found["closes_after"], "closes_after"))
        for name, value in found.items():
            if isinstance(value, bool) or not isinstance(value, _KINDS[name]):
                raise ValueError(
                    f"{_named([name])} must be {'text' if _KINDS[name] is str else 'a number'}: got {value!r}"
                )
            if isinstance(value, int | float) and not abs(value) <= MAX_INTEGER:
                raise ValueError(f"{_named([name])} is too large: got {value!r}")
        return cls(counters=counters, **found)

    def _norms(self) -> tuple[int, int]:
        """The L1 bound and the squared L2 bound. Each is as tight as the counters and the other bound imply."""
        if self.sequence is not None and self.l1 is not None and self.l2_squared is not None:
            return self.l1, self.l2_squared  # they are over more than these counters
        most = [max(-counter.low, counter.high) for counter in self.counters]
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


_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("id", "noise", "sequence"), str),
    **dict.fromkeys(("epsilon", "delta", "absent", "lying", "risk"), (int, float)),
    **dict.fromkeys(
        ("l2_squared", "l1", "fraction_bits", "population", "cohorts", "min_contributions", "liars", "enough"), int
    ),
    "closes_after": int,
}
_IN_SECTION = {"bounds": {"l1", "l2_squared"}, "expected": {"absent", "lying", "risk"}}


def _table(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"[{name}] must be a table: got {table!r}")
    return table


def _named(names: Iterable[str]) -> str:
    """The keys as in a file, each with its section."""
    sections = {name: section for section, those in _IN_SECTION.items() for name in those}
    return ", ".join(sorted(f"[{sections[name]}] {name}" if name in sections else name for name in names))


def _counter(name: str, bounds: Any) -> Counter:
    if isinstance(bounds, list) and [_is_whole(bound) for bound in bounds] == [True, True]:
        return Counter(name, *map(int, bounds))
    raise ValueError(
        f"[counters] a counter has two whole numbers as bounds, as in visits = [0, 7]: got {name} = {bounds!r}"
    )


def _is_whole(bound: Any) -> bool:
    return type(bound) in {int, float} and abs(bound) <= MAX_INTEGER and bound == int(bound)


def _whole_seconds(length: int | dt.timedelta) -> int:
    if not isinstance(length, dt.timedelta):
        return length
    seconds, rest = divmod(length, dt.timedelta(seconds=1))
    if rest:
        raise ValueError(f"closes_after must be a whole number of seconds: got {length}")
    return seconds
