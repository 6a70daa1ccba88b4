"""Counting without servers: the mathematics of a query over many phones at once, for notebooks and figures.

What is released has the distribution of what phones and servers would release, with the same thresholds. There is no
encryption and nobody is protected: whoever runs this holds everybody's counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from reticent.privacy import (
    SELF,
    AlreadyDecided,
    CohortSum,
    Contributions,
    Ledger,
    Query,
    QueryBurnt,
    Release,
    SparseRows,
    estimate,
)
from reticent.privacy.mechanisms.mechanism import Integers
from reticent.randomness import is_seeded, seeded

BLOCK = 65_536
"""So many phones are looked at at once, which bounds the memory."""

Cohorts: TypeAlias = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Liars:
    """Phones that say what they like and add no noise.

    Args:
        number: How many, wherever they are dealt.
        says: What each of them adds to every counter, in steps of the grid.
    """

    number: int
    says: int = 0


class LocalCounts:
    """Counts among phones that are rows of an array.

    All phones are taken to have spent the same, which one ledger holds. A query that is burnt before
    anything was decrypted, or whose counters are refused, spends nothing.

    Args:
        rng: Where cohorts, absences and noise come from; a seeded generator unless given.
        absent: How likely each phone is not to contribute.
        liars: Who lies, if anybody.
        ledger: What the phones have spent; they spend without limit unless given.
        each_share: Whether to draw the noise of each phone on its own, as phones do, instead of each cohort's sum in
            one draw, which has the same distribution and is faster.
        trusted: Whether a trusted server counts: all phones contribute, and one noise of exactly the query's variance
            is added to the sum.

    >>> from reticent.privacy import Counter, Query
    >>> query = Query(
    ...     id="gym", counters=[Counter("visits", 0, 2)], epsilon=1.0, delta=1e-6, l2_squared=4, l1=2, noise="skellam",
    ...     population=10_000, cohorts=1, min_contributions=7_000, liars=350, key_id="k1", closes_after=3600,
    ... )
    >>> release = LocalCounts(seeded(7, "gym")).count(query, np.ones((10_000, 1)))
    >>> bool(abs(release.value[0] - 10_000) < 100)
    True
    >>> release.seeded
    True
    """

    def __init__(
        self,
        rng: np.random.Generator | None = None,
        *,
        absent: float = 0.0,
        liars: Liars | None = None,
        ledger: Ledger | None = None,
        each_share: bool = False,
        trusted: bool = False,
    ) -> None:
        if not 0 <= absent <= 1:
            raise ValueError(f"absent is a probability: got {absent!r}")
        if trusted and (absent or each_share or (liars is not None and liars.number)):
            raise ValueError("all phones contribute to a trusted server, without noise: leave out the other options")
        self.absent = absent
        self.liars = liars or Liars(0)
        self.each_share = each_share
        self.trusted = trusted
        self._rng = seeded(0, "reticent_sim.local_counts") if rng is None else rng
        self._ledger = ledger
        self._decided: set[str] = set()
        self._used: dict[str, npt.NDArray[np.int64]] = {}  # of a sequence's bounds, by each phone  # (2, N)
        self._terms: dict[str, tuple[float | str, ...]] = {}  # of a sequence

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        """Compute the release of a query.

        Args:
            query: What is asked.
            counters: A row for each of the query's phones, in one array or in blocks of rows.

        Raises:
            BudgetExceeded: The query costs more than is left.
            QueryBurnt: Too few phones contributed.
            AlreadyDecided: The query was asked before; fresh noise would let whoever asks average.
            ValueError: The counters do not fit the query, or its sequence is about another number of phones or has
                other terms: real phones decline it.
        """
        if counters is None:
            raise ValueError("a simulation counts what it is given: got no counters")
        if query.id in self._decided or self._was_spent(query):
            raise AlreadyDecided(f"{query.id!r} was decided before: a second attempt is another query")
        if self._ledger is not None:
            self._ledger.reserve(query.account, query.cost)
        try:
            cohorts = self._collected(query, counters)
            self._decided.add(query.id)
            release = self._of_trusted_server(query, cohorts) if self.trusted else self._of_phones(query, cohorts)
        except BaseException as error:
            if self._ledger is not None and isinstance(error, QueryBurnt) and error.spent:
                self._ledger.spend(query.account)  # in some cohorts, and all phones are taken to have spent the same
            elif self._ledger is not None and not self._is_paid(query):
                self._ledger.give_back(query.account)
            raise
        if self._ledger is not None:
            self._ledger.spend(query.account)
        return release

    def _of_phones(self, query: Query, cohorts: list[CohortSum]) -> Release:
        return estimate(query, cohorts, seeded=is_seeded(self._rng))

    def _of_trusted_server(self, query: Query, cohorts: list[CohortSum]) -> Release:
        """The release of all contributions with the noise that hides a user, once."""
        exact = np.array([cohort.sums or () for cohort in cohorts]).sum(axis=0)
        scales = np.array([counter.scale for counter in query.counters])
        value = (exact + _noise(query, query.variance, (query.size,), self._rng)) * query.unit / scales
        return Release(
            query=query.id,
            counters=tuple(counter.name for counter in query.counters),
            value=tuple(value.tolist()),
            variance=tuple((query.variance / scales**2).tolist()),
            noise=query.noise,
            contributors=query.population,
            epsilon=query.epsilon,
            delta=query.delta,
            scales=tuple(scales.tolist()),
            seeded=is_seeded(self._rng),
        )

    def _was_spent(self, query: Query) -> bool:
        """Whether another simulation with the same ledger has decided it; of a sequence, a ledger does not tell."""
        return query.sequence is None and self._is_paid(query)

    def _is_paid(self, query: Query) -> bool:
        entries = () if self._ledger is None else self._ledger.entries(subject=SELF)
        return any(entry.query == query.account and entry.state == "spent" for entry in entries)

    def _collected(self, query: Query, counters: Contributions) -> list[CohortSum]:
        """The noisy sum of each cohort, or nothing where too few contributed."""
        cohort = self._dealt(query)  # (N,)
        lying = self._lying(query)
        honest = (self._rng.random(query.population) >= self.absent) & ~lying
        sums = np.zeros((query.cohorts, query.size), dtype=np.int64)
        before = self._used_before(query)
        now = before.copy() if query.sequence is not None else None
        for first, block in _blocks(query, counters):
            here = slice(first, first + len(block))
            used = (before[0, here], before[1, here])
            fitted = block.fit(query, used) if isinstance(block, SparseRows) else query.fit(block, used=used)
            if now is not None:
                now[:, here] += _norms(fitted)
            if isinstance(fitted, SparseRows):
                group = np.where(honest[here], cohort[here].astype(np.intp), -1)
                sums += fitted.sums(group, query.cohorts, query.size)
            else:
                sums += _added(query, fitted[honest[here]], cohort[here][honest[here]])
            if self.each_share:
                shares = _noise(query, query.share_variance, (int(honest[here].sum()), query.size), self._rng)
                sums += _added(query, shares, cohort[here][honest[here]])
        sizes = np.bincount(cohort[honest], minlength=query.cohorts)
        if not self.each_share and not self.trusted:
            sums += self._noise_of_cohorts(query, sizes)
        liars = np.bincount(cohort[lying], minlength=query.cohorts)
        if now is not None:
            released = honest & (sizes + liars >= query.min_contributions)[cohort]
            self._used[query.account] = np.where(released, now, before)
            if released.any():
                self._terms[query.account] = query.terms
        return [
            self._cohort_sum(query, own.tolist(), honest_ones, lying_ones)
            for own, honest_ones, lying_ones in zip(sums, sizes.tolist(), liars.tolist(), strict=True)
        ]

    def _used_before(self, query: Query) -> npt.NDArray[np.int64]:
        """The contributions of the phones to the other queries of its sequence: both norms.  # (2, N)."""
        nothing = np.broadcast_to(np.int64(0), (2, query.population))
        used = self._used.get(query.account, nothing) if query.sequence is not None else nothing
        if used.shape != nothing.shape:
            raise ValueError(f"{query.account!r} is about {used.shape[1]} phones: {query.id!r} has {query.population}")
        terms = self._terms.get(query.account, query.terms)
        if query.sequence is not None and terms != query.terms:
            raise ValueError(f"all of {query.account!r} have the terms {terms}: {query.id!r} has {query.terms}")
        return used

    def _cohort_sum(self, query: Query, sums: list[int], honest: int, lying: int) -> CohortSum:
        if honest + lying < query.min_contributions:
            return CohortSum(honest + lying, None)
        return CohortSum(honest + lying, tuple(own + lying * self.liars.says for own in sums))

    def _noise_of_cohorts(self, query: Query, sizes: npt.NDArray[np.intp]) -> Integers:
        """The sum of the shares of so many phones, for each cohort: what they add up to is of the same kind."""
        noise = [_noise(query, size * query.share_variance, (query.size,), self._rng) for size in sizes.tolist()]
        return np.array(noise)

    def _dealt(self, query: Query) -> Cohorts:
        """The cohort of each phone, by a shuffle; their sizes differ by at most one."""
        cohort = np.arange(query.population, dtype=np.uint32) % np.uint32(query.cohorts)
        self._rng.shuffle(cohort)
        return cohort

    def _lying(self, query: Query) -> npt.NDArray[np.bool_]:
        if not 0 <= self.liars.number <= query.population:
            raise ValueError(f"among {query.population} phones {self.liars.number} cannot lie")
        lying = np.zeros(query.population, dtype=np.bool_)
        lying[self._rng.choice(query.population, self.liars.number, replace=False)] = True
        return lying


