"""What an analyst wants to know, before it is a query: of whatever phones are enrolled, under whatever key is in use.

A question says what is counted, what it may cost a user, and what is expected of the phones: how many are absent, how
many lie. From that follows in how many cohorts they are dealt, and with how few contributions one may be decrypted.
"""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from reticent.privacy import Counter, Query, fixed_point_sigma, gaussian_sigma, share_variance, skellam_variance
from reticent.privacy.cost import NoiseKind
from reticent.privacy.query import COSTS, LARGEST, MAX_FRACTION_BITS
from reticent.privacy.shares import MIN_DEVIATION
from reticent.times import duration
from reticent_analyst.cohort_odds import MAX_PHONES, Crowd, choose

__all__ = ["DAY", "Question", "QuestionSequence"]

DAY = 86_400
RISK = 1e-3
"""How likely a query may be to end without an answer, unless the analyst says otherwise."""

_SECTIONS = {"counters", "bounds", "expected"}


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is wanted of a query. What is not given is chosen when the number of phones is known.

    Args:
        id: Names the query; a second attempt is another one.
        counters: What is counted, and between which bounds.
        epsilon: What taking part costs a user, together with delta.
        delta: See there.
        absent: How likely each phone is not to contribute.
        l2_squared: A bound on the square of the L2 norm of one user's whole vector; what the counters allow, unless
            given. A smaller one needs less noise; a larger one says nothing.
        l1: And on its L1 norm.
        noise: "skellam" for whole numbers, "gaussian" for fixed-point ones.
        fraction_bits: How fine fixed-point numbers are; as fine as their noise needs, unless given.
        lying: Which part of the enrolled phones lies, or colludes: how many cohorts the result needs.
        risk: How likely the query may be to end without an answer, because phones are absent, or because they lie.
        population: How many phones are asked; all that are enrolled, unless given.
        cohorts: Into how many they are dealt; the fewest in which that many liars are borne, unless given.
        min_contributions: With how few contributions a cohort may be decrypted; the most accurate number, unless given.
        liars: How many of `min_contributions` may lie or collude without harm to anybody's privacy. Unless given, it
            is a twentieth of `min_contributions`, which phones and key servers want by default; or more, such that a
            cohort has more of those who are `lying` no more often than `risk`.
        closes_after: After how many seconds collecting ends; or after how long.
        enough: Or earlier, as soon as each cohort has this many contributions.
        sequence: The name of the sequence that this is one of: see `QuestionSequence`.

    >>> question = Question(id="gym", counters=[Counter("visits", 0, 2)], epsilon=1.0, delta=1e-6, absent=0.3)
    >>> query = question.ask(population=10_000, key_id="k1")
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
                raise ValueError(f"{name} is a part of the phones, in [0, 1): got {getattr(self, name)!r}")
        for name, (low, high) in COSTS.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} must lie in [{low:g}, {high:g}]: got {getattr(self, name)!r}")
        if not 0 < self.risk < 1:
            raise ValueError(f"risk must lie in (0, 1): got {self.risk!r}")
        if not self.counters:
            raise ValueError("a question has at least one counter: got none")
        object.__setattr__(self, "closes_after", _whole_seconds(self.closes_after))

    def ask(self, population: int, key_id: str) -> Query:
        """The query to put to this many phones.

        Raises:
            ValueError: It cannot be put to them so; the sentence says why.
        """
        l1, l2_squared = self._norms()
        asked = self.population or population
        crowd = choose(
            population=asked,
            absent=self.absent,
            lying=self.lying_among(asked),
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
            fraction_bits=self._fraction_bits(crowd, l2_squared, l1),
            population=asked,
            cohorts=crowd.cohorts,
            min_contributions=crowd.min_contributions,
            liars=crowd.liars,
            key_id=key_id,
            closes_after=_whole_seconds(self.closes_after),
            enough=self.enough,
            sequence=self.sequence,
        )

    def lying_among(self, population: int) -> int:
        """How many of so many phones are expected to lie."""
        if population > MAX_PHONES:
            raise ValueError(f"there are no more than {MAX_PHONES:,} phones: population = {population}")
        return math.ceil(round(self.lying * population, 9))

    @classmethod
    def load(cls, path: str | Path) -> Question:
        """The question of a file: docs/counting.md says what is in it.

        Raises:
            ValueError: It says something that cannot be meant.
        """
        content = Path(path).read_text(encoding="utf-8")
        try:
            return cls.from_toml(content)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def from_toml(cls, text: str) -> Question:
        """The question that a text in TOML asks.

        Raises:
            ValueError: It says something that cannot be meant.
        """
        content = tomllib.loads(text)
        counters = [_counter(name, bounds) for name, bounds in _table(content, "counters").items()]
        found = {name: value for name, value in content.items() if name not in _SECTIONS}
        for section in ("bounds", "expected"):
            for name, value in _table(content, section).items():
                if name not in _IN_SECTION[section]:
                    raise ValueError(f"[{section}] says {', '.join(sorted(_IN_SECTION[section]))}: got {name!r}")
                found[name] = value
        unknown = found.keys() - _KINDS.keys()
        missing = {"id", "epsilon", "delta", "absent"} - found.keys()
        if unknown:
            raise ValueError(f"a question says {_named(_KINDS)}: got {', '.join(sorted(unknown))}")
        if missing:
            raise ValueError(f"a question says {_named(missing)} as well: got {_named(found) or 'nothing'}")
        if isinstance(found.get("closes_after"), str):
            found["closes_after"] = _whole_seconds(duration(found["closes_after"], "closes_after"))
        for name, value in found.items():
            if isinstance(value, bool) or not isinstance(value, _KINDS[name]):
                raise ValueError(f"{_named([name])} is {'text' if _KINDS[name] is str else 'a number'}: got {value!r}")
            if isinstance(value, int | float) and not abs(value) <= LARGEST:
                raise ValueError(f"{_named([name])} is too large: got {value!r}")
        return cls(counters=counters, **found)

    def _norms(self) -> tuple[int, int]:
        """L1, and the square of L2: as given, and where they are not what the counters and the other one leave."""
        most = [max(-counter.low, counter.high) for counter in self.counters]
        square = sum(each * each for each in most)
        l1, l2_squared = self.l1, self.l2_squared
        if self.sequence is not None:  # whose bounds are of more than these counters
            return l1 or sum(most), l2_squared or square
        if l2_squared is not None:
            l2_squared = min(l2_squared, square)
        else:
            l2_squared = square if l1 is None else min(square, max(most) * l1, l1 * l1)
        if l1 is None:
            l1 = min(sum(most), math.isqrt(len(most) * l2_squared - 1) + 1)
            if self.noise == "skellam":
                l1 = min(l1, l2_squared)
        return l1, l2_squared

    def _variance(self, l2_squared: int, l1: int) -> float:
        """Of the noise, on whatever grid."""
        if self.noise == "skellam":
            return skellam_variance(self.epsilon, self.delta, math.sqrt(l2_squared), l1=l1)
        return gaussian_sigma(self.epsilon, self.delta, math.sqrt(l2_squared)) ** 2

    def _fraction_bits(self, crowd: Crowd, l2_squared: int, l1: int) -> int:
        """The fewest with which a share of Gaussian noise is wide enough for its grid."""
        if self.fraction_bits is not None or self.noise == "skellam":
            return self.fraction_bits or 0
        bits = 0
        while bits < MAX_FRACTION_BITS:
            sigma = fixed_point_sigma(self.epsilon, self.delta, math.sqrt(l2_squared), l1=l1, fraction_bits=bits)
            if (
                math.ldexp(math.sqrt(share_variance(sigma**2, crowd.min_contributions, crowd.liars)), bits)
                >= MIN_DEVIATION
            ):
                return bits
            bits += 1
        return bits


