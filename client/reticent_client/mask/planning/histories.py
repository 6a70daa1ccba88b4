"""The histories of a window: where the user is, and which capped states they have passed since the window began.

There are far too many of them in a day. But few are likely under any one policy: these can be followed one by one, and
all others lost, after which everything is suppressed. Or histories are merged: of most states it matters little whether
they were passed, if the number of those passed is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from reticent_client.mask.chain import Bools, Floats
from reticent_client.mask.planning.windows import Window

Ints = npt.NDArray[np.int64]

NEGLIGIBLE = 1e-200
"""A history of less mass is lost, or suppressed. Far above `TINY`, so that what others lead to can be computed."""
EXPLORED = 0.05
"""The share of every history that a policy near another one may suppress, for all that is known."""


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
        self.remembered = np.full(len(self.steps), -1)
        """(k,): the step up to which histories remember each state; -1 for not at all."""

    def __len__(self) -> int:
        return len(self.steps)

    def of_step(self, step: int) -> tuple[Ints, Ints, Floats, Floats]:
        """The numbers of a step's capped states, those of the remembered ones, and what is allowed there and after."""
        numbers = self.numbers[step]
        marks = np.full(len(numbers), -1)
        marked = np.flatnonzero(numbers >= 0)
        marks[marked] = np.where(self.remembered[numbers[marked]] >= 0, numbers[marked], -1)
        return numbers, marks, self.allowed(step), self.allowed(step + 1)

    def ahead(self, step: int) -> Floats:
        """(n, k): from each context at a step, the probability of passing each capped state later."""
        rows, _ = self._adversary.ahead[step]
        found = np.zeros((len(rows), len(self)))
        found[:, self.steps > step] = rows[:, self._can_be_passed[-rows.shape[1] :]] if rows.size else 0.0
        return found

    @cached_property
    def room(self) -> Floats:
        """(k,): the mass by which silence to the end of the day keeps each bound."""
        first = self.window.first
        return np.maximum(self.caps - self.opening @ (self.at(first) + self.ahead(first)), 0.0)

    def at(self, step: int) -> Floats:
        """(n, k): whether each context at this step is each capped state."""
        return np.asarray(self.numbers[step][:, None] == np.arange(len(self)), dtype=np.float64)

    def allowed(self, step: int) -> Floats:
        """(groups,): how many remembered states of each group a release at this step may have passed on average."""
        earlier = (self.steps < step) & (self.remembered >= 0)
        return np.array([self.caps[earlier & (self.contexts == group)].sum() for group in self.groups])


@dataclass(frozen=True)
class Moves:
    """The moves from the histories of one step to those of the next, sorted by source."""

    source: Ints
    target: Ints
    chance: Floats
    shape: tuple[int, int]

    def forward(self, masses: Floats) -> Floats:
        """(m,): what arrives of these masses (m before,)."""
        return _sums(self.target, masses[self.source] * self.chance, self.shape[1])

    def back(self, values: Floats) -> Floats:
        """(m before,): what to expect of these values (m,)."""
        return _sums(self.source, self.chance * values[self.target], self.shape[0])

    @cached_property
    def matrix(self) -> csr_array:
        """(m before, m): the probabilities."""
        ends = np.concatenate([[0], np.cumsum(np.bincount(self.source, minlength=self.shape[0]))])
        return csr_array((self.chance, self.target, ends), shape=self.shape)


@dataclass
class Level:
    """The histories at one step. Each has a context and one of the sets of states passed before the step."""

    step: int
    contexts: Ints  # (m,)
    sets: Ints  # (m,): of each history, as a row of the next three
    passed: Bools  # (h, k): the capped states that were certainly passed
    counts: Ints  # (h, groups): how many states were passed at least
    are_merged: Bools  # (h,)
    mass: Floats  # (m,): what arrives if everything is suppressed
    moves: Moves | None  # that lead here; None at the first step
    lost: Floats  # (m, n): the probability of moving on to histories that are not followed
    numbers: Ints  # (n,): of the capped states of this step
    marks: Ints  # (n,): of those that are remembered
    allowed: Floats  # (groups,): how many states a release at this step may have passed on average
    allowed_after: Floats  # and one at the next step
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
        here = self.marks[self.contexts] >= 0
        return np.asarray(self.counted + (here[:, None] & (self.contexts[:, None] == groups)))


