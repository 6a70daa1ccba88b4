"""The search in one window: larger and larger programs over its histories.

One program merges histories: it is a relaxation. The prices of its bounds prove an upper bound, and if its solution
happens to keep all bounds, it is the optimum. The other program follows the likely histories one by one and loses all
others: its solution is private. Both remember only the states whose bounds were broken by a solution before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol

import numpy as np

from reticent_client.mask.chain import Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning.certificates import CeilingProof
from reticent_client.mask.planning.histories import Behaviour, CappedStates, Ints, Level, follow, merge
from reticent_client.mask.planning.programs import NOTABLE, Bound, Flows, Program, end_excess, releases_excess
from reticent_client.mask.planning.solutions import Solution, make_private, shares_passed
from reticent_client.mask.planning.windows import Window

SIZE = 600  # histories in the first programs
LARGER = 1.6  # each time that a window is refined, its programs may have so many times as many
FULLER = 1.3  # and so many times as many as that if they are followed, not merged
MOST = 16_000  # histories in the last programs
LIKELY = 0.1  # the probability of the histories that are followed first
FINER = 3.0  # the next histories to be followed are so much less likely
UNLIKELY = 1e-12
ROUNDS = 12  # programs at a time
TRACKING_ROUNDS = 2  # of these, programs that track one more state
SOME = 0.05  # states whose bounds are broken by this part of the worst are remembered, too
MUCH = 0.5  # and by this part, they are tracked
CLOSE = 0.01  # the part of the gap that a large program may leave
SAME = 1e-7  # a difference that does not matter
HOPE = 0.1  # the part of the gap that a refinement may gain even if the last one did not
LITTLE = 100_000  # no refinement is taken for less work
VAIN = 2  # times without anything better, before a side is left alone


class Side(Enum):
    """A side of the search: the solution of a window, or the bound on it."""

    SOLUTION = 0
    BOUND = 1


class Unfold(Protocol):
    """Unfolds the histories of a window: `follow` or `merge`."""

    def __call__(self, least: float, policy: Behaviour | None, limit: float = ...) -> list[Level] | None:
        """The levels, if they have no more histories than the limit."""
        ...


@dataclass
class SideSearch:
    """One side's search: its last program, and what it brought."""

    size: int = field(default_factory=lambda: SIZE)  # histories that the next program may have
    least: float = field(default_factory=lambda: LIKELY)  # those that are at least so likely were followed
    policy: Behaviour | None = None  # of the last solution
    bounds: Sequence[Bound] = ()  # in the last program
    gain: float = np.inf
    work: float = LITTLE
    vain: int = 0  # how often in a row nothing better was found
    seen: Floats | None = None  # the values of later releases then

    def unfold(self, unfold: Unfold, size: int) -> list[Level]:
        """Follow the likely histories, as many as may be."""
        if (levels := unfold(0.0, self.policy, size)) is not None:
            return levels
        while (levels := unfold(self.least, self.policy, size)) is None and self.least < 1:
            self.least *= FINER
        if levels is None:
            levels = unfold(np.inf, self.policy)
            if levels is None:
                raise AssertionError("there is no limit")
            return levels
        while self.least > UNLIKELY and (more := unfold(self.least / FINER, self.policy, size)) is not None:
            levels, self.least = more, self.least / FINER
        return levels

    def learn(self, levels: Sequence[Level], plan: Flows) -> None:
        """Keep what the next program can begin with."""
        self.policy, self.bounds = Behaviour(levels, plan.suppressed), plan.bounds

    def promise(self, gap: float, later: Floats) -> float:
        """About what the next refinement gains for its work."""
        if self.vain >= VAIN and self.seen is not None and np.abs(later - self.seen).max() <= SAME:
            return 0.0
        return min(gap, max(self.gain, HOPE * gap)) / (self.work * LARGER)

    def end(self, gain: float, work: int, later: Floats) -> None:
        """Note what a refinement gained, and its work. The next one may be larger."""
        self.size = min(int(LARGER * self.size), MOST)
        self.gain, self.work, self.seen = gain, max(work, LITTLE), later
        self.vain = 0 if gain > SAME else self.vain + 1


