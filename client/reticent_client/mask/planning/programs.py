"""One window's linear program: how much of each state to suppress, so that no next release reveals too much.

Suppressed and released mass flow linearly through the window's states. Privacy is one condition on each next release
(t2, j), and on reaching the end suppressed: of the arriving mass, at most the cap of each sensitive state in between
passed through that state.

All variables are fractions of what would arrive at their state if nothing were released, so that states of very
different mass are solved equally well; what the solver returns is then evaluated exactly.
"""

from __future__ import annotations

import copy

import numpy as np
from scipy.sparse import coo_array, csr_array

from reticent_client.mask.chain import Bools, Floats
from reticent_client.mask.planning.solver import Rows, moved_within, solved
from reticent_client.mask.planning.unfolding import Ints, Level, Solution, State, evaluate, unfold
from reticent_client.mask.planning.windows import Window
from reticent_client.mask.problem import SEARCH

MAX_TRACKED = 60  # bits that a set may use
SNAP = 1e-9  # a fraction this close to 0 or 1 is the solver's way of saying 0 or 1

Flow = tuple[Floats, Floats]
"""(m,) each: the fractions of what could arrive at a level's states that are suppressed and released there."""


class Program:
    """The linear program of one window."""

    def __init__(self, window: Window, tracked: list[State], limit: int) -> None:
        self.window = window
        self.tracked = tracked[:MAX_TRACKED]
        until = tracked[MAX_TRACKED][0] if len(tracked) > MAX_TRACKED else window.problem.chain.horizon
        self.levels, self.entries = unfold(window, self.tracked, limit, max(until, window.first + 1))
        releasable = window.problem.releasable
        self.allowed = [releasable[level.step, level.contexts] for level in self.levels]
        (self._adversary,) = window.problem.adversaries

    def without_faint_releases(self, least: float) -> Program:
        """The same program, in which a context that is less likely than this at its step is not released there.

        It is worth hardly less, and its solutions do not turn on the ratios of masses that a solver neglects.
        """
        twin = copy.copy(self)
        twin.allowed = []
        for level, allowed in zip(self.levels, self.allowed, strict=True):
            likely = np.bincount(level.contexts, level.mass, len(level.marks)) >= least
            twin.allowed.append(allowed & likely[level.contexts])
        return twin

    @property
    def whole(self) -> bool:
        """Whether the levels go to the end of the day."""
        return len(self.levels) == self.window.length

    def greedy(self, worth: Floats) -> list[Floats]:
        """The best suppressions if nothing had to be protected: release or wait, whichever is worth more."""
        suppression: list[Floats] = []
        onward: Floats = np.zeros(len(self.levels[-1].contexts))
        for level, allowed in zip(reversed(self.levels), reversed(self.allowed), strict=True):
            gain = worth[level.step, level.contexts]
            release = allowed & (gain >= onward)
            suppression.append(np.where(release, 0.0, 1.0))
            onward = np.where(release, gain, onward)
            if level.kernel is not None:
                onward = level.kernel @ onward
        return suppression[::-1]

    def solve(self, worth: Floats, after: Floats | None, seconds: float) -> tuple[list[Flow], float] | None:
        """The program's flows and value; None when the solver gives up.

        With `after`, mass that is still suppressed after the last level counts as much and has to protect nothing: a
        relaxation. Without, everything is suppressed from there to the end of the day.
        """
        sizes = [len(level.contexts) for level in self.levels]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        total = int(offsets[-1])
        free = np.concatenate(self.allowed)
        release = np.full(total, -1)
        release[free] = total + np.arange(int(free.sum()))  # the variable of each state's released fraction
        gains = np.concatenate([level.mass * worth[level.step, level.contexts] for level in self.levels])
        objective = np.concatenate([np.zeros(total), -gains[free]])
        last = self.levels[-1]
        if after is not None:
            objective[offsets[-2] : total] -= last.mass * after[last.step, last.contexts]
        bounds = Rows()
        for level, offset, allowed in zip(self.levels, offsets, self.allowed, strict=False):
            self._bound_releases(bounds, level, release[offset : offset + len(allowed)], allowed)
        if after is None:
            self._bound_the_end(bounds, int(offsets[-2]))
        result = solved(
            objective,
            bounds.matrix(len(objective)),
            np.zeros(bounds.count),
            seconds,
            A_eq=self._flow(offsets, release),
            b_eq=np.concatenate([np.ones(sizes[0]), np.zeros(total - sizes[0])]),
            bounds=(0, None),
        )
        if result is None:
            return None
        kept = np.maximum(result.x[:total], 0.0)
        given = np.zeros(total)
        given[free] = np.maximum(result.x[total:], 0.0)
        flows = list(zip(np.split(kept, offsets[1:-1]), np.split(given, offsets[1:-1]), strict=True))
        return flows, -float(result.fun)

    def suppressions(self, flows: list[Flow], silence: float, crumb: float) -> list[Floats]:
        """The suppressions of a solution, as the solver would have meant them.

        A solver's flows are right to some 1e-9 of mass; where little is released, a belief can be far off. So what each
        release may carry is followed exactly, step by step, and moved to within its bounds; at the last step what stays
        behind is, too. A share of `silence`, a solution that releases nothing, can be mixed in to make room for that,
        and releases and remainders below the share `crumb` of a state can be left away.
        """
        mass = self.levels[0].mass
        found: list[Floats] = []
        for level, allowed, (kept, given) in zip(self.levels, self.allowed, flows, strict=True):
            if level.kernel is not None:
                mass = mass @ level.kernel
            stays = (1 - silence) * kept + silence
            goes = (1 - silence) * given
            share = np.zeros(len(mass))  # what carries no mass is suppressed
            np.divide(goes, stays + goes, out=share, where=allowed & (stays + goes > SNAP))
            share[share < SNAP] = 0.0
            share[share > 1 - SNAP] = 1.0
            released = self._within_bounds(level, mass, mass * share, allowed)
            fraction = np.divide(mass - released, mass, out=np.ones(len(mass)), where=mass > 0)
            fraction[fraction < crumb] = 0.0
            fraction[fraction > 1 - crumb] = 1.0
            found.append(fraction)
            mass = mass * fraction
            total = float(mass.sum())
            if total > 0:
                mass = mass / total
        return found

    def _within_bounds(self, level: Level, mass: Floats, released: Floats, allowed: Bools) -> Floats:
        """The releases at a step, moved as little as necessary so that each release, and the end, keeps its bounds."""
        bits, caps = self._earlier(level)
        excess = level.has(bits) - caps  # (m, k)
        released = released.copy()
        for j in np.unique(level.contexts[released > 0]):
            states = np.flatnonzero((level.contexts == j) & allowed)
            total = released[states].sum()
            if (released[states] @ excess[states] > SEARCH * total).any():
                released[states] = moved_within(
                    released[states], mass[states], excess[states] / total, np.zeros(len(caps))
                )
        if level is self.levels[-1] and allowed.any():
            behind, left = self._end_excess(), mass - released
            if (left @ behind > SEARCH * left.sum()).any():
                # all of the last step's releases together, and what stays behind
                free = np.flatnonzero(allowed)
                rows, limits = [-behind[free] / left.sum()], [-(mass @ behind) / left.sum()]
                for j in np.unique(level.contexts[released > 0]):
                    own = level.contexts[free] == j
                    rows.append(excess[free] * own[:, None] / released[free][own].sum())
                    limits.append(np.zeros(len(caps)))
                released[free] = moved_within(
                    released[free], mass[free], np.concatenate(rows, axis=1), np.concatenate(limits)
                )
        return released

    def _earlier(self, level: Level) -> tuple[Ints, Floats]:
        """The tracked states before a level, by their bits, and their caps."""
        bits = np.array([bit for bit, (step, _) in enumerate(self.tracked) if step < level.step], dtype=np.int64)
        return bits, np.array([self._adversary.cap[self.tracked[bit]] for bit in bits])

    def _flow(self, offsets: Ints, release: Ints) -> csr_array:
        """Conservation of mass: the mass suppressed and released at a state is the mass suppressed before it."""
        total = len(release)
        free = np.flatnonzero(release >= 0)
        rows, cols = [np.arange(total), free], [np.arange(total), release[free]]
        values = [np.ones(total), np.ones(len(free))]
        for number, level in enumerate(self.levels[1:], start=1):
            if level.kernel is None:
                raise AssertionError("only the first level has no kernel")
            kernel = coo_array(level.kernel)
            rows.append(offsets[number] + kernel.col)
            cols.append(offsets[number - 1] + kernel.row)
            values.append(-kernel.data * self.levels[number - 1].mass[kernel.row] / level.mass[kernel.col])
        entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(cols)))
        shape = (total, total + len(free))
        return coo_array(entries, shape=shape).tocsr()

    def _bound_releases(self, bounds: Rows, level: Level, release: Ints, allowed: Bools) -> None:
        bits, caps = self._earlier(level)
        has = level.has(bits)  # (m, k)
        for j in np.unique(level.contexts[allowed]):
            states = np.flatnonzero(level.contexts == j)
            share = level.mass[states] / level.mass[states].sum()
            for k in np.flatnonzero(has[states].any(axis=0)):
                bounds.add(release[states], share * (has[states, k] - caps[k]))

    def _bound_the_end(self, bounds: Rows, offset: int) -> None:
        last = self.levels[-1]
        states = offset + np.arange(len(last.contexts))
        for column in self._end_excess().T:
            bounds.add(states, last.mass * column)

    def _end_excess(self) -> Floats:
        """(m, k): by how much each state of the last level exceeds each bound, if it stays suppressed."""
        last = self.levels[-1]
        tracked = last.has(np.arange(len(self.tracked))) - np.array([self._adversary.cap[s] for s in self.tracked])
        ahead, caps = self._adversary.ahead[last.step]
        later = ahead[last.contexts] - (caps - SEARCH)
        return np.concatenate([tracked, later], axis=1)

    def evaluate(self, suppression: list[Floats]) -> Solution:
        """The exact value of these suppressions, and the states whose bounds they break."""
        return evaluate(self.window, self.levels, suppression, self._adversary)
