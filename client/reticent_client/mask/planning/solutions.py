"""A window's solution: what it suppresses of each history that it follows, made private and evaluated exactly.

A solver's flows are right to some 1e-9 of mass; where little is released, a belief can be far off. So beliefs are
followed exactly, step by step, and what a release carries too much is suppressed. Whatever solver found a solution, it
counts as private only if the exact evaluation against all bounds says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from reticent_client.mask.chain import Floats
from reticent_client.mask.planning.automata import Nodes
from reticent_client.mask.planning.histories import NEGLIGIBLE, CappedStates, Ints, Level
from reticent_client.mask.policy import SILENT
from reticent_client.mask.problem import SEARCH, TINY, VERDICT

SNAP = 1e-9  # a fraction this close to 0 or 1 is the solver's way of saying 0 or 1
LEAST = 1e-6  # a release of less than this part of a history would rest on rounding
ROUNDS = 20  # how often the releases of a context may be changed before they are given up
SPARE = 1e-10  # by so much more than is needed
IMPOSSIBLE = 1e-12  # a residual this small is the solver's way of saying that there is no solution
CLEAR = 1e-270  # an output of less mass cannot be judged
FAINT = 1e-12  # a share of a step's mass that says little about what passed where
SILENCES = (0.0, 1e-9, 1e-7, 1e-5, 1e-3)  # shares given up besides those that the end of the day needs
ENOUGH = 1.01  # times as many as it needs, as releases are scaled down, too


@dataclass
class Solution:
    """The suppressed shares of each level's histories. What it does not follow, it suppresses to the end of the day."""

    levels: list[Level]
    suppressed: list[Floats]  # per level (m,)
    released: Floats  # (T, n): the expected releases
    excess: Floats  # (k,): the mass by which silence to the end of the day breaks each bound, if it is positive
    private: bool  # whether all bounds are kept

    def value(self, worth: Floats) -> float:
        """The worth of its releases."""
        return float((self.released * worth).sum())

    def nodes(self) -> Nodes:
        """A node for each thing to remember before each step, where anything may still be released."""
        steps = [self._step(depth) for depth in range(len(self.levels))]
        is_silent = np.ones(1, dtype=np.bool_)  # whether nothing is released after each memory
        leads: list[Ints] = []  # per level (memories, n)
        for rows, after in reversed(steps):
            goes_on = (after >= 0) & (rows > 0)
            goes_on[goes_on] = ~is_silent[after[goes_on]]
            leads.append(np.where(goes_on, after, SILENT))
            is_silent = (rows == 1).all(axis=1) & ~goes_on.any(axis=1)
        if is_silent[0]:
            return [], []
        found: list[Floats] = []
        onward: list[list[int]] = []
        memories = np.zeros(1, dtype=np.int64)  # those that can come about
        for (rows, _), lead in zip(steps, reversed(leads), strict=True):
            found += list(rows[memories])
            here = lead[memories]
            following = np.unique(here[here != SILENT])
            numbers = len(found) + np.searchsorted(following, here)
            onward += np.where(here == SILENT, SILENT, numbers).tolist()
            memories = following
        return found, onward

    def _step(self, depth: int) -> tuple[Floats, Ints]:
        """(memories, n) each: the suppressions after each memory, and the memory after each context; -1 for silence.

        A context that cannot come there may come all the same; it adds nothing to the memory.
        """
        level, last = self.levels[depth], depth + 1 == len(self.levels)
        memories = 1 + (int(self.levels[depth - 1].onward.max(initial=0)) if depth else 0)
        shares, after = np.ones((memories, len(level.numbers))), np.full((memories, len(level.numbers)), -1)
        possible = np.zeros(shares.shape, dtype=np.bool_)
        unmarked = np.full(memories, -1)
        for memory, node in self._comes_from(depth):
            context = level.contexts[node]
            possible[memory, context] = True
            shares[memory, context] = self.suppressed[depth][node]
            after[memory, context] = -1 if last else level.onward[node]
            if level.marks[context] < 0:
                unmarked[memory] = after[memory, context]
        if depth:
            before = self.levels[depth - 1]
            np.logical_or.at(possible, before.onward, before.lost > 0)
        after = np.where(possible | (level.marks >= 0), after, unmarked[:, None])
        return shares, after

    def _comes_from(self, depth: int) -> list[tuple[int, int]]:
        """The memories before a level, each with the histories that it can become there."""
        moves = self.levels[depth].moves
        if moves is None:
            return [(0, node) for node in range(len(self.levels[0].contexts))]
        memories = self.levels[depth - 1].onward[moves.source]
        return sorted(set(zip(memories.tolist(), moves.target.tolist(), strict=True)))


