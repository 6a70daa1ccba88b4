"""One window's linear program: how much of each state to suppress, so that no next release tells too much.

A state is the step, the context and H, the set of *tracked* sensitive states passed since the window began. Suppressed
and released mass flow linearly through the states. Privacy asks of each next release (t2, j), and of reaching the end
suppressed: of the mass that arrives, at most the cap of each sensitive state between passed through it.

All variables are fractions of what would arrive at their state if nothing were released, so that states of very
different mass are solved equally well; what the solver returns is then evaluated exactly.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array

from reticent_client.chain import Bools, Floats
from reticent_client.problem import SEARCH, TINY, VERDICT, Opponent
from reticent_client.windows import Window

Sets = npt.NDArray[np.uint64]  # each a set of tracked states, as bits
Ints = npt.NDArray[np.int64]
State = tuple[int, int]  # a step and a context

CLEAR = 1e-270  # an output of at least this mass owes nothing to states below TINY
MOST_TRACKED = 60  # bits that a set may use
Flow = tuple[Floats, Floats]
"""(m,) each: the fractions of what could arrive at a level's states that are suppressed and released there."""

SNAP = 1e-9  # a fraction this close to 0 or 1 is the solver's way of saying 0 or 1
INTERIOR = 2_000  # from this many variables on, interior point is faster than simplex
TOLERANCES = (1e-9, 1e-7)  # of the solver
ITERATIONS = 5_000  # that the solver may take, besides one for each variable
MARGIN = 2e-9  # how far within the bounds repaired releases are put: the solver's tolerance, and some
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
    dropped: Bools  # (n,): where states were left out because float64 can hardly tell their mass from none

    def has(self, bits: Ints) -> Bools:
        """(m, k): whether each state passed each of some tracked states."""
        return np.asarray((self.passed[:, None] >> bits.astype(np.uint64)) & np.uint64(1), dtype=np.bool_)


