"""The memories and releases of a policy on an average day that follows the chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from reticent_client.mask.chain import UNKNOWN, Floats
from reticent_client.mask.policy import START, Memory, Policy

Release = tuple[int, int]
"""The step and context of a release; (START, 0) for the start of the day."""

DAY_START: Release = (START, 0)

NEGLIGIBLE = 1e-12
"""The average leaves out what is less likely than this."""


@dataclass
class Occupancy:
    """The distribution before a step: masses (n,) of the contexts for each memory and last release."""

    masses: dict[tuple[Release, Memory], Floats] = field(default_factory=dict)

    def add(self, key: tuple[Release, Memory], index: int, mass: float, size: int) -> None:
        """Add mass to a context."""
        if mass > 0:
            self.masses.setdefault(key, np.zeros(size))[index] += mass

    def after_move(self, transition: Floats) -> Occupancy:
        """The distribution after one transition of the user, without negligible masses."""
        return Occupancy({k: row @ transition for k, row in self.masses.items() if row.sum() > NEGLIGIBLE})

    def since(self, release: Release) -> Occupancy:
        """The part with this last release, normalised."""
        found = {key: row for key, row in self.masses.items() if key[0] == release}
        total = sum(float(row.sum()) for row in found.values())
        return Occupancy({key: row / total for key, row in found.items()})

    def likeliest(self) -> tuple[Release, float]:
        """The most likely last release, and its probability."""
        totals: dict[Release, float] = {}
        for (last, _), row in self.masses.items():
            totals[last] = totals.get(last, 0.0) + float(row.sum())
        best = max(totals, key=lambda last: totals[last])
        return best, totals[best]


def occupancies(policy: Policy, *, by_release: bool) -> Iterator[tuple[Occupancy, Floats]]:
    """For each step the occupancy before it, and the masses (n,) that are released at it.

    Without `by_release` all last releases count as the start of the day, which saves time.
    """
    here = Occupancy({(DAY_START, policy.begin()): policy.chain.initial})
    for t in range(policy.horizon):
        after, released = _after_decision(policy, t, here, by_release=by_release)
        yield here, released
        if t + 1 < policy.horizon:
            here = after.after_move(policy.chain.transitions[t])


def after_release(policy: Policy, release: Release, step: int) -> dict[Memory, Floats]:
    """The masses by memory before a step if everything since a release was suppressed; empty if that cannot happen."""
    t1, index = release
    chain = policy.chain
    if release == DAY_START:
        here, first = Occupancy({(release, policy.begin()): chain.initial}), 0
    else:
        memory = policy.advance(t1, policy.begin(), index, True)
        here, first = Occupancy({(release, memory): chain.transitions[t1][index]}), t1 + 1
    for t in range(first, step):
        after, _ = _after_decision(policy, t, here, by_release=True)
        here = after.since(release).after_move(chain.transitions[t])
    return {memory: row for (_, memory), row in here.since(release).masses.items()}


def release_probabilities(policy: Policy) -> Floats:
    """(T, n): the probability that each state occurs and is released."""
    return np.array([released for _, released in occupancies(policy, by_release=False)])


@dataclass(frozen=True, eq=False)
class AverageDay:
    """The expected steps with each context on a day that follows the chain, and how many of them are released."""

    expected: Floats  # (n,)
    released: Floats  # (n,)
    gap: int | None
    """The index of "unknown", which is no context."""

    @classmethod
    def of(cls, policy: Policy) -> AverageDay:
        """The average day under a policy."""
        chain = policy.chain
        return cls(chain.prior.sum(axis=0), release_probabilities(policy).sum(axis=0), chain.find(UNKNOWN))

    @property
    def contexts(self) -> float:
        """The expected number of contexts."""
        return self._without_gaps(self.expected)

    @property
    def released_contexts(self) -> float:
        """The expected number of released contexts."""
        return self._without_gaps(self.released)

    def _without_gaps(self, numbers: Floats) -> float:
        return float((numbers if self.gap is None else np.delete(numbers, self.gap)).sum())


def _after_decision(policy: Policy, t: int, here: Occupancy, *, by_release: bool) -> tuple[Occupancy, Floats]:
    """The occupancy after the decision at a step, and the released masses."""
    n = policy.chain.size
    after, released = Occupancy(), np.zeros(n)
    for (last, memory), row in here.masses.items():
        suppressed = policy.suppression(t, memory)
        out = row * (1 - suppressed)
        released += out
        for i in map(int, np.flatnonzero(row)):
            stays = policy.advance(t, memory, i, False)
            after.add((last, stays), i, float(row[i] * suppressed[i]), n)
            if out[i] > 0:
                new = (t, i) if by_release else DAY_START
                after.add((new, policy.advance(t, memory, i, True)), i, float(out[i]), n)
    return after, released
