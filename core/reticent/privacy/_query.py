"""A query: the counters, the noise, the cohorts, and the end of collecting.

A query is one canonical string of bytes. The key server countersigns its digest. Every party computes everything else
(the variance, a phone's share of it, the cost) from these bytes alone. In addition to "Count" of section 5.4 of Götz's
dissertation, a query states the fewest contributions that may be decrypted, apart from the number of liars among them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from reticent.arguments import checked_positive
from reticent.privacy._canonical import (
    INTEGER_BYTES,
    CanonicalReader,
    check_text,
    encodable_integer,
    integer,
    real,
    text,
)
from reticent.privacy._cost import Cost, Noise
from reticent.privacy._counter import Counter, checked_counters
from reticent.privacy._fitting import NOTHING, Integers, Norms, within
from reticent.privacy.mechanisms import Mechanism, NoiseKind, mechanism_of
from reticent.privacy.mechanisms.mechanism import share_variance

FORMAT = b"reticent.query.1\n"
"""The beginning of the canonical bytes of every query."""

COST_RANGES = {"epsilon": (1e-6, 100.0), "delta": (1e-100, 0.5)}
"""The accepted ranges; beyond them a promise means nothing, or cannot be computed."""

_DIGEST = b"reticent.query.digest.1\n"  # separates these digests from any other use of the same hash
_SEQUENCE = "sequence "  # how the account of a sequence begins, and that of no single query
_SUMS = 2**62  # sums of one phone's squares stay below this, so that they are exact in 64 bits
MAX_FRACTION_BITS = 52
"""The most fraction bits: those of a float."""

_MAX_COHORTS = 100_000  # every reader of a query computes the size of each


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query to many phones. Each phone contributes at most once.

    The phones are dealt into cohorts whose sizes differ by at most one. Each cohort has its own sum with its own noise,
    and is decrypted on its own. Neighbours add or remove one user.

    Args:
        id: The name of the query; a second attempt is another query.
        counters: The counters with their bounds.
        epsilon: The cost to a participating user, together with delta.
        delta: See epsilon.
        l2_squared: A bound on the squared L2 norm of one user's whole vector, scaled.
        l1: A bound on its L1 norm.
        noise: The mechanism: "skellam" for whole numbers, "gaussian" for fixed-point numbers.
        fraction_bits: Numbers are multiples of 2^-fraction_bits; 0 for whole numbers.
        population: The number of enrolled phones.
        cohorts: The number of cohorts; at most 100,000.
        min_contributions: The fewest contributions with which a cohort may be decrypted.
        liars: The most liars or colluders among them.
        key_id: The key under which contributions are encrypted.
        closes_after: The duration of collecting, in seconds.
        enough: Collecting ends earlier if each cohort has this many contributions; by default, all.
        sequence: The name of a sequence of queries, if this is one of them. A user's contributions to all of them
            together are within `l2_squared` and `l1`, and cost epsilon and delta once. So all of them have the same
            bounds, cost and noise. Each may depend on the releases before it.

    Raises:
        ValueError: Two fields contradict each other, or one is out of its range.

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
        check_text("id", self.id)
        if self.id.startswith(_SEQUENCE):
            raise ValueError(f"ids that begin with {_SEQUENCE!r} are those of sequences in ledgers: got {self.id!r}")
        check_text("key_id", self.key_id)
        object.__setattr__(self, "counters", checked_counters(self.counters))
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, checked_positive(name, getattr(self, name)))
        for name, least in _INTEGERS.items():
            object.__setattr__(self, name, encodable_integer(name, getattr(self, name), least))
        if self.enough is not None:
            object.__setattr__(self, "enough", encodable_integer("enough", self.enough, 1))
        if self.sequence is not None:
            check_text("sequence", self.sequence)
        for name, (low, high) in COST_RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} must lie in [{low:g}, {high:g}]: got {getattr(self, name)!r}")
        self._refuse_bounds_that_do_not_fit()
        self._refuse_cohorts_that_do_not_fit()
        self._refuse_noise_that_does_not_fit()

    @property
    def size(self) -> int:
        """The number of counters."""
        return len(self.counters)

    @property
    def unit(self) -> float:
        """The size of one step of the grid."""
        return 2.0**-self.fraction_bits

    @property
    def l2(self) -> float:
        """The bound on the L2 norm of one user's whole vector."""
        return math.sqrt(self.l2_squared)

    @property
    def cohort_populations(self) -> tuple[int, ...]:
        """The number of phones in each cohort."""
        size, larger = divmod(self.population, self.cohorts)
        return (size + 1,) * larger + (size,) * (self.cohorts - larger)

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of the noise."""
        return mechanism_of(self.noise)

    @cached_property
    def variance(self) -> float:
        """The variance of the noise that hides a user, in each counter of each cohort."""
        if self.sequence is not None:
            return self.mechanism.sequence_variance(self.epsilon, self.delta, self.l2, self.l1)
        return self.mechanism.variance(self.epsilon, self.delta, self.l2, self.l1, self.fraction_bits)

    @property
    def share_variance(self) -> float:
        """The variance of each phone's noise. Without one curious phone, the fewest honest ones reach `variance`."""
        return share_variance(self.variance, self.min_contributions, self.liars)

    @property
    def account(self) -> str:
        """The account of the cost in a ledger: the name of the query, or of its sequence."""
        return self.id if self.sequence is None else f"{_SEQUENCE}{self.sequence}"

    @property
    def terms(self) -> tuple[float | str, ...]:
        """The fields that all queries of a sequence share; each phone adds up its use of the bounds."""
        return (
            *(self.epsilon, self.delta, self.l2_squared, self.l1),
            *(self.noise, self.fraction_bits, self.variance),
        )

    @cached_property
    def cost(self) -> Cost:
        """The cost to a participating user, who is in one cohort only; in a sequence, once for all queries."""
        return Cost(self.epsilon, self.delta, Noise(self.noise, self.variance, self.l2, float(self.l1)))

    def to_bytes(self) -> bytes:
        """The one string of bytes that stands for this query, and for no other.

        `FORMAT`, then the fields in the order in which `Query` lists them, encoded as `reticent.privacy._canonical`
        says. `counters` is their number as an integer, then name, low and high of each. A missing `enough` is 0, a
        missing `sequence` is empty. The scale of each counter follows as an integer, if one is not 1.
        """
        parts = [FORMAT, text(self.id), integer(self.size)]
        for counter in self.counters:
            parts += [text(counter.name), integer(counter.low), integer(counter.high)]
        parts += [real(self.epsilon), real(self.delta), integer(self.l2_squared), integer(self.l1)]
        parts += [text(self.noise), integer(self.fraction_bits)]
        parts += [integer(number) for number in (self.population, self.cohorts, self.min_contributions, self.liars)]
        parts += [text(self.key_id), integer(self.closes_after), integer(self.enough or 0), text(self.sequence or "")]
        if any(counter.scale != 1 for counter in self.counters):
            parts += [integer(counter.scale) for counter in self.counters]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, content: bytes) -> Query:
        """The query that `to_bytes` wrote.

        Raises:
            ValueError: These are not the canonical bytes of a query.
        """
        reader = CanonicalReader(content, FORMAT)
        fields: dict[str, Any] = {
            "id": reader.text(),
            "counters": [Counter(reader.text(), reader.integer(), reader.integer()) for _ in range(reader.count())],
            "epsilon": reader.real(),
            "delta": reader.real(),
            "l2_squared": reader.integer(),
            "l1": reader.integer(),
            "noise": cast("NoiseKind", reader.text()),
            "fraction_bits": reader.integer(),
            "population": reader.integer(),
            "cohorts": reader.integer(),
            "min_contributions": reader.integer(),
            "liars": reader.integer(),
            "key_id": reader.text(),
            "closes_after": reader.integer(),
            "enough": reader.integer() or None,
            "sequence": reader.text() or None,
        }
        if reader.left >= INTEGER_BYTES * len(fields["counters"]):
            fields["counters"] = [counter._replace(scale=reader.integer()) for counter in fields["counters"]]
        query = cls(**fields)
        if query.to_bytes() != content:
            if not reader.left:
                raise ValueError("the bytes of a query whose scales are all 1 end before the scales")
            raise ValueError(f"a query ends at byte {reader.position}: {reader.left} are too many")
        return query

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes, 32 bytes. The key server countersigns it."""
        return self.digest_of(self.to_bytes())

    @staticmethod
    def digest_of(content: bytes) -> bytes:
        """The digest of canonical bytes, valid or not."""
        return hashlib.sha256(_DIGEST + content).digest()

    def share(self, rng: np.random.Generator) -> Integers:
        """Run by the phone. Its share of the noise for each counter, in steps of the grid.

        Args:
            rng: `reticent.randomness.secure()` on a phone.
        """
        return self.mechanism.share(self.share_variance, self.size, rng, self.fraction_bits)

    def fit(self, values: npt.ArrayLike, *, used: Norms | tuple[Integers, Integers] = NOTHING) -> Integers:
        """Run by the phone. Its counters as a contribution within all bounds, in steps of the grid.

        Each value is clipped to its counter's bounds, multiplied by its scale, and rounded to the nearest step. A
        rounded vector that exceeds the L2 or the L1 bound is scaled down until it does not. Such values are rounded to
        whole steps again: up while the bounds allow, the largest remainder first, equal remainders in the order of the
        counters.

        Args:
            values: A number for each counter; or many phones' at once, as rows.
            used: The norms of the contributions to other queries of the sequence; for many phones, as arrays.

        Returns:
            As many integers, within all bounds.

        Raises:
            ValueError: A value is not a finite number, or the number of values is not that of the counters.
        """
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" or array.ndim == 0 or array.shape[-1] != self.size:
            raise ValueError(f"{self.id!r} takes {self.size} numbers from each phone: got {_shortened(values)}")
        steps = self.steps(array, np.arange(self.size)).reshape(-1, self.size)
        return within(steps, self.norms, used).reshape(array.shape)

    def steps(self, values: npt.NDArray[Any], places: npt.NDArray[np.intp]) -> Integers:
        """Values of the counters at these places, clipped to their bounds, scaled, and rounded to steps of the grid.

        Raises:
            ValueError: A value is not a finite number.
        """
        reals = values.astype(np.float64)
        if not np.isfinite(reals).all():
            raise ValueError(f"{self.id!r} takes finite numbers: got {_shortened(values)}")
        low, high, scale = (each[places] for each in self._bounds_and_scales)
        return np.asarray(np.rint(np.clip(reals, low, high) * scale / self.unit), dtype=np.int64)

    @property
    def norms(self) -> Norms:
        """The bounds on the norms of a contribution, in steps of the grid; no vector exceeds 64 bits."""
        return Norms(min(self.l1 << self.fraction_bits, _SUMS), min(self.l2_squared << 2 * self.fraction_bits, _SUMS))

    @cached_property
    def _bounds_and_scales(self) -> npt.NDArray[np.float64]:
        return np.array([counter[1:] for counter in self.counters], dtype=np.float64).T  # (3, d)

    def _refuse_bounds_that_do_not_fit(self) -> None:
        if self.fraction_bits > MAX_FRACTION_BITS:
            raise ValueError(f"fraction_bits must be at most {MAX_FRACTION_BITS}: got {self.fraction_bits}")
        largest = sum(counter.most**2 for counter in self.counters) << 2 * self.fraction_bits
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


def _shortened(values: object) -> str:
    text = repr(values)
    return text if len(text) <= 100 else f"{text[:97]}..."
