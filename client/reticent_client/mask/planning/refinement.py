"""The search in one window: prices of the bounds that prove a ceiling, and a policy that follows from prices.

Histories remember only the states whose bounds were broken by a solution before: to drop the other bounds is a
relaxation. Over these histories, prices prove an upper bound, and their policy says which histories matter. If some are
merged, prices are found once more for those that matter alone, with all others lost. The policy is made private. A
linear program over the few most likely histories finds the last part, and its own prices prove a bound, too.

The best prices and solutions of a small window come from one linear program over all of its histories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Protocol

import numpy as np

from reticent_client.mask.chain import Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning.certificates import CeilingProof
from reticent_client.mask.planning.histories import Behaviour, CappedStates, Level, follow, merge
from reticent_client.mask.planning.prices import EXACT, SmoothCeiling
from reticent_client.mask.planning.programs import NOTABLE, Bound, Program, end_excess, releases_excess
from reticent_client.mask.planning.solutions import Solution, arriving, make_private, shares_passed
from reticent_client.mask.planning.windows import Window
from reticent_client.mask.policy import START

LIKELY = 1e-3  # the probability of the histories that are followed first
CLOSE = 2.0  # the factor to which the least probability of the histories that leave room is found
UNLIKELY = 1e-12
ROUNDS = 12  # times that more states are remembered
SOME = 0.05  # states whose bounds are broken by this part of the worst are remembered, too
SAME = 1e-7  # a difference that does not matter
LOSS = 1.0  # of the gap: no program follows histories that leave out more
HOPE = 0.1  # the part of the gap that a refinement may gain even if the last one did not
LITTLE = 100_000  # no refinement is taken for less work
VAIN = 2  # times without anything better, before a window is left alone

TOLERANCE = 5e-4  # the part of a window's ceiling that the first search may leave, if the window begins each day
SELDOM = 0.01  # windows that begin less often are not searched less
FINER = 3.0  # each time that a window is refined, so many times less may be left
GUIDE = 0.1  # and of the policy that says which histories matter: softer ones lead to more
ROOM = 1.5  # for silence, times the mass by which the last policy broke its bounds


@dataclass(frozen=True)
class Extent:
    """The numbers of histories that a search may have."""

    priced: int  # for which prices are found
    followed: int  # by a solution
    solved: int  # in a linear program

    def towards(self, other: Extent, part: float) -> Extent:
        """Part of the way to another extent."""
        return Extent(
            *(int(mine + part * (its - mine)) for mine, its in zip(astuple(self), astuple(other), strict=True))
        )

    def larger(self) -> Extent:
        """The extent of the next search."""
        return Extent(*(min(int(LARGER * mine), most) for mine, most in zip(astuple(self), astuple(LAST), strict=True)))


RARE, DAILY, LAST = Extent(2_000, 3_000, 1_000), Extent(50_000, 30_000, 3_000), Extent(100_000, 50_000, 8_000)
"""First searches in a window that hardly ever begins, and in one of each day, and the last searches."""
LARGER = 2.0


class Unfold(Protocol):
    """Unfolds the histories of a window: `follow` or `merge`."""

    def __call__(
        self, capped: CappedStates, least: float, policy: Behaviour | None, limit: float = ...
    ) -> list[Level] | None:
        """The levels, if they have no more histories than the limit."""
        ...


class Refinement:
    """The best solution of a window so far, and the bound on every policy."""

    def __init__(self, window: Window) -> None:
        self.best: Solution | None = None
        self.hoped: Floats | None = None
        """(T, n): the expected releases that the bound is based on."""
        self.work = LITTLE
        """The work of the last refinement."""
        self._capped = CappedStates(window)
        self._proof: CeilingProof | None = None
        self._prices: dict[Bound, float] = {}  # the last ones
        self._policy: Behaviour | None = None  # that they lead to
        self._least: dict[Unfold, float] = {}  # the probability of the histories that were followed last
        self._tolerance = TOLERANCE
        self._extent = DAILY
        self._gain = np.inf
        self._vain = 0  # how often in a row nothing better was found
        self._seen: Floats | None = None  # the values of later releases then

    @property
    def remembered(self) -> int:
        """The number of states that histories remember."""
        return int((self._capped.remembered >= 0).sum())

    def value(self, worth: Floats) -> float:
        """The worth of the best solution."""
        return -np.inf if self.best is None else self.best.value(worth)

    def bound(self, most: Floats) -> float:
        """The most that the window can be worth."""
        return np.inf if self._proof is None else self._proof.bound(most)

    def promise(self, gap: float, worth: Floats, most: Floats) -> float:
        """About by how much a refinement narrows the gap, for its work.

        It is 0 if nothing better was found twice, and later releases are worth the same.
        """
        is_same = self._seen is not None and np.abs(self._later(worth, most) - self._seen).max() <= SAME
        if self._vain >= VAIN and is_same:
            return 0.0
        return min(gap, max(self._gain, HOPE * gap)) / self.work

    def begin(self, often: float, like: Refinement | None) -> None:
        """Choose how far to search at first, if nothing was done in this window yet.

        Args:
            often: How often the window can begin in a day, at most. Rare ones are searched less.
            like: A search in another window, to begin with what was found there.
        """
        if self._seen is not None:
            return
        self._extent = RARE.towards(DAILY, often)
        self._tolerance = TOLERANCE / max(often, SELDOM)
        if self._capped.window.start == START:  # only one, and all of the day passes through it
            self._tolerance /= FINER
        if like is not None:
            self._begin_like(like)

    def _begin_like(self, other: Refinement) -> None:
        mine, its = self._capped, other._capped
        numbers = mine.numbers[its.steps, its.contexts]
        mine.remembered[numbers[numbers >= 0]] = its.remembered[numbers >= 0]
        self._least = dict(other._least)
        self._prices = {
            (step, context, int(numbers[number])): price
            for (step, context, number), price in other._prices.items()
            if number < len(its) and numbers[number] >= 0
        }

    def refine(self, worth: Floats, most: Floats, deadline: Deadline) -> int:
        """Find better prices and solutions, over more histories than before; the work that it took."""
        before = self.bound(most) - self.value(worth)
        work = 0
        for left in reversed(range(ROUNDS)):
            levels = self._unfold(merge, self._extent.priced)
            is_small = sum(len(level.contexts) for level in levels) <= self._extent.solved
            is_small &= not any(level.are_merged.any() for level in levels)
            search = self._solve_all if is_small else self._solve_likely
            more, is_done = search(levels, worth, most, deadline, may_remember=left > 0)
            work += more
            if is_done or deadline.passed():
                break
        after = self.bound(most) - self.value(worth)
        self._gain = before - after if np.isfinite(after) else 0.0
        self._vain = 0 if self._gain > SAME else self._vain + 1
        self.work, self._seen = max(work, LITTLE), self._later(worth, most)
        self._tolerance /= FINER
        self._extent = self._extent.larger()
        return work

    def _later(self, worth: Floats, most: Floats) -> Floats:
        first = self._capped.window.first
        return np.stack([worth[first:], most[first:]])

    def _solve_all(
        self, levels: list[Level], worth: Floats, most: Floats, deadline: Deadline, *, may_remember: bool
    ) -> tuple[int, bool]:
        """Solve a program over all histories; the work that it took, and whether nothing has to be remembered besides.

        It is solved for the most that later releases can be worth, and if need be for what they are.
        """
        program = Program(self._capped, levels, most)
        plan = program.solve(self._prices, deadline)
        work = program.work
        if plan is None:
            return work, True
        self._learn(levels, plan.prices, plan.suppressed, most)
        if may_remember and self._remember(self._broken(levels, plan.suppressed)):
            return work, False
        self._keep(levels, plan.suppressed, worth)
        if np.abs(most - worth)[self._capped.window.first :].max() > SAME:
            program = Program(self._capped, levels, worth)
            plan = program.solve(plan.prices, deadline)
            work += program.work
            if plan is not None:
                self._keep(levels, plan.suppressed, worth)
        return work, True

    def _solve_likely(
        self, levels: list[Level], worth: Floats, most: Floats, deadline: Deadline, *, may_remember: bool
    ) -> tuple[int, bool]:
        """Find prices, and a solution over the histories that matter; the work, and whether this is all."""
        ceiling = SmoothCeiling(self._capped, levels, most)
        prices = ceiling.lower(self._prices, deadline)
        suppressed = ceiling.policy(prices, GUIDE)
        self._learn(levels, prices, suppressed, most)
        if may_remember and self._remember(self._broken(levels, suppressed)):
            return ceiling.work, False
        found = ceiling.approach(prices, self._tolerance, deadline)
        self._learn(levels, found.prices, ceiling.policy(found.prices, GUIDE), most)
        likely, own, work = levels, ceiling, 0
        if any(level.are_merged.any() for level in levels):
            likely, work = self._unfold(follow, self._extent.followed), ceiling.work
            own = SmoothCeiling(self._capped, likely, worth)
            found = own.approach(found.prices, self._tolerance, deadline)
        value, excess = self._keep(likely, found.suppressed, worth)
        if found.value - value > self._tolerance * found.value:
            own.leave_room(ROOM * excess)
            found = own.approach(found.prices, self._tolerance, deadline, found.suppressed)
            self._keep(likely, found.suppressed, worth)
        work += own.work
        if may_remember and self._remember(self._broken(likely, found.suppressed)):
            return work, False
        self._policy = Behaviour(likely, own.policy(found.prices, GUIDE))
        if self._seen is not None:
            work += self._polish(levels, found.prices, worth, most, deadline)
        return work, True

    def _polish(
        self, levels: list[Level], prices: dict[Bound, float], worth: Floats, most: Floats, deadline: Deadline
    ) -> int:
        """Solve a program over the few most likely histories, if all others matter little; its work."""
        few = self._unfold(follow, self._extent.solved)
        suppressed = SmoothCeiling(self._capped, few, worth).policy(prices, EXACT)
        value = float((_released(few, suppressed, worth.shape) * worth).sum())
        gap = self.bound(most) - self.value(worth)
        if self.value(worth) - value > LOSS * gap:
            return 0
        program = Program(self._capped, few, worth)
        plan = program.solve(prices, deadline)
        if plan is not None:
            self._keep_proof(CeilingProof.of(self._capped, levels, plan.prices), most)
            self._keep(few, plan.suppressed, worth)
        return program.work

    def _learn(
        self, levels: Sequence[Level], prices: dict[Bound, float], suppressed: Sequence[Floats], most: Floats
    ) -> None:
        """Keep prices and their policy for the next search, and the bound that they prove if it is better."""
        self._prices, self._policy = prices, Behaviour(levels, suppressed)
        proof = CeilingProof.of(self._capped, levels, prices)
        if proof.bound(most) <= self.bound(most) + SAME:  # also if the same bound now rests on other releases
            self.hoped = _released(levels, suppressed, most.shape)
        self._keep_proof(proof, most)

    def _keep_proof(self, proof: CeilingProof, most: Floats) -> None:
        if proof.bound(most) < self.bound(most):
            self._proof = proof

    def _keep(self, levels: list[Level], suppressed: Sequence[Floats], worth: Floats) -> tuple[float, Floats]:
        """Make a solution private, and keep it if it is better; its value, and how much silence broke each bound."""
        solution, excess = make_private(self._capped, levels, suppressed)
        value = 0.0 if solution is None else solution.value(worth)
        if solution is not None and value > self.value(worth):
            self.best = solution
        return value, excess

    def _unfold(self, unfold: Unfold, size: int) -> list[Level]:
        """The histories that the last policy reaches, those that are most likely, as many as may be."""

        def found(least: float) -> list[Level] | None:
            return unfold(self._capped, least, self._policy, size)

        if (levels := found(0.0)) is not None:
            return levels
        enough, too_many = np.inf, 0.0  # the probabilities of histories that leave room, and that do not
        least, factor = self._least.get(unfold, LIKELY), CLOSE
        while enough > CLOSE * too_many:
            more = found(least)
            if more is None:
                too_many = least
            else:
                levels, enough = more, least
            if too_many >= 1 or enough <= UNLIKELY:
                break
            if too_many == 0:
                least = max(enough / factor, UNLIKELY)
            elif enough == np.inf:
                least = min(too_many * factor, 1.0)
            else:
                least = math.sqrt(enough * too_many)
            factor *= factor
        self._least[unfold] = min(enough, 1.0)
        if levels is None:  # there is no room for any
            levels = unfold(self._capped, np.inf, self._policy)
        if levels is None:
            raise AssertionError("there is no limit")
        return levels

    def _remember(self, broken: Floats) -> bool:
        """Remember the states whose bounds are broken up to the last step at which they are; whether there are any.

        The worst come first, and no more than leave room for all merged histories.
        """
        before = self._capped.remembered
        totals = broken.sum(axis=0)
        until = len(broken) - 1 - np.argmax(broken[::-1] > 0, axis=0)
        states = np.argsort(-totals, kind="stable")
        states = states[(totals > SOME * totals.max(initial=0.0))[states] & (until > before)[states]]
        while len(states):
            longer = before.copy()
            longer[states] = until[states]
            self._capped.remembered = longer
            if merge(self._capped, np.inf, None, self._extent.priced) is not None:
                return True
            states = states[: len(states) // 2]
        self._capped.remembered = before
        return False

    def _broken(self, levels: Sequence[Level], suppressed: Sequence[Floats]) -> Floats:
        """(T + 1, k): the mass by which releases at each step, and the end, break bounds.

        Those of states that are remembered up to the step do not count.
        """
        count, horizon = len(self._capped), levels[-1].step + 1
        found = np.zeros((horizon + 1, count))
        shares = shares_passed(self._capped, levels, suppressed)
        for level, share, mass, fraction in zip(levels, shares, arriving(levels, suppressed), suppressed, strict=True):
            over = np.zeros((len(level.numbers), count))
            releases = releases_excess(self._capped, level, share)[:, :count]
            np.add.at(over, level.contexts, (mass * (1 - fraction))[:, None] * releases)
            found[level.step] = np.where(over > NOTABLE, over, 0.0).sum(axis=0)
            found[horizon] += (mass * fraction) @ end_excess(self._capped, level, share)[:, :count]
        is_exact = self._capped.remembered >= np.arange(horizon + 1)[:, None]
        return np.where((found > 2 * NOTABLE) & ~is_exact, found, 0.0)


def _released(levels: Sequence[Level], suppressed: Sequence[Floats], shape: tuple[int, ...]) -> Floats:
    """(T, n): the expected releases of a policy."""
    found = np.zeros(shape)
    for level, mass, fraction in zip(levels, arriving(levels, suppressed), suppressed, strict=True):
        np.add.at(found[level.step], level.contexts, mass * (1 - fraction))
    return found
