"""What phones are asked: which counters, with how much noise, from how many, and when it is over.

A query is one canonical string of bytes. The key server countersigns its digest, and everything else about it (the
variance, a phone's share of it, its cost) is computed from these bytes by everyone alone. It adds to "Count" of section
5.4 of Götz's dissertation the number of contributions that may be decrypted, apart from the number of liars among them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from reticent.arguments import checked_integer, checked_positive
from reticent.privacy._canonical import Reader, integer, real, text
from reticent.privacy._cost import Cost, Noise
from reticent.privacy._fitting import NOTHING, Integers, Norms, within
from reticent.privacy.mechanisms import Mechanism, NoiseKind, mechanism_of
from reticent.privacy.mechanisms.mechanism import share_variance

FORMAT = b"reticent.query.1\n"
"""How the canonical bytes of a query begin."""

MAX_INTEGER = 2**63 - 1
"""What an integer of the encoding can be."""

COST_RANGES = {"epsilon": (1e-6, 100.0), "delta": (1e-100, 0.5)}
"""Beyond these ranges a promise means nothing, or cannot be computed."""

_DIGEST = b"reticent.query.digest.1\n"  # separates these digests from any other use of the same hash
_SEQUENCE = "sequence "  # how the account of a sequence begins, and that of no single query
_SUMS = 2**62  # sums of one phone's squares stay below this, so that they are exact in 64 bits
MAX_FRACTION_BITS = 52
"""More than a float has would say nothing."""

_MAX_COHORTS = 100_000  # whoever reads a query counts the phones of each


class Counter(NamedTuple):
    """One number that each phone is asked for; who has nothing to say says 0.

    Args:
        name: What is counted.
        low: The least that one phone may add, at most 0.
        high: The most, at least 0.
    """

    name: str
    low: int
    high: int


@dataclass(frozen=True, kw_only=True)
class Query:
    """One question to many phones, which each of them answers at most once.

    The phones are dealt into cohorts whose sizes differ by at most one; each is added up, noised and decrypted on its
    own. Neighbours add or remove one user.

    Args:
        id: Names the query; a second attempt is another query.
        counters: What is counted, and between which bounds.
        epsilon: What taking part costs, together with delta.
        delta: See there.
        l2_squared: The square of the L2 norm of one user's whole vector is at most this.
        l1: And the L1 norm this.
        noise: "skellam" for whole numbers, "gaussian" for fixed-point ones.
        fraction_bits: Numbers are multiples of 2^-fraction_bits; 0 for whole ones.
        population: How many phones are enrolled.
        cohorts: Among how many cohorts they are dealt; at most 100,000.
        min_contributions: With how few contributions a cohort may still be decrypted.
        liars: How many of those may, at most, be liars or collude.
        key_id: Under which key contributions are encrypted.
        closes_after: After how many seconds collecting ends.
        enough: Or earlier, as soon as each cohort has this many contributions; by default all of them.
        sequence: The name of a sequence of queries, if this is one of them. What one user adds to all of them together
            is within `l2_squared` and `l1`, and costs epsilon and delta once; so all of them name the same bounds, cost
            and noise. Each may depend on the answers to those before it.

    Raises:
        ValueError: Two parts do not fit each other, or one is out of its range.

    >>> query = Query(
    ...     id="gym", counters=[Counter("visits", 0, 2)], epsilon=1.0, delta=1e-6, l2_squared=4, l1=2, noise="skellam",
    ...     population=10_000, cohorts=1, min_contributions=7_000, liars=350, key_id="k1", closes_after=3600,
    ... )
    >>> query.fit([3.2])
    array([2])
    """

    id: str
    counters: Sequence[Counter]
    epsilon: float
    delta: float
    l2_squared: int
    l1: int
    noise: NoiseKind
    fraction_bits: int = 0
    population: int
    cohorts: int
    min_contributions: int
    liars: int
    key_id: str
    closes_after: int
    enough: int | None = None
    sequence: str | None = None

    def __post_init__(self) -> None:
        _refuse_bad_text("id", self.id)
        if self.id.startswith(_SEQUENCE):
            raise ValueError(f"ids that begin with {_SEQUENCE!r} are those of sequences in ledgers: got {self.id!r}")
        _refuse_bad_text("key_id", self.key_id)
        object.__setattr__(self, "counters", _checked_counters(self.counters))
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, checked_positive(name, getattr(self, name)))
        for name, least in _INTEGERS.items():
            object.__setattr__(self, name, _whole(name, getattr(self, name), least))
        if self.enough is not None:
            object.__setattr__(self, "enough", _whole("enough", self.enough, 1))
        if self.sequence is not None:
            _refuse_bad_text("sequence", self.sequence)
        for name, (low, high) in COST_RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} must lie in [{low:g}, {high:g}]: got {getattr(self, name)!r}")
        self._refuse_bounds_that_do_not_fit()
        self._refuse_cohorts_that_do_not_fit()
        self._refuse_noise_that_does_not_fit()

    @property
    def size(self) -> int:
        """How many counters there are."""
        return len(self.counters)

    @property
    def unit(self) -> float:
        """What one step of the grid is worth."""
        return 2.0**-self.fraction_bits

    @property
    def l2(self) -> float:
        """The L2 norm of one user's whole vector is at most this."""
        return math.sqrt(self.l2_squared)

    @property
    def cohort_populations(self) -> tuple[int, ...]:
        """How many phones are dealt into each cohort."""
        size, larger = divmod(self.population, self.cohorts)
        return (size + 1,) * larger + (size,) * (self.cohorts - larger)

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of the noise."""
        return mechanism_of(self.noise)

    @cached_property
    def variance(self) -> float:
        """Of the noise that hides a user, in each counter of each cohort."""
        if self.sequence is not None:
            return self.mechanism.sequence_variance(self.epsilon, self.delta, self.l2, self.l1)
        return self.mechanism.variance(self.epsilon, self.delta, self.l2, self.l1, self.fraction_bits)

    @property
    def share_variance(self) -> float:
        """Of each phone's noise; of the fewest honest ones, one of whom knows its own, the rest reach `variance`."""
        return share_variance(self.variance, self.min_contributions, self.liars)

    @property
    def account(self) -> str:
        """Under which name a ledger books the cost: that of the query, or of the sequence that it is one of."""
        return self.id if self.sequence is None else f"{_SEQUENCE}{self.sequence}"

    @property
    def terms(self) -> tuple[float | str, ...]:
        """What all queries of a sequence have in common; each phone adds up what it has used of the bounds in steps."""
        return (
            *(self.epsilon, self.delta, self.l2_squared, self.l1),
            *(self.noise, self.fraction_bits, self.variance),
        )

    @property
    def cost(self) -> Cost:
        """What taking part costs a user, who is in one cohort only; in a sequence, once for all of it."""
        return Cost(self.epsilon, self.delta, Noise(self.noise, self.variance, self.l2, float(self.l1)))

    def to_bytes(self) -> bytes:
        """The one string of bytes that stands for this query, and for no other.

        `FORMAT`, then the fields in the order in which `Query` lists them, encoded as `reticent.privacy._canonical`
        says. `counters` is their number as an integer, then name, low and high of each. An `enough` that is not given
        is 0, a `sequence` that is not is empty.
        """
        parts = [FORMAT, text(self.id), integer(self.size)]
        for counter in self.counters:
            parts += [text(counter.name), integer(counter.low), integer(counter.high)]
        parts += [real(self.epsilon), real(self.delta), integer(self.l2_squared), integer(self.l1)]
        parts += [text(self.noise), integer(self.fraction_bits)]
        parts += [integer(number) for number in (self.population, self.cohorts, self.min_contributions, self.liars)]
        parts += [text(self.key_id), integer(self.closes_after), integer(self.enough or 0), text(self.sequence or "")]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, content: bytes) -> Query:
        """The query that `to_bytes` wrote.

        Raises:
            ValueError: These are not the canonical bytes of a query.
        """
        reader = Reader(content, FORMAT)
        query = cls(
            id=reader.text(),
            counters=[Counter(reader.text(), reader.integer(), reader.integer()) for _ in range(reader.count())],
            epsilon=reader.real(),
            delta=reader.real(),
            l2_squared=reader.integer(),
            l1=reader.integer(),
            noise=cast("NoiseKind", reader.text()),
            fraction_bits=reader.integer(),
            population=reader.integer(),
            cohorts=reader.integer(),
            min_contributions=reader.integer(),
            liars=reader.integer(),
            key_id=reader.text(),
            closes_after=reader.integer(),
            enough=reader.integer() or None,
            sequence=reader.text() or None,
        )
        if query.to_bytes() != content:
            raise ValueError(f"a query ends at byte {reader.position}: {len(content) - reader.position} are too many")
        return query

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes, which is what is countersigned: 32 bytes."""
        return self.digest_of(self.to_bytes())

    @staticmethod
    def digest_of(content: bytes) -> bytes:
        """The digest of the query that has these canonical bytes, whether or not there is one."""
        return hashlib.sha256(_DIGEST + content).digest()

    def share(self, rng: np.random.Generator) -> Integers:
        """Run by the phone: its share of the noise, for each counter, in steps of the grid.

        Args:
            rng: `reticent.randomness.secure()` on a phone.
        """
        return self.mechanism.share(self.share_variance, self.size, rng, self.fraction_bits)

    def fit(self, values: npt.ArrayLike, *, used: Norms | tuple[Integers, Integers] = NOTHING) -> Integers:
        """Run by the phone: what it may contribute of its counters, in steps of the grid.

        Each value is clipped to its counter's bounds and rounded to the nearest step. Where the rounded vector exceeds
        the L2 or the L1 bound it is scaled down until it does not; what that cuts off is rounded to whole steps again,
        up as far as the bounds allow, largest remainder first and in the order of the counters where these are equal.

        Args:
            values: A number for each counter; or many phones' at once, as rows.
            used: Of the bounds, by what was contributed to the sequence's other queries; of many phones, as arrays.

        Returns:
            As many integers, within all bounds.

        Raises:
            ValueError: A value is no finite number, or there are more or fewer than counters.
        """
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" or array.ndim == 0 or array.shape[-1] != self.size:
            raise ValueError(f"{self.id!r} takes {self.size} numbers from each phone: got {_shortened(values)}")
        reals = array.astype(np.float64)
        if not np.isfinite(reals).all():
            raise ValueError(f"{self.id!r} takes finite numbers: got {_shortened(values)}")
        low, high = np.array([(counter.low, counter.high) for counter in self.counters], dtype=np.float64).T
        steps = np.rint(np.clip(reals, low, high) / self.unit).astype(np.int64).reshape(-1, self.size)
        return within(steps, self._bounds_in_steps, used).reshape(array.shape)

    @property
    def _bounds_in_steps(self) -> Norms:
        """The bounds; no vector has more than what fits 64 bits."""
        return Norms(min(self.l1 << self.fraction_bits, _SUMS), min(self.l2_squared << 2 * self.fraction_bits, _SUMS))

    def _refuse_bounds_that_do_not_fit(self) -> None:
        if self.fraction_bits > MAX_FRACTION_BITS:
            raise ValueError(f"fraction_bits must be at most {MAX_FRACTION_BITS}: got {self.fraction_bits}")
        largest = sum(max(-counter.low, counter.high) ** 2 for counter in self.counters) << 2 * self.fraction_bits
        if largest >= _SUMS:
            raise ValueError(
                f"the counters of one phone are too large for 64 bits: their squares add up to "
                f"2^{math.log2(largest):.1f} with {self.fraction_bits} fraction bits"
            )
        if self.l1**2 < self.l2_squared:
            raise ValueError(f"an L2 norm is at most the L1 norm: l1 = {self.l1}, l2_squared = {self.l2_squared}")
        if self.sequence is None and (self.l1 - 1) ** 2 >= self.size * self.l2_squared:
            raise ValueError(
                f"an L1 norm is at most the L2 norm times the root of the number of counters, rounded up: l1 = "
                f"{self.l1}, l2_squared = {self.l2_squared}, {self.size} counters"
            )
        if self.mechanism.whole and self.l1 > self.l2_squared:
            raise ValueError(
                f"an L1 norm of whole numbers is at most the squared L2 norm: l1 = {self.l1}, "
                f"l2_squared = {self.l2_squared}"
            )

    def _refuse_cohorts_that_do_not_fit(self) -> None:
        if self.cohorts > _MAX_COHORTS:
            raise ValueError(f"there are at most {_MAX_COHORTS} cohorts: got {self.cohorts}")
        smallest = self.population // self.cohorts
        if self.min_contributions > smallest:
            raise ValueError(
                f"a cohort of {smallest} phones cannot have {self.min_contributions} contributions: population = "
                f"{self.population}, cohorts = {self.cohorts}"
            )
        if self.min_contributions - self.liars < 2:
            raise ValueError(
                f"min_contributions must exceed liars by 2, since a phone knows its own noise: "
                f"min_contributions = {self.min_contributions}, liars = {self.liars}"
            )
        if self.enough is not None and not self.min_contributions <= self.enough <= smallest:
            raise ValueError(
                f"enough must lie between min_contributions and the smallest cohort, "
                f"{self.min_contributions} and {smallest}: got {self.enough}"
            )

    def _refuse_noise_that_does_not_fit(self) -> None:
        if self.mechanism.whole and self.fraction_bits:
            raise ValueError(
                f"{self.noise.capitalize()} noise is whole: fraction_bits must be 0, got {self.fraction_bits}"
            )
        self.mechanism.check_share(self.share_variance, self.fraction_bits)


_INTEGERS = {
    "l2_squared": 1,
    "l1": 1,
    "fraction_bits": 0,
    "population": 1,
    "cohorts": 1,
    "min_contributions": 1,
    "liars": 0,
    "closes_after": 1,
}


def _checked_counters(counters: Sequence[Counter]) -> tuple[Counter, ...]:
    checked = []
    for name, low, high in counters:
        _refuse_bad_text("a counter's name", name)
        least, most = (
            _whole(f"the low of {name!r}", low, -MAX_INTEGER),
            _whole(f"the high of {name!r}", high, -MAX_INTEGER),
        )
        if not least <= 0 <= most or least == most:
            raise ValueError(f"a counter's bounds enclose 0 and one more number: {name!r} has {low} and {high}")
        checked.append(Counter(name, least, most))
    if not checked:
        raise ValueError("a query has at least one counter: got none")
    names = [counter.name for counter in checked]
    if len(set(names)) < len(names):
        raise ValueError(f"counters have different names: {max(names, key=names.count)!r} is there twice")
    return tuple(checked)


def _whole(name: str, value: Any, minimum: int) -> int:
    number = checked_integer(name, value, minimum)
    if number > MAX_INTEGER:
        raise ValueError(f"{name} must fit 64 bits: got {number!r:.40}")
    return number


def _refuse_bad_text(name: str, value: Any) -> None:
    try:
        good = isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:
        good = False
    if not good:
        raise ValueError(f"{name} must be text that is not empty: got {value!r}")


def _shortened(values: object) -> str:
    text = repr(values)
    return text if len(text) <= 100 else f"{text[:97]}..."