@dataclass(frozen=True, kw_only=True)
class QuestionSequence:
    """Questions that share one budget: what one user adds to all of them together is bounded, and costs once.

    Each may be chosen by the answers to those before it.

    Args:
        name: Of the sequence.
        epsilon: What all of them together cost a user, together with delta.
        delta: See there.
        l2_squared: The square of the L2 norm of all that one user adds is at most this.
        l1: And the L1 norm this.
        noise: As in a question.
        fraction_bits: As in a question; the same for all, so to be given for "gaussian".

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
        """One of them.

        Args:
            name: Its id.
            counters: What is counted.
            others: What else a `Question` may say; nothing that the sequence says for all.
        """
        shared = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        if taken := shared.keys() & others.keys():
            raise ValueError(f"the sequence {self.name!r} says {', '.join(sorted(taken))} for all of its questions")
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
        raise ValueError(f"[{name}] is a table: got {table!r}")
    return table


def _named(names: Iterable[str]) -> str:
    """The names as a file has them: with the section that each stands in."""
    sections = {name: section for section, those in _IN_SECTION.items() for name in those}
    return ", ".join(sorted(f"[{sections[name]}] {name}" if name in sections else name for name in names))


def _counter(name: str, bounds: Any) -> Counter:
    if isinstance(bounds, list) and [_is_whole(bound) for bound in bounds] == [True, True]:
        return Counter(name, *map(int, bounds))
    raise ValueError(
        f"[counters] a counter has its least and its most, two whole numbers, as in visits = [0, 7]: "
        f"got {name} = {bounds!r}"
    )


def _is_whole(bound: Any) -> bool:
    return type(bound) in {int, float} and abs(bound) <= LARGEST and bound == int(bound)


def _whole_seconds(length: int | dt.timedelta) -> int:
    if not isinstance(length, dt.timedelta):
        return length
    seconds, rest = divmod(length, dt.timedelta(seconds=1))
    if rest:
        raise ValueError(f"closes_after is a whole number of seconds: got {length}")
    return seconds