def make_private(
    capped: CappedStates, levels: list[Level], suppressed: Sequence[Floats]
) -> tuple[Solution | None, Floats]:
    """The private solution near these shares suppressed, if there is one, and (k,) how much silence breaks each bound.

    Where too little is suppressed for a private end of the day, the flows are mixed with silence, which is private.
    """
    room = capped.room
    parts = [mass / level.mass for mass, level in zip(arriving(levels, suppressed), levels, strict=True)]
    silence = needed = 0.0
    excess = np.zeros(0)
    for more in SILENCES:
        silence = min(silence + (1 - silence) * ENOUGH * needed + more, 1.0)
        mixed = [(1 - silence) * part * share + silence for part, share in zip(parts, suppressed, strict=True)]
        fewer = [(1 - silence) * part * (1 - share) for part, share in zip(parts, suppressed, strict=True)]
        solution = evaluate(capped, levels, _within_bounds(capped, levels, mixed, fewer))
        excess = excess if len(excess) else np.maximum(solution.excess, 0.0)
        if solution.private:
            return solution, excess
        broken = solution.excess > 0
        needed = float((solution.excess[broken] / (solution.excess[broken] + room[broken])).max(initial=0.0))
    return None, excess


def _within_bounds(
    capped: CappedStates, levels: Sequence[Level], kept: Sequence[Floats], given: Sequence[Floats]
) -> list[Floats]:
    """The shares that these flows suppress, and more where a release would carry too much."""
    releasable = capped.window.problem.releasable
    run = Passage(capped, levels[0])
    suppressed: list[Floats] = []
    for level, stays, goes in zip(levels, kept, given, strict=True):
        run.arrive(level)
        mass = run.mass
        total = stays + goes
        share = np.zeros(len(mass))  # what carries no mass is suppressed
        may = releasable[level.step, level.contexts] & (level.mass >= NEGLIGIBLE)
        np.divide(goes, total, out=share, where=may & (total > SNAP))
        share[share < SNAP] = 0.0
        share[share > 1 - SNAP] = 1.0
        released = mass * share
        earlier = np.flatnonzero(capped.steps < level.step)
        for context in np.unique(level.contexts[released > 0]):
            nodes = np.flatnonzero((level.contexts == context) & (released > 0))
            parts = (run.passed[np.ix_(earlier, nodes)] / mass[nodes] - capped.caps[earlier, None]).T
            released[nodes] = kept_within(released[nodes], mass[nodes], parts)
        fraction = np.divide(mass - released, mass, out=np.ones(len(mass)), where=mass > 0)
        suppressed.append(fraction)
        run.leave(level, fraction)
    return suppressed


def arriving(levels: Sequence[Level], suppressed: Sequence[Floats]) -> list[Floats]:
    """Per level (m,): the mass that arrives at each history."""
    found = [levels[0].mass]
    for level, fraction in zip(levels[1:], suppressed, strict=False):
        if level.moves is None:
            raise AssertionError("only to the first level nothing leads")
        found.append(level.moves.forward(found[-1] * fraction))
    return found


class Passage:
    """The mass that arrives at each level under given suppressions, and how much of it passed each capped state: exact.

    It is followed move by move, not read off the histories. The masses of each step sum to 1; `share` is the part of
    the window that is still suppressed before it.
    """

    def __init__(self, capped: CappedStates, first: Level) -> None:
        self._capped = capped
        self.share = 1.0
        self.mass = first.mass
        self.passed = np.zeros((len(capped), len(first.mass)))  # (k, m)

    def arrive(self, level: Level) -> None:
        """Go on to a level."""
        if level.moves is not None:
            self.mass, self.passed = level.moves.forward(self.mass), self.passed @ level.moves.matrix

    def leave(self, level: Level, fraction: Floats) -> tuple[Floats, Floats]:
        """Suppress these fractions. What is suppressed, and what of it passed each state, unscaled within the step."""
        here = level.numbers[level.contexts]
        nodes = np.flatnonzero(here >= 0)
        self.passed[here[nodes], nodes] = self.mass[nodes]
        mass, passed = self.mass * fraction, self.passed * fraction
        left = float(mass.sum())
        if left > 0:
            self.mass, self.passed = mass / left, passed / left
        else:
            self.mass, self.passed = mass, passed
        self.share *= left
        return mass, passed


def shares_passed(capped: CappedStates, levels: Sequence[Level], suppressed: Sequence[Floats]) -> list[Floats]:
    """Per level (m, k): of each history, the share that passed each capped state, if these shares are suppressed.

    Where nothing arrives, as though everything were suppressed.
    """
    silent, run = Passage(capped, levels[0]), Passage(capped, levels[0])
    found = []
    for level, fraction in zip(levels, suppressed, strict=True):
        for each in (silent, run):
            each.arrive(level)
        otherwise = np.asarray(silent.passed / silent.mass)
        some = run.mass > FAINT
        found.append(np.where(some, run.passed / np.where(some, run.mass, 1.0), otherwise).T)
        silent.leave(level, np.ones(len(fraction)))
        run.leave(level, fraction)
    return found


