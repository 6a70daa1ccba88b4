"""One window's linear program: how much of each state to suppress, so that no next release tells too much.

A state is the step, the context and H, the set of *tracked* sensitive states passed since the window began. Suppressed
and released mass flow linearly through the states. Privacy asks of each next release (t2, j), and of reaching the end
suppressed: of the mass that arrives, at most the cap of each sensitive state between passed through it.

All variables are fractions of what would arrive at their state if nothing were released, so that states of very
different mass are solved equally well; what the solver returns is then evaluated exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array

from reticent_client.chain import Bools, Floats
from reticent_client.problem import SEARCH, VERDICT, Opponent
from reticent_client.windows import Window

Sets = npt.NDArray[np.uint64]  # each a set of tracked states, as bits
Ints = npt.NDArray[np.int64]
State = tuple[int, int]  # a step and a context

MOST_TRACKED = 60  # bits that a set may use
SNAP = 1e-9  # a fraction this close to 0 or 1 is the solver's way of saying 0 or 1
INTERIOR = 2_000  # from this many variables on, interior point is faster than simplex
FEASIBLE = 1e-9  # the solver's tolerance
LONGEST = 1e9  # seconds, for no limit


@dataclass
class Level:
    """The states of one step: where the user is, and which tracked states were passed, this step's included."""

    step: int
    contexts: Ints  # (m,)
    passed: Sets  # (m,)
    mass: Floats  # (m,): what arrives if everything is suppressed
    kernel: csr_array | None  # (m before, m): the moves that lead here; None at the first step
    marks: Sets  # (n,): what being in each context now adds to a set

    def has(self, bits: Ints) -> Bools:
        """(m, k): whether each state passed each of some tracked states."""
        return np.asarray((self.passed[:, None] >> bits.astype(np.uint64)) & np.uint64(1), dtype=np.bool_)


