"""What a policy does on an average day of a user who follows the chain: where it stands, and what it releases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from reticent_client.mask.chain import Floats
from reticent_client.mask.policy import START, Memory, Policy

Release = tuple[int, int]
"""The step and context of a release; (START, 0) for the start of the day."""

BEGINNING: Release = (START, 0)

FORGOTTEN = 1e-12
"""What is less likely than this on an average day is left out of the average."""


@dataclass
class Standing:
    """Where a policy may stand before a step: masses (n,) of the contexts for each memory and last release."""

    masses: dict[tuple[Release, Memory], Floats] = field(default_factory=dict)

    def add(self, key: tuple[Release, Memory], index: int, mass: float, size: int) -> None:
        """Put mass on a context."""
        if mass > 0:
            self.masses.setdefault(key, np.zeros(size))[index] += mass

    def moved(self, transition: Floats) -> Standing:
        """The same, one step of the user's later; without what hardly ever happens."""
        return Standing({k: row @ transition for k, row in self.masses.items() if row.sum() > FORGOTTEN})

    def since(self, release: Release) -> Standing:
        """Those whose last release was this one, as shares of them all."""
        found = {key: row for key, row in self.masses.items() if key[0] == release}
        total = sum(float(row.sum()) for row in found.values())
        return Standing({key: row / total for key, row in found.items()})

    def likeliest(self) -> tuple[Release, float]:
        """The most likely last release, and its probability."""
        totals: dict[Release, float] = {}
        for (last, _), row in self.masses.items():
            totals[last] = totals.get(last, 0.0) + float(row.sum())
        best = max(totals, key=lambda last: totals[last])
        return best, totals[best]


def standings(policy: Policy, *, by_release: bool) -> Iterator[tuple[Standing, Floats]]:
    """For each step where the policy stands before it, and the masses (n,) that are released at it.

    Without `by_release` all last releases count as the start: that is less to follow.
    """
    here = Standing({(BEGINNING, policy.begin()): policy.chain.initial})
    for t in range(policy.horizon):
        after, released = _decided(policy, t, here, by_release=by_release)
        yield here, released
        if t + 1 < policy.horizon:
            here = after.moved(policy.chain.transitions[t])


def after_release(policy: Policy, release: Release, step: int) -> dict[Memory, Floats]:
    """Where the policy may stand before a step if everything since a release was suppressed; empty if it never is."""
    t1, index = release
    chain = policy.chain
    if release == BEGINNING:
        here, first = Standing({(release, policy.begin()): chain.initial}), 0
    else:
        memory = policy.advance(t1, policy.begin(), index, True)
        here, first = Standing({(release, memory): chain.transitions[t1][index]}), t1 + 1
    for t in range(first, step):
        after, _ = _decided(policy, t, here, by_release=True)
        here = after.since(release).moved(chain.transitions[t])
    return {memory: row for (_, memory), row in here.since(release).masses.items()}


def releases(policy: Policy) -> Floats:
    """(T, n): the probability that each state occurs and is released."""
    return np.array([released for _, released in standings(policy, by_release=False)])


def _decided(policy: Policy, t: int, here: Standing, *, by_release: bool) -> tuple[Standing, Floats]:
    """After the decision at a step, and what it released."""
    n = policy.chain.size
    after, released = Standing(), np.zeros(n)
    for (last, memory), row in here.masses.items():
        suppressed = policy.suppression(t, memory)
        out = row * (1 - suppressed)
        released += out
        for i in map(int, np.flatnonzero(row)):
            stays = policy.advance(t, memory, i, False)
            after.add((last, stays), i, float(row[i] * suppressed[i]), n)
            if out[i] > 0:
                new = (t, i) if by_release else BEGINNING
                after.add((new, policy.advance(t, memory, i, True)), i, float(out[i]), n)
    return after, released