def _norms(fitted: Integers | SparseRows) -> tuple[Integers, Integers]:
    """The L1 norm and the squared L2 norm of each row."""
    if isinstance(fitted, SparseRows):
        return fitted.norms()
    return np.abs(fitted).sum(axis=1), np.square(fitted).sum(axis=1)


def _blocks(query: Query, counters: Contributions) -> Iterator[tuple[int, npt.NDArray[np.generic] | SparseRows]]:
    """Rows of phones, with the number of the first, in blocks that fit the memory; all phones of the query, once."""
    first = 0
    for given in [counters] if isinstance(counters, np.ndarray) else counters:
        if not isinstance(given, SparseRows) and given.ndim != 2:
            raise ValueError(f"counters have a row for each phone: got an array of shape {given.shape}")
        for block in [given] if isinstance(given, SparseRows) else np.split(given, range(BLOCK, len(given), BLOCK)):
            if first + len(block) <= query.population:
                yield first, block
            first += len(block)
    if first != query.population:
        raise ValueError(f"{query.id!r} is about {query.population} phones: got counters of {first}")


def _noise(query: Query, variance: float, size: tuple[int, ...], rng: np.random.Generator) -> Integers:
    """Shares of this variance, in steps of the grid."""
    return query.mechanism.sum_of_shares(variance, size, rng, query.fraction_bits)


def _added(query: Query, rows: Integers, cohort: Cohorts) -> Integers:
    """Rows, added up by cohort.  # (G, d)."""
    sums = np.zeros((query.cohorts, query.size), dtype=np.int64)
    if query.cohorts == 1:
        sums[0] = rows.sum(axis=0)
    elif len(rows):
        order = np.argsort(cohort, kind="stable")
        present, starts = np.unique(cohort[order], return_index=True)
        sums[present] = np.add.reduceat(rows[order], starts, axis=0)
    return sums
