"""The histories of a window: where the user is, and which capped states they have passed since the window began.

There are far too many of them in a day. But few are likely under any one policy: these can be followed one by one, and
all others lost, after which everything is suppressed. Or histories are merged: of most states it matters little whether
they were passed, if the number of those passed is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from reticent_client.mask.chain import Bools, Floats
from reticent_client.mask.planning.windows import Window

Ints = npt.NDArray[np.int64]

NEGLIGIBLE = 1e-200
"""A history of less mass is lost, or suppressed. Far above `TINY`, so that what others lead to can be computed."""
EXPLORED = 0.05
"""The share of every history that a policy near another one may suppress, for all that is known."""

Behaviour = dict[int, tuple[Ints, Floats]]
"""A policy: at each step the histories that it knows, as sorted codes, and the shares that it suppresses."""


class CappedStates:
    """The capped states that can be passed in a window, in order of time."""

    def __init__(self, window: Window) -> None:
        chain = window.problem.chain
        (adversary,) = window.problem.adversaries
        self.window = window
        self._adversary = adversary
        self.opening = window.opening(chain)
        possible = np.zeros((chain.horizon, chain.size), dtype=np.bool_)
        possible[window.first] = self.opening > 0
        for step in range(window.first + 1, chain.horizon):
            possible[step] = (chain.transitions[step - 1][possible[step - 1]] > 0).any(axis=0)
        self.steps, self.contexts = np.nonzero(adversary.capped & possible)
        self.caps = adversary.cap[self.steps, self.contexts]
        self._can_be_passed = possible[adversary.capped]  # of all capped states, in order of time
        self.numbers = np.full((chain.horizon, chain.size), -1)
        """(T, n): the number of each capped state."""
        self.numbers[self.steps, self.contexts] = np.arange(len(self.steps))
        self.groups = np.unique(self.contexts) if len(self.contexts) else np.array([-1])
        """The contexts of capped states; those that were passed are counted for each."""
        self.tracked = np.full(len(self.steps), -1)
        """(k,): the step up to which merged histories remember each state; -1 for not at all."""
        self._keys: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.steps)

    def ahead(self, step: int) -> Floats:
        """(n, k): from each context at a step, the probability of passing each capped state later."""
        rows, _ = self._adversary.ahead[step]
        found = np.zeros((len(rows), len(self)))
        found[:, self.steps > step] = rows[:, self._can_be_passed[-rows.shape[1] :]] if rows.size else 0.0
        return found

    def at(self, step: int) -> Floats:
        """(n, k): whether each context at this step is each capped state."""
        return np.asarray(self.numbers[step][:, None] == np.arange(len(self)), dtype=np.float64)

    def allowed(self, step: int) -> Floats:
        """(groups,): how many states of each group a release at this step may have passed on average."""
        earlier = self.steps < step
        return np.array([self.caps[earlier & (self.contexts == group)].sum() for group in self.groups])

    def key_with(self, key: int, state: int) -> int:
        """The identity of a set of states with one more; 0 is the empty set."""
        return self._keys.setdefault((key, state), len(self._keys) + 1)


@dataclass
class Level:
    """The histories at one step. Each has a context and one of the sets of states passed before the step."""

    step: int
    contexts: Ints  # (m,)
    sets: Ints  # (m,): of each history, as a row of the next four
    keys: Ints  # (h,): the identity of each set; below 0, and of this level only, if it is merged
    passed: Bools  # (h, k): the capped states that were certainly passed
    counts: Ints  # (h, groups): how many states were passed at least
    are_merged: Bools  # (h,)
    mass: Floats  # (m,): what arrives if everything is suppressed
    kernel: csr_array | None  # (m before, m): the moves that lead here; None at the first step
    lost: Floats  # (m, n): the probability of moving on to histories that are not followed
    numbers: Ints  # (n,): of the capped states of this step
    onward: Ints  # (m,): what each history remembers after the step, before any merging; 0 at the last step

    @cached_property
    def known(self) -> Bools:
        """(m, k): the states that each history has certainly passed before the step."""
        return np.asarray(self.passed[self.sets])

    @cached_property
    def counted(self) -> Ints:
        """(m, groups): how many it has passed."""
        return np.asarray(self.counts[self.sets])

    @cached_property
    def known_after(self) -> Bools:
        """(m, k): the states that each history has certainly passed after the step."""
        number = self.numbers[self.contexts]
        found = self.known.copy()
        here = np.flatnonzero(number >= 0)
        found[here, number[here]] = True
        return found

    def counted_after(self, groups: Ints) -> Ints:
        """(m, groups): how many it has passed after the step."""
        here = self.numbers[self.contexts] >= 0
        return np.asarray(self.counted + (here[:, None] & (self.contexts[:, None] == groups)))

    @property
    def codes(self) -> Ints:
        """(m,): a number for each history, by which policies know it."""
        return np.asarray(self.keys[self.sets] * self.lost.shape[1] + self.contexts)


def behaviour(levels: Sequence[Level], suppressed: Sequence[Floats]) -> Behaviour:
    """The policy that suppresses these shares of each level's histories."""
    found: Behaviour = {}
    for level, share in zip(levels, suppressed, strict=True):
        order = np.argsort(level.codes)
        found[level.step] = level.codes[order], np.asarray(share, dtype=np.float64)[order]
    return found


def follow(capped: CappedStates, least: float, policy: Behaviour) -> list[Level]:
    """The histories of a window that a policy, or one near it, reaches with at least this probability.

    The policy suppresses what it does not know. All others are lost.
    """
    return _unfold(capped, least, policy, merge=False, count=False)


