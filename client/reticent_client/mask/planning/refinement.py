"""The search in one window: larger and larger programs over its histories.

One program merges histories: it is a relaxation. The prices of its bounds prove an upper bound, and if its solution
happens to keep all bounds, it is the optimum. Otherwise the states whose bounds it breaks most are tracked in the next
one. The other program follows the likely histories one by one and loses all others: its solution is private.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reticent_client.mask.chain import Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning.certificates import CeilingProof
from reticent_client.mask.planning.histories import Behaviour, CappedStates, Level, behaviour, follow, merge
from reticent_client.mask.planning.programs import NOTABLE, Bound, Flows, Program, end_excess, releases_excess
from reticent_client.mask.planning.solutions import Solution, make_private, shares_passed
from reticent_client.mask.planning.windows import Window

UNCOUNTED = 1_500  # histories that are merged without a count, at most
SIZE = 600  # histories in the first programs
LARGER = 1.6  # each time that a window is refined, its programs may have so many times as many
MOST = 10_000  # histories in a program, at most
FOLLOWED = 0.01  # histories that are at least this likely are not merged where all others are counted
LIKELY = 0.03  # the least probability of the histories that are followed first
FINER = 3.0  # the next histories to be followed are so much less likely
UNLIKELY = 1e-12
COUNTED_ROUNDS = 3
ROUNDS = 12  # programs with merged histories at a time
MUCH = 0.5  # states whose bounds are broken by this part of the worst are tracked, too
SAME = 1e-7  # a difference that does not matter
VAIN = 2  # times without anything better, before a window is left alone


class Refinement:
    """The best solution of a window so far, and the bound on every policy."""

    def __init__(self, window: Window) -> None:
        self.best: Solution | None = None
        self.hoped: Floats | None = None
        """(T, n): the expected releases that the bound is based on."""
        self._capped = CappedStates(window)
        self._certificate: CeilingProof | None = None
        self._times = 0
        self._vain = 0  # how often in a row nothing better was found
        self._seen: Floats | None = None  # the values of later releases then
        self._counts = False
        self._least = LIKELY * FINER
        self._policy: Behaviour = {}
        self._known: tuple[Sequence[Bound], Sequence[Bound]] = ((), ())  # the bounds in the last programs

    def value(self, worth: Floats) -> float:
        """The worth of the best solution."""
        return -np.inf if self.best is None else self.best.value(worth)

    def bound(self, most: Floats) -> float:
        """The most that the window can be worth."""
        return np.inf if self._certificate is None else self._certificate.bound(most)

    def refine(self, worth: Floats, most: Floats, deadline: Deadline) -> int:
        """Solve larger programs than before; the work that it took.

        A window at which nothing better was found twice is left alone, until later releases are worth something else.
        """
        later = np.concatenate([worth[self._capped.window.first :], most[self._capped.window.first :]])
        if self._seen is None or np.abs(later - self._seen).max() > SAME:
            self._vain = 0
        if self._vain >= VAIN:
            return 0
        before = self.value(worth), self.bound(most)
        size = min(int(SIZE * LARGER**self._times), MOST)
        work = self._relax(size, worth, most, deadline)
        self._times += 1
        if self.bound(worth) - self.value(worth) > SAME:
            work += self._restrict(size, worth, deadline)
        is_better = self.value(worth) > before[0] + SAME or self.bound(most) < before[1] - SAME
        self._vain, self._seen = 0 if is_better else self._vain + 1, later
        return work

    @property
    def is_stuck(self) -> bool:
        """Whether nothing better was found the last times."""
        return self._vain >= VAIN

    def _relax(self, size: int, worth: Floats, most: Floats, deadline: Deadline) -> int:
        """Merge histories, and track more and more states until their number is too large."""
        work = 0
        solved = self._capped.tracked.copy()  # what the last program tracked
        for number in range(ROUNDS if not self._counts else COUNTED_ROUNDS):
            levels = merge(self._capped, FOLLOWED if self._counts else np.inf, count=self._counts)
            if not self._counts and (_count(levels) > UNCOUNTED or number + 1 == ROUNDS):
                self._counts = True
                self._capped.tracked[:] = solved[:] = -1
                levels = merge(self._capped, FOLLOWED, count=True)
            elif self._counts and number and _count(levels) > size:
                self._capped.tracked = solved
                break
            solved = self._capped.tracked.copy()
            plan = Program(self._capped, levels, most).solve(self._known[0], deadline)
            if plan is None:
                break
            work += plan.work
            self._known = plan.bounds, self._known[1]
            self._keep_proof(CeilingProof(self._capped, levels, plan.prices), most)
            self.hoped = _released(levels, plan, most.shape)
            broken = self._broken(levels, plan)
            if not broken.any():
                self._keep(make_private(self._capped, levels, plan.kept, plan.given), worth)
                break
            totals = broken.sum(axis=0)
            for state in np.flatnonzero((totals > 0) & (totals >= (MUCH if self._counts else 0.0) * totals.max())):
                until = int(np.flatnonzero(broken[:, state])[-1])
                self._capped.tracked[state] = max(until, self._capped.tracked[state])
        return work

    def _broken(self, levels: Sequence[Level], plan: Flows) -> Floats:
        """(T + 1, k): the mass by which releases at each step, and the end, break the bounds of states not tracked."""
        count, horizon = len(self._capped), levels[-1].step + 1
        found = np.zeros((horizon + 1, count))
        shares = shares_passed(self._capped, levels, plan.suppressed)
        for level, share, kept, given in zip(levels, shares, plan.kept, plan.given, strict=True):
            over = np.zeros((len(level.numbers), count))
            releases = releases_excess(self._capped, level, share)[:, :count]
            np.add.at(over, level.contexts, (given * level.mass)[:, None] * releases)
            found[level.step] = np.where(over > NOTABLE, over, 0.0).sum(axis=0)
            found[horizon] += (kept * level.mass) @ end_excess(self._capped, level, share)[:, :count]
        is_tracked = self._capped.tracked >= np.arange(horizon + 1)[:, None]
        return np.where((found > 2 * NOTABLE) & ~is_tracked, found, 0.0)

    def _restrict(self, size: int, worth: Floats, deadline: Deadline) -> int:
        """Follow likely histories, and lose the others."""
        levels: list[Level] = []
        while self._least > UNLIKELY:
            more = follow(self._capped, self._least / FINER, self._policy)
            if levels and _count(more) > size:
                break
            self._least /= FINER
            levels = more
            if _count(levels) > size:
                break
        if not levels:
            levels = follow(self._capped, self._least, self._policy)
        plan = Program(self._capped, levels, worth).solve(self._known[1], deadline)
        if plan is None:
            return 0
        self._known = self._known[0], plan.bounds
        self._policy = behaviour(levels, plan.suppressed)
        self._keep(make_private(self._capped, levels, plan.kept, plan.given), worth)
        return plan.work

    def _keep(self, solution: Solution | None, worth: Floats) -> None:
        if solution is not None and solution.value(worth) > self.value(worth):
            self.best = solution

    def _keep_proof(self, proof: CeilingProof, most: Floats) -> None:
        if proof.bound(most) < self.bound(most):
            self._certificate = proof


def _count(levels: Sequence[Level]) -> int:
    return sum(len(level.contexts) for level in levels)


def _released(levels: Sequence[Level], plan: Flows, shape: tuple[int, ...]) -> Floats:
    """(T, n): the expected releases of a plan."""
    found = np.zeros(shape)
    for level, given in zip(levels, plan.given, strict=True):
        np.add.at(found[level.step], level.contexts, given * level.mass)
    return found