class Behaviour:
    """A policy over some levels, for any history: also for one that they merge, and 1 for one that they lose.

    Args:
        levels: Its histories.
        suppressed: Per level (m,): the shares of each that it suppresses.
    """

    def __init__(self, levels: Sequence[Level], suppressed: Sequence[Floats]) -> None:
        self._levels = levels
        self._suppressed = suppressed
        self._moves: list[tuple[Ints, Ints]] = []  # per level: sorted pairs of memory and context, and where they lead
        for before, level in pairwise(levels):
            moves = level.moves
            if moves is None:
                raise AssertionError("only to the first level nothing leads")
            pairs = before.onward[moves.source] * before.lost.shape[1] + level.contexts[moves.target]
            unique, first = np.unique(pairs, return_index=True)
            self._moves.append((unique, moves.target[first]))

    def share(self, depth: int, nodes: Ints) -> Floats:
        """The shares suppressed of these histories of a level; 1 for an unknown one, which is -1."""
        found = np.ones(len(nodes))
        found[nodes >= 0] = self._suppressed[depth][nodes[nodes >= 0]]
        return found

    def onward(self, depth: int, nodes: Ints, contexts: Ints) -> Ints:
        """The histories of the next level that these lead to, if they go on to these contexts; -1 for none."""
        level, (known, leads) = self._levels[depth], self._moves[depth]
        found = np.full(len(nodes), -1)
        if len(known):
            here = np.flatnonzero(nodes >= 0)
            pairs = level.onward[nodes[here]] * level.lost.shape[1] + contexts[here]
            place = np.minimum(np.searchsorted(known, pairs), len(known) - 1)
            found[here] = np.where(known[place] == pairs, leads[place], -1)
        return found


def follow(capped: CappedStates, least: float, policy: Behaviour | None, limit: float = np.inf) -> list[Level] | None:
    """The histories of a window that a policy, or one near it, reaches with at least this probability.

    No policy stands for one that suppresses everything. All other histories are lost. None if there are more of them
    than the limit.
    """
    return _unfold(capped, least, policy, limit, merge=False)


def merge(capped: CappedStates, least: float, policy: Behaviour | None, limit: float = np.inf) -> list[Level] | None:
    """The histories of a window, merged where they agree in the number of states.

    Those that the policy, or one near it, reaches with at least this probability are followed one by one. None if there
    are more of them than the limit.
    """
    return _unfold(capped, least, policy, limit, merge=True)