def kept_within(released: Floats, mass: Floats, parts: Floats) -> Floats:
    """The releases of one context that keep all bounds, with the least sum of squared changes, each by the release.

    A history that is released whole stays so.

    Args:
        released: The mass of each history that is released.
        mass: The mass of each history.
        parts: (m, k): by how much each exceeds the cap of each state.
    """
    is_full = np.zeros(len(mass), dtype=np.bool_)
    for _ in range(ROUNDS):
        released = np.where(released < LEAST * mass, 0.0, released)
        total, over = released.sum(), released @ parts
        if over.max(initial=0.0) <= SEARCH * total:
            return released
        free = np.flatnonzero((released > 0) & ~is_full)
        roots = np.sqrt(released[free] / total)
        change = _least_change((roots[:, None] * parts[free]).T, over / total + SPARE)
        if change is None:
            break
        wanted = released[free] * (1 - change / roots)
        is_full[free[wanted >= mass[free]]] = True
        released[free] = np.clip(wanted, 0.0, mass[free])
    return _scaled_down(released, mass, parts)


def _least_change(rows: Floats, least: Floats) -> Floats | None:
    """The x of least squares with rows @ x >= least; None if there is none.

    It is the residual of a least-squares problem with positive factors for the rows (Lawson and Hanson's LDP).
    """
    target = np.zeros(rows.shape[1] + 1)
    target[-1] = 1.0
    system = np.concatenate([rows.T, least[None]])
    try:
        factors, _ = nnls(system, target)
    except (RuntimeError, np.linalg.LinAlgError):  # the second in older versions of SciPy
        return None
    rest = system @ factors - target
    return None if rest[-1] > -IMPOSSIBLE else np.asarray(rest[:-1] / -rest[-1])


def _scaled_down(released: Floats, mass: Floats, parts: Floats) -> Floats:
    """The releases of one context, those of histories above a bound scaled down until all bounds are kept."""
    for _ in range(ROUNDS):
        released = np.where(released < LEAST * mass, 0.0, released)
        over = released @ parts
        if over.max(initial=0.0) <= SEARCH * released.sum():
            return released
        worst = parts[:, int(np.argmax(over))]
        above = worst > 0
        room = -float(released[~above] @ worst[~above])
        released[above] *= max(room, 0.0) / float(released[above] @ worst[above])
    return np.zeros(len(released))


def evaluate(capped: CappedStates, levels: list[Level], suppressed: list[Floats]) -> Solution:
    """The exact releases of these suppressions, and whether they keep all bounds, independent of any solver.

    What passed each capped state is followed move by move, not read off the histories.
    """
    chain = capped.window.problem.chain
    n = chain.size
    limits, releasable = capped.caps + VERDICT, capped.window.problem.releasable
    run, private = Passage(capped, levels[0]), True
    possible = levels[0].mass > 0  # the histories that can come about, however unlikely
    is_silent = False  # whether the end can be reached without a release
    expected = np.zeros((chain.horizon, n))
    silent, silent_passed = 0.0, np.zeros(len(capped))  # what is never released, and how much of it passed each state
    for level, fraction in zip(levels, suppressed, strict=True):
        run.arrive(level)
        share = run.share
        released = np.zeros((len(run.mass), n))
        released[np.arange(len(run.mass)), level.contexts] = 1 - fraction
        arriving = run.mass @ released
        private &= bool((run.passed @ released <= limits[:, None] * arriving).all())
        private &= bool((level.mass[fraction < 1] >= NEGLIGIBLE).all())
        private &= bool(releasable[level.step, level.contexts[fraction < 1]].all())
        if level.moves is not None:
            possible = level.moves.forward(possible.astype(np.float64)) > 0
        private &= bool((arriving[level.contexts[possible & (fraction < 1)]] >= TINY).all())
        possible = possible & (fraction > 0)
        is_silent |= bool(level.lost[possible].any()) if level is not levels[-1] else bool(possible.any())
        expected[level.step] = share * arriving
        mass, passed = run.leave(level, fraction)
        if level is levels[-1]:
            silent += share * float(mass.sum())
            silent_passed += share * passed.sum(axis=1)
            break
        lost = mass @ level.lost
        silent += share * float(lost.sum())
        later = capped.at(level.step + 1) + capped.ahead(level.step + 1)
        silent_passed += share * ((passed @ level.lost).sum(axis=1) + lost @ later)
        if not mass.any():
            private &= not possible.any()
            break
        private &= run.share >= CLEAR
    excess = silent_passed - limits * silent
    private &= bool((excess <= 0).all()) and (silent >= CLEAR or not is_silent)
    return Solution(levels, suppressed, expected, excess, private)