def unfold(window: Window, tracked: list[State], limit: int, until: int) -> tuple[list[Level], int]:
    """A window's states, given those to be tracked in order of time, up to a step or to a size of the program.

    The size, which comes second, is roughly the number of entries in the program's matrix.
    """
    chain = window.problem.chain
    levels: list[Level] = []
    entries = 0
    for step in range(window.first, until):
        marks = np.zeros(chain.size, dtype=np.uint64)
        for bit, (when, i) in enumerate(tracked):
            if when == step:
                marks[i] = np.uint64(1) << np.uint64(bit)
        if not levels:
            opening = window.opening(chain)
            contexts = np.flatnonzero(opening >= TINY)
            dropped = (opening > 0) & (opening < TINY)
            level = Level(step, contexts, marks[contexts], opening[contexts], None, marks, dropped)
        else:
            before = levels[-1]
            moves = chain.transitions[step - 1][before.contexts]  # (m before, n)
            sources, contexts = np.nonzero(moves)
            sets, which = np.unique(before.passed[sources] | marks[contexts], return_inverse=True)
            keys, states = np.unique(which.ravel() * chain.size + contexts, return_inverse=True)
            shape = (len(before.contexts), len(keys))
            kernel = csr_array((moves[sources, contexts], (sources, states.ravel())), shape=shape)
            mass = before.mass @ kernel
            clear = np.flatnonzero(mass >= TINY)
            dropped = np.zeros(chain.size, dtype=np.bool_)
            dropped[keys[mass < TINY] % chain.size] = True
            keys = keys[clear]
            level = Level(
                step, keys % chain.size, sets[keys // chain.size], mass[clear], kernel[:, clear], marks, dropped
            )
        moves_in = 0 if level.kernel is None else level.kernel.nnz
        more = moves_in + len(level.contexts) * sum(when < step for when, _ in tracked)
        if levels and entries + more > limit:
            break
        entries += more
        levels.append(level)
    return levels, entries


@dataclass
class Solution:
    """How much of each state is suppressed, of what arrives there; everything after the last level is."""

    levels: list[Level]
    suppression: list[Floats]  # per level (m,)
    value: float  # what all releases are worth, exactly
    broken: list[State] = field(default_factory=list)  # whose bounds it breaks, among the levels
    breaks_later: bool = False  # whether it breaks a bound after the last level
    unclear: bool = False  # whether some output rests on states that float64 can hardly tell from none

    @property
    def private(self) -> bool:
        """Whether it keeps all bounds."""
        return not (self.broken or self.breaks_later or self.unclear)


class Program:
    """The linear program of one window."""

    def __init__(self, window: Window, tracked: list[State], limit: int) -> None:
        self.window = window
        self.tracked = tracked[:MOST_TRACKED]
        until = tracked[MOST_TRACKED][0] if len(tracked) > MOST_TRACKED else window.problem.chain.horizon
        self.levels, self.entries = unfold(window, self.tracked, limit, max(until, window.first + 1))
        releasable = window.problem.releasable
        self.allowed = [releasable[level.step, level.contexts] for level in self.levels]
        (self._opponent,) = window.problem.opponents

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
        bounds = _Rows()
        for level, offset, allowed in zip(self.levels, offsets, self.allowed, strict=False):
            self._bound_releases(bounds, level, release[offset : offset + len(allowed)], allowed)
        if after is None:
            self._bound_the_end(bounds, int(offsets[-2]))
        result = _solved(
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
        """What is released at a step, moved as little as it takes for each release, and the end, to keep its bounds."""
        bits, caps = self._earlier(level)
        excess = level.has(bits) - caps  # (m, k)
        released = released.copy()
        for j in np.unique(level.contexts[released > 0]):
            states = np.flatnonzero((level.contexts == j) & allowed)
            total = released[states].sum()
            if (released[states] @ excess[states] > SEARCH * total).any():
                released[states] = _moved(released[states], mass[states], excess[states] / total, np.zeros(len(caps)))
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
                released[free] = _moved(
                    released[free], mass[free], np.concatenate(rows, axis=1), np.concatenate(limits)
                )
        return released

    def _earlier(self, level: Level) -> tuple[Ints, Floats]:
        """The tracked states before a level, by their bits, and their caps."""
        bits = np.array([bit for bit, (step, _) in enumerate(self.tracked) if step < level.step], dtype=np.int64)
        return bits, np.array([self._opponent.cap[self.tracked[bit]] for bit in bits])

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

    def _bound_releases(self, bounds: _Rows, level: Level, release: Ints, allowed: Bools) -> None:
        bits, caps = self._earlier(level)
        has = level.has(bits)  # (m, k)
        for j in np.unique(level.contexts[allowed]):
            states = np.flatnonzero(level.contexts == j)
            share = level.mass[states] / level.mass[states].sum()
            for k in np.flatnonzero(has[states].any(axis=0)):
                bounds.add(release[states], share * (has[states, k] - caps[k]))

    def _bound_the_end(self, bounds: _Rows, offset: int) -> None:
        last = self.levels[-1]
        states = offset + np.arange(len(last.contexts))
        for column in self._end_excess().T:
            bounds.add(states, last.mass * column)

    def _end_excess(self) -> Floats:
        """(m, k): by how much each state of the last level exceeds each bound, if it stays suppressed."""
        last = self.levels[-1]
        tracked = last.has(np.arange(len(self.tracked))) - np.array([self._opponent.cap[s] for s in self.tracked])
        ahead, caps = self._opponent.ahead[last.step]
        later = ahead[last.contexts] - (caps - SEARCH)
        return np.concatenate([tracked, later], axis=1)

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
    solution.unclear = _rests_on_the_faint(window, levels, suppression)
    return solution


def _rests_on_the_faint(window: Window, levels: list[Level], suppression: list[Floats]) -> bool:
    """Whether some output can come about through states that were left out, with too little else behind it.

    Those states are suppressed, and can go on to others: an output that clear mass makes hides them; one that it does
    not make has a belief that was never looked at.
    """
    if not any(level.dropped.any() for level in levels):
        return False
    chain = window.problem.chain
    mass, share = levels[0].mass, 1.0
    faint = silent = np.zeros(chain.size, dtype=np.bool_)  # contexts reached in silence: by faint paths, by clear ones
    for level, fraction in zip(levels, suppression, strict=True):
        if level.kernel is None:
            faint = level.dropped.copy()
        else:
            mass = mass @ level.kernel
            moves = chain.transitions[level.step - 1] > 0
            faint = moves[faint].any(axis=0) | (moves[silent].any(axis=0) & level.dropped)
        released = share * np.bincount(level.contexts, mass * (1 - fraction), chain.size)
        if (faint & _among(level.contexts[fraction < 1], chain.size) & (released < CLEAR)).any():
            return True
        faint &= _among(level.contexts[fraction > 0], chain.size) | level.dropped
        silent = _among(level.contexts[(fraction > 0) & (mass > 0)], chain.size)
        mass = mass * fraction
        left = float(mass.sum())
        if faint.any() and share * left < CLEAR:
            return True
        if left == 0:
            return False
        mass, share = mass / left, share * left
    return False


def _among(contexts: Ints, size: int) -> Bools:
    """(size,): whether each context is one of these."""
    found = np.zeros(size, dtype=np.bool_)
    found[contexts] = True
    return found


def _solved(objective: Floats, rows: Any, limits: Floats, seconds: float, **more: Any) -> Any:
    """The solver's result, or None when it gives up.

    A tight tolerance now and then sends it round in circles; it is then asked again with its usual one.
    """
    for tolerance in TOLERANCES:
        result = linprog(
            objective,
            A_ub=rows,
            b_ub=limits,
            method="highs-ipm" if len(objective) > INTERIOR else "highs-ds",
            options={
                "primal_feasibility_tolerance": tolerance,
                "dual_feasibility_tolerance": tolerance,
                "maxiter": ITERATIONS + len(objective),
                "time_limit": min(max(seconds, 1e-3), LONGEST),
            },
            **more,
        )
        if result.status == 0:
            return result
    return None


def _moved(released: Floats, mass: Floats, rows: Floats, limits: Floats) -> Floats:
    """The releases nearest to these with released @ rows <= limits, between 0 and the mass.

    Each release is moved in parts of itself, so that the solver's tolerance is a part of it too; nothing is returned
    where it finds no such releases.
    """
    some = np.flatnonzero(released > 0)
    if not len(some):
        return released
    parts = released[some, None] * rows[some]  # (m, constraints)
    room = np.minimum(mass[some] / released[some] - 1, 1.0)
    count = len(some)
    result = _solved(
        np.ones(2 * count),
        np.concatenate([parts.T, -parts.T], axis=1),
        limits - released @ rows - MARGIN,
        LONGEST,
        bounds=np.stack([np.zeros(2 * count), np.concatenate([np.maximum(room, 0.0), np.ones(count)])], axis=1),
    )
    moved = np.zeros(len(released))
    if result is not None:
        moved[some] = released[some] * np.clip(1 + result.x[:count] - result.x[count:], 0.0, None)
    return np.asarray(np.minimum(moved, mass))


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