def unfold(window: Window, tracked: list[State], limit: int, until: int) -> list[Level]:
    """A window's states, given those to be tracked in order of time, up to a step or to a number of states."""
    chain = window.problem.chain
    levels: list[Level] = []
    count = 0
    for step in range(window.first, until):
        marks = np.zeros(chain.size, dtype=np.uint64)
        for bit, (when, i) in enumerate(tracked):
            if when == step:
                marks[i] = np.uint64(1) << np.uint64(bit)
        if not levels:
            contexts = np.flatnonzero(window.opening(chain))
            mass = window.opening(chain)[contexts]
            level = Level(step, contexts, marks[contexts], mass, None, marks)
        else:
            before = levels[-1]
            moves = chain.transitions[step - 1][before.contexts]  # (m before, n)
            sources, contexts = np.nonzero(moves)
            sets, which = np.unique(before.passed[sources] | marks[contexts], return_inverse=True)
            keys, states = np.unique(which.ravel() * chain.size + contexts, return_inverse=True)
            shape = (len(before.contexts), len(keys))
            kernel = csr_array((moves[sources, contexts], (sources, states.ravel())), shape=shape)
            mass = before.mass @ kernel
            level = Level(step, keys % chain.size, sets[keys // chain.size], mass, kernel, marks)
        count += len(level.contexts)
        if levels and count > limit:
            break
        levels.append(level)
    return levels


@dataclass
class Solution:
    """How much of each state is suppressed, of what arrives there; everything after the last level is."""

    levels: list[Level]
    suppression: list[Floats]  # per level (m,)
    value: float  # what all releases are worth, exactly
    broken: list[State] = field(default_factory=list)  # whose bounds it breaks, among the levels
    breaks_later: bool = False  # whether it breaks a bound after the last level
    at: set[State] = field(default_factory=set)  # the releases at which it does

    @property
    def private(self) -> bool:
        """Whether it keeps all bounds."""
        return not self.broken and not self.breaks_later


class Program:
    """The linear program of one window."""

    def __init__(self, window: Window, tracked: list[State], limit: int) -> None:
        self.window = window
        self.tracked = tracked[:MOST_TRACKED]
        until = tracked[MOST_TRACKED][0] if len(tracked) > MOST_TRACKED else window.problem.chain.horizon
        self.levels = unfold(window, self.tracked, limit, max(until, window.first + 1))
        releasable = window.problem.releasable
        self.allowed = [releasable[level.step, level.contexts] for level in self.levels]
        (self._opponent,) = window.problem.opponents

    @property
    def whole(self) -> bool:
        """Whether the levels go to the end of the day."""
        return len(self.levels) == self.window.length

    def greedy(self, worth: Floats, after: Floats) -> tuple[list[Floats], float]:
        """The best suppressions if nothing had to be protected, and their value.

        `after` (T, n) is what being suppressed at a state is worth, if nothing has to be protected from then on.
        """
        suppression: list[Floats] = []
        onward = after[self.levels[-1].step, self.levels[-1].contexts]
        for level, allowed in zip(reversed(self.levels), reversed(self.allowed), strict=True):
            gain = worth[level.step, level.contexts]
            release = allowed & (gain >= onward)
            suppression.append(np.where(release, 0.0, 1.0))
            onward = np.where(release, gain, onward)
            if level.kernel is not None:
                onward = level.kernel @ onward
        return suppression[::-1], float(self.levels[0].mass @ onward)

    def solve(
        self, worth: Floats, after: Floats | None, margin: float, seconds: float
    ) -> tuple[list[Floats], float] | None:
        """The program's suppressions and value; None when the solver gives up.

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
        bounds = _Rows()
        for level, offset, allowed in zip(self.levels, offsets, self.allowed, strict=False):
            self._bound_releases(bounds, level, release[offset : offset + len(allowed)], allowed, margin)
        if after is None:
            self._bound_the_end(bounds, int(offsets[-2]), margin)
        result = linprog(  # type: ignore[call-overload]  # the stubs know no feasibility tolerances
            objective,
            A_ub=bounds.matrix(len(objective)),
            b_ub=np.zeros(bounds.count),
            A_eq=self._flow(offsets, release),
            b_eq=np.concatenate([np.ones(sizes[0]), np.zeros(total - sizes[0])]),
            bounds=(0, None),
            method="highs-ipm" if len(objective) > INTERIOR else "highs",
            options={
                "primal_feasibility_tolerance": FEASIBLE,
                "dual_feasibility_tolerance": FEASIBLE,
                "time_limit": min(max(seconds, 1e-3), LONGEST),
            },
        )
        if result.status != 0:
            return None
        kept = np.maximum(result.x[:total], 0.0)
        arriving = kept.copy()
        arriving[free] += np.maximum(result.x[total:], 0.0)
        fraction = np.ones(total)  # what carries no mass is suppressed
        np.divide(kept, arriving, out=fraction, where=free & (arriving > SNAP))
        fraction[fraction < SNAP] = 0.0
        fraction[fraction > 1 - SNAP] = 1.0
        return np.split(fraction, offsets[1:-1]), -float(result.fun)

    def _flow(self, offsets: Ints, release: Ints) -> csr_array:
        """What is suppressed and released at a state is what was suppressed before it."""
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

    def _bound_releases(self, bounds: _Rows, level: Level, release: Ints, allowed: Bools, margin: float) -> None:
        bits = np.array([bit for bit, (step, _) in enumerate(self.tracked) if step < level.step], dtype=np.int64)
        caps = np.array([self._opponent.cap[self.tracked[bit]] for bit in bits]) - margin
        has = level.has(bits)  # (m, k)
        for j in np.unique(level.contexts[allowed]):
            states = np.flatnonzero(level.contexts == j)
            share = level.mass[states] / level.mass[states].sum()
            for k in np.flatnonzero(has[states].any(axis=0)):
                bounds.add(release[states], share * (has[states, k] - caps[k]))

    def _bound_the_end(self, bounds: _Rows, offset: int, margin: float) -> None:
        last = self.levels[-1]
        states = offset + np.arange(len(last.contexts))
        has = last.has(np.arange(len(self.tracked)))
        for k, state in enumerate(self.tracked):
            if has[:, k].any():
                bounds.add(states, last.mass * (has[:, k] - (self._opponent.cap[state] - margin)))
        ahead, caps = self._opponent.ahead[last.step]
        for row, cap in zip(ahead.T, caps, strict=True):
            expected = row[last.contexts]
            if expected.any():
                bounds.add(states, last.mass * (expected - (cap - margin)))

    def evaluate(self, suppression: list[Floats]) -> Solution:
        """Exactly what these suppressions are worth, and whose bounds they break."""
        return evaluate(self.window, self.levels, suppression, self._opponent)


def evaluate(window: Window, levels: list[Level], suppression: list[Floats], opponent: Opponent) -> Solution:
    """Exactly what these suppressions are worth, and whose bounds they break; nothing rests on a solver's word."""
    n = window.problem.chain.size
    value, share = 0.0, 1.0
    mass = levels[0].mass
    passed = np.zeros((0, len(mass)))  # what passed through each capped state so far
    states: list[State] = []
    caps: list[float] = []
    solution = Solution(levels, suppression, 0.0)
    broken: set[State] = set()
    for level, fraction in zip(levels, suppression, strict=True):
        if level.kernel is not None:
            mass, passed = mass @ level.kernel, passed @ level.kernel
        released = np.zeros((len(mass), n))
        released[np.arange(len(mass)), level.contexts] = 1 - fraction
        arriving = mass @ released  # (n,)
        value += share * float(arriving @ window.worth[level.step])
        excess = passed @ released - np.array(caps)[:, None] * arriving
        broken |= {states[k] for k in np.flatnonzero((excess > 0).any(axis=1))}
        solution.at |= {(level.step, int(j)) for j in np.flatnonzero((excess > 0).any(axis=0))}
        here = [int(i) for i in np.unique(level.contexts) if opponent.cap[level.step, i] < 1]
        states += [(level.step, i) for i in here]
        caps += [float(opponent.cap[level.step, i]) + VERDICT for i in here]
        rows = [np.where(level.contexts == i, mass, 0.0) for i in here]
        passed = np.concatenate([passed, np.reshape(rows, (len(here), len(mass)))]) * fraction
        mass = mass * fraction
        left = float(mass.sum())
        if left == 0:
            break
        mass, passed, share = mass / left, passed / left, share * left
    else:
        broken |= {states[k] for k in np.flatnonzero(passed.sum(axis=1) > np.array(caps))}
        ahead, later = opponent.ahead[levels[-1].step]
        solution.breaks_later = bool((mass @ ahead[levels[-1].contexts] > later - SEARCH + VERDICT).any())
    solution.value, solution.broken = value, sorted(broken)
    return solution


class _Rows:
    """Constraints, one after the other: each a sum that must not exceed 0."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[Ints] = [np.zeros(0, dtype=np.int64)]
        self._columns: list[Ints] = [np.zeros(0, dtype=np.int64)]
        self._values: list[Floats] = [np.zeros(0)]

    def add(self, columns: Ints, values: Floats) -> None:
        self._rows.append(np.full(len(columns), self.count))
        self._columns.append(columns)
        self._values.append(values)
        self.count += 1

    def matrix(self, variables: int) -> csr_array:
        entries = (np.concatenate(self._values), (np.concatenate(self._rows), np.concatenate(self._columns)))
        return coo_array(entries, shape=(self.count, variables)).tocsr()