def merge(capped: CappedStates, least: float, *, count: bool) -> list[Level]:
    """The histories of a window, merged where they agree in the tracked states and, maybe, in the number of states.

    Those that are at least this likely, if everything is suppressed, are followed one by one.
    """
    return _unfold(capped, least, {}, merge=True, count=count)


def _unfold(capped: CappedStates, least: float, policy: Behaviour, *, merge: bool, count: bool) -> list[Level]:
    chain = capped.window.problem.chain
    n, groups = chain.size, capped.groups
    contexts = np.flatnonzero(capped.opening > 0)
    mass = capped.opening[contexts]
    reach = mass
    levels = [
        Level(
            capped.window.first,
            contexts,
            np.zeros(len(contexts), dtype=np.int64),
            np.zeros(1, dtype=np.int64),
            np.zeros((1, len(capped)), dtype=np.bool_),
            np.zeros((1, len(groups)), dtype=np.int64),
            np.zeros(1, dtype=np.bool_),
            mass,
            None,
            np.zeros((len(contexts), n)),
            capped.numbers[capped.window.first],
            np.zeros(len(contexts), dtype=np.int64),
        )
    ]
    for step in range(capped.window.first + 1, chain.horizon):
        before = levels[-1]
        reach = reach * np.maximum(_suppressed(policy, before), EXPLORED)
        sets = _Sets.after(before, capped)
        before.onward = sets.of_node
        source, context = np.nonzero(chain.transitions[step - 1][before.contexts])
        chance = chain.transitions[step - 1][before.contexts[source], context]
        codes, child = np.unique(sets.of_node[source] * n + context, return_inverse=True)
        child = child.ravel()
        owner = codes // n
        mass = _sums(child, before.mass[source] * chance, len(codes))
        reach = _sums(child, reach[source] * chance, len(codes))
        kept = (mass >= NEGLIGIBLE) & (reach >= least) & ~sets.are_merged[owner]
        if merge:
            sets, into = sets.merged(owner[~kept], capped.tracked >= step, count=count)
            codes, moved = np.unique(np.where(kept, codes, into[owner] * n + codes % n), return_inverse=True)
            child = moved.ravel()[child]
            mass = _sums(child, before.mass[source] * chance, len(codes))
            reach = _sums(moved.ravel(), reach, len(codes))
            kept = mass >= NEGLIGIBLE
        follows = kept[child]
        before.lost[source[~follows], context[~follows]] = chance[~follows]
        place = np.cumsum(kept) - 1
        entries = (chance[follows], (source[follows], place[child[follows]]))
        kernel = csr_array(coo_array(entries, shape=(len(before.contexts), int(kept.sum()))))
        used, which = np.unique(codes[kept] // n, return_inverse=True)
        levels.append(
            Level(
                step,
                codes[kept] % n,
                which.ravel(),
                sets.keys[used],
                sets.passed[used],
                sets.counts[used],
                sets.are_merged[used],
                mass[kept],
                kernel,
                np.zeros((int(kept.sum()), n)),
                capped.numbers[step],
                np.zeros(int(kept.sum()), dtype=np.int64),
            )
        )
        reach = reach[kept]
    return levels


def _sums(places: Ints, values: Floats, size: int) -> Floats:
    return np.asarray(np.bincount(places, values, size), dtype=np.float64)


def _suppressed(policy: Behaviour, level: Level) -> Floats:
    """(m,): the shares of a level's histories that a policy suppresses."""
    known, shares = policy.get(level.step, (np.zeros(0, dtype=np.int64), np.zeros(0)))
    if not len(known):
        return np.ones(len(level.contexts))
    place = np.minimum(np.searchsorted(known, level.codes), len(known) - 1)
    return np.where(known[place] == level.codes, shares[place], 1.0)


@dataclass
class _Sets:
    """The sets of states passed after a level."""

    keys: Ints
    passed: Bools
    counts: Ints
    of_node: Ints  # (m,): of each history of the level
    are_merged: Bools

    @classmethod
    def after(cls, level: Level, capped: CappedStates) -> _Sets:
        n = len(level.numbers)
        number = level.numbers[level.contexts]
        pairs = level.sets * (n + 1) + np.where(number >= 0, level.contexts + 1, 0)
        unique, first, of_node = np.unique(pairs, return_index=True, return_inverse=True)
        old, new = level.sets[first], number[first]
        keys = level.keys[old].copy()
        for place in np.flatnonzero((unique % (n + 1) > 0) & ~level.are_merged[old]):
            keys[place] = capped.key_with(int(keys[place]), int(new[place]))
        counts = level.counted_after(capped.groups)[first]
        return cls(keys, level.known_after[first], counts, of_node.ravel(), level.are_merged[old])

    def merged(self, members: Ints, tracked: Bools, *, count: bool) -> tuple[_Sets, Ints]:
        """These sets, and those of some members merged where they agree in the tracked states; and where each went.

        A merged set has what all of its members have, and the least number of states.
        """
        members = np.unique(members)
        alike = self.passed[members] & tracked
        if count:
            alike = np.concatenate([self.counts[members], alike], axis=1)
        unique, group = np.unique(alike, axis=0, return_inverse=True)
        group = group.ravel()
        passed = np.ones((len(unique), self.passed.shape[1]), dtype=np.bool_)
        np.logical_and.at(passed, group, self.passed[members])
        counts = np.full((len(unique), self.counts.shape[1]), self.passed.shape[1])
        np.minimum.at(counts, group, self.counts[members])
        into = np.full(len(self.keys), -1)
        into[members] = len(self.keys) + group
        found = _Sets(
            np.concatenate([self.keys, -1 - np.arange(len(unique))]),
            np.concatenate([self.passed, passed]),
            np.concatenate([self.counts, counts]),
            self.of_node,
            np.concatenate([self.are_merged, np.ones(len(unique), dtype=np.bool_)]),
        )
        return found, into