def _unfold(
    capped: CappedStates, least: float, policy: Behaviour | None, limit: float, *, merge: bool
) -> list[Level] | None:
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
            np.zeros((1, len(capped)), dtype=np.bool_),
            np.zeros((1, len(groups)), dtype=np.int64),
            np.zeros(1, dtype=np.bool_),
            mass,
            None,
            np.zeros((len(contexts), n)),
            *capped.of_step(capped.window.first),
            np.zeros(len(contexts), dtype=np.int64),
        )
    ]
    total = len(contexts)
    place = np.arange(len(contexts))  # of each history among those of the policy
    for depth, step in enumerate(range(capped.window.first + 1, chain.horizon)):
        before = levels[-1]
        if policy is not None:
            reach = reach * np.maximum(policy.share(depth, place), EXPLORED)
        sets = _Sets.after(before, capped).forgetting(capped.remembered >= step)
        before.onward = sets.of_node
        source, context = np.nonzero(chain.transitions[step - 1][before.contexts])
        chance = chain.transitions[step - 1][before.contexts[source], context]
        codes, child = np.unique(sets.of_node[source] * n + context, return_inverse=True)
        child = child.ravel()
        owner = codes // n
        mass = _sums(child, before.mass[source] * chance, len(codes))
        arrives = reach[source] * chance
        if policy is not None:
            place = _of_largest(child, arrives, policy.onward(depth, place[source], context), len(codes))
        reach = _sums(child, arrives, len(codes))
        kept = (mass >= NEGLIGIBLE) & (reach >= least) & ~sets.are_merged[owner]
        if merge:
            sets, into = sets.merged(owner[~kept])
            codes, moved = np.unique(np.where(kept, codes, into[owner] * n + codes % n), return_inverse=True)
            moved = moved.ravel()
            child = moved[child]
            mass = _sums(child, before.mass[source] * chance, len(codes))
            if policy is not None:
                place = _of_largest(moved, reach, place, len(codes))
            reach = _sums(moved, reach, len(codes))
            kept = mass >= NEGLIGIBLE
        follows = kept[child]
        before.lost[source[~follows], context[~follows]] = chance[~follows]
        number = np.cumsum(kept) - 1
        shape = len(before.contexts), int(kept.sum())
        moves = Moves(source[follows], number[child[follows]], chance[follows], shape)
        used, which = np.unique(codes[kept] // n, return_inverse=True)
        levels.append(
            Level(
                step,
                codes[kept] % n,
                which.ravel(),
                sets.passed[used],
                sets.counts[used],
                sets.are_merged[used],
                mass[kept],
                moves,
                np.zeros((int(kept.sum()), n)),
                *capped.of_step(step),
                np.zeros(int(kept.sum()), dtype=np.int64),
            )
        )
        total += int(kept.sum())
        if total > limit:
            return None
        reach = reach[kept]
        if policy is not None:
            place = place[kept]
    return levels


def _sums(places: Ints, values: Floats, size: int) -> Floats:
    return np.asarray(np.bincount(places, values, size), dtype=np.float64)


def _of_largest(places: Ints, sizes: Floats, values: Ints, size: int) -> Ints:
    """For each place, the value of its largest entry."""
    order = np.argsort(sizes, kind="stable")
    found = np.full(size, -1)
    found[places[order]] = values[order]
    return found


@dataclass
class _Sets:
    """The sets of states passed after a level."""

    passed: Bools
    counts: Ints
    of_node: Ints  # (m,): of each history of the level
    are_merged: Bools

    @classmethod
    def after(cls, level: Level, capped: CappedStates) -> _Sets:
        n = len(level.marks)
        marks = level.marks[level.contexts]
        pairs = level.sets * (n + 1) + np.where(marks >= 0, level.contexts + 1, 0)
        _, first, of_node = np.unique(pairs, return_index=True, return_inverse=True)
        sets = level.sets[first]
        passed, new = level.passed[sets], np.flatnonzero(marks[first] >= 0)
        passed[new, marks[first][new]] = True
        return cls(passed, level.counted_after(capped.groups)[first], of_node.ravel(), level.are_merged[sets])

    def forgetting(self, remembered: Bools) -> _Sets:
        """These sets without the states that are remembered no longer; merged ones stay as they are."""
        if not (self.passed & ~remembered).any():
            return self
        own = np.where(self.are_merged, np.cumsum(self.are_merged), 0)
        _, first, group = np.unique(
            np.concatenate([own[:, None], self.passed & remembered], axis=1),
            axis=0,
            return_index=True,
            return_inverse=True,
        )
        group = group.ravel()
        counts = np.full((len(first), self.counts.shape[1]), self.passed.shape[1])
        np.minimum.at(counts, group, self.counts)
        passed = np.where(self.are_merged[first, None], self.passed[first], self.passed[first] & remembered)
        return _Sets(passed, counts, group[self.of_node], self.are_merged[first])

    def merged(self, members: Ints) -> tuple[_Sets, Ints]:
        """These sets, and those of some members merged where they have as many states; and where each went.

        A merged set has what all of its members have, and the least number of states.
        """
        members = np.unique(members)
        unique, group = np.unique(self.counts[members], axis=0, return_inverse=True)
        group = group.ravel()
        passed = np.ones((len(unique), self.passed.shape[1]), dtype=np.bool_)
        np.logical_and.at(passed, group, self.passed[members])
        counts = np.full((len(unique), self.counts.shape[1]), self.passed.shape[1])
        np.minimum.at(counts, group, self.counts[members])
        into = np.full(len(self.passed), -1)
        into[members] = len(self.passed) + group
        found = _Sets(
            np.concatenate([self.passed, passed]),
            np.concatenate([self.counts, counts]),
            self.of_node,
            np.concatenate([self.are_merged, np.ones(len(unique), dtype=np.bool_)]),
        )
        return found, into