class Refinement:
    """The best solution of a window so far, and the bound on every policy."""

    def __init__(self, window: Window) -> None:
        self.best: Solution | None = None
        self.hoped: Floats | None = None
        """(T, n): the expected releases that the bound is based on."""
        self._capped = CappedStates(window)
        self._proof: CeilingProof | None = None
        self._searches = {side: SideSearch() for side in Side}

    def value(self, worth: Floats) -> float:
        """The worth of the best solution."""
        return -np.inf if self.best is None else self.best.value(worth)

    def bound(self, most: Floats) -> float:
        """The most that the window can be worth."""
        return np.inf if self._proof is None else self._proof.bound(most)

    def promise(self, side: Side, gap: float, worth: Floats, most: Floats) -> float:
        """About by how much a refinement of one side narrows the gap, for its work.

        It is 0 if nothing better was found twice, and later releases are worth the same.
        """
        return self._searches[side].promise(gap, self._later(side, worth, most))

    def refine(self, side: Side, worth: Floats, most: Floats, deadline: Deadline) -> int:
        """Solve larger programs than before for one side; the work that it took."""
        value, bound = self.value(worth), self.bound(most)
        if side is Side.BOUND:
            enough = CLOSE * (bound - value) if np.isfinite(bound - value) else 0.0
            work = self._relax(worth, most, enough, deadline)
            is_better = self.bound(most) < bound
            gain = bound - self.bound(most) if is_better else 0.0
        else:
            work = self._restrict(worth, deadline)
            is_better = self.value(worth) > value
            gain = self.value(worth) - value if is_better else 0.0
        self._searches[side].end(gain, work, self._later(side, worth, most))
        return work

    def _later(self, side: Side, worth: Floats, most: Floats) -> Floats:
        return (most if side is Side.BOUND else worth)[self._capped.window.first :].copy()

    def _relax(self, worth: Floats, most: Floats, enough: float, deadline: Deadline) -> int:
        """Merge histories; the work that it took.

        The states whose bounds a solution breaks are remembered. Then they are tracked in merged histories, too, as
        long as these are not too many.
        """
        search = self._searches[Side.BOUND]
        size, work, tracked = search.size, 0, 0
        for _ in range(ROUNDS):
            levels = search.unfold(partial(merge, self._capped), int(FULLER * size))
            search.size = max(size, sum(len(level.contexts) for level in levels))
            program = Program(self._capped, levels, most)
            plan = program.solve(search.bounds, deadline, enough)
            work += program.work
            if plan is None:
                break
            search.learn(levels, plan)
            self._keep_proof(CeilingProof.of(self._capped, levels, plan.prices), most)
            self.hoped = _released(levels, plan, most.shape)
            broken = self._broken(levels, plan, self._capped.tracked)
            if not broken.any():
                self._keep(make_private(self._capped, levels, plan.kept, plan.given), worth)
                break
            if not self._remember(broken):
                tracked += 1
                if tracked == TRACKING_ROUNDS or not self._track(broken, size):
                    break
        return work

    def _restrict(self, worth: Floats, deadline: Deadline) -> int:
        """Follow likely histories, and lose the others; the work that it took."""
        search = self._searches[Side.SOLUTION]
        work, found = 0, None
        for _ in range(ROUNDS):
            levels = search.unfold(partial(follow, self._capped), search.size)
            program = Program(self._capped, levels, worth)
            plan = program.solve(search.bounds, deadline)
            work += program.work
            if plan is None:
                break
            search.learn(levels, plan)
            found = levels, plan
            if not self._remember(self._broken(levels, plan, self._capped.remembered)):
                break
        if found is not None:
            levels, plan = found
            self._keep(make_private(self._capped, levels, plan.kept, plan.given), worth)
        return work

    def _remember(self, broken: Floats) -> bool:
        """Remember the states whose bounds are broken, where they are not, as many as may be; whether there are any."""
        self._capped.remembered, is_new = self._longer("remembered", broken, SOME, MOST)
        return is_new

    def _track(self, broken: Floats, size: int) -> bool:
        """Track the states whose bounds are broken most, as many as may be; whether there are any."""
        self._capped.tracked, is_new = self._longer("tracked", broken, MUCH, size)
        return is_new

    def _longer(self, name: str, broken: Floats, part: float, limit: int) -> tuple[Ints, bool]:
        """Keep states apart up to the last step at which their bounds are broken; and whether there are any new ones.

        The worst come first, and no more than leave room for all merged histories.
        """
        before: Ints = getattr(self._capped, name)
        totals = broken.sum(axis=0)
        until = len(broken) - 1 - np.argmax(broken[::-1] > 0, axis=0)
        states = np.argsort(-totals, kind="stable")
        states = states[(totals > part * totals.max(initial=0.0))[states] & (until > before)[states]]
        while len(states):
            longer = before.copy()
            longer[states] = until[states]
            setattr(self._capped, name, longer)
            if merge(self._capped, np.inf, None, limit) is not None:
                return longer, True
            states = states[: len(states) // 2]
        return before, False

    def _broken(self, levels: Sequence[Level], plan: Flows, known: Ints) -> Floats:
        """(T + 1, k): the mass by which releases at each step, and the end, break bounds.

        Those of states that are known up to the step do not count.
        """
        count, horizon = len(self._capped), levels[-1].step + 1
        found = np.zeros((horizon + 1, count))
        shares = shares_passed(self._capped, levels, plan.suppressed)
        for level, share, kept, given in zip(levels, shares, plan.kept, plan.given, strict=True):
            over = np.zeros((len(level.numbers), count))
            releases = releases_excess(self._capped, level, share)[:, :count]
            np.add.at(over, level.contexts, (given * level.mass)[:, None] * releases)
            found[level.step] = np.where(over > NOTABLE, over, 0.0).sum(axis=0)
            found[horizon] += (kept * level.mass) @ end_excess(self._capped, level, share)[:, :count]
        is_exact = known >= np.arange(horizon + 1)[:, None]
        return np.where((found > 2 * NOTABLE) & ~is_exact, found, 0.0)

    def _keep(self, solution: Solution | None, worth: Floats) -> None:
        if solution is not None and solution.value(worth) > self.value(worth):
            self.best = solution

    def _keep_proof(self, proof: CeilingProof, most: Floats) -> None:
        if proof.bound(most) < self.bound(most):
            self._proof = proof


def _released(levels: Sequence[Level], plan: Flows, shape: tuple[int, ...]) -> Floats:
    """(T, n): the expected releases of a plan."""
    found = np.zeros(shape)
    for level, given in zip(levels, plan.given, strict=True):
        np.add.at(found[level.step], level.contexts, given * level.mass)
    return found
