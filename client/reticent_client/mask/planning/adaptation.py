"""The adaptive check: suppression that depends on the last release and on the current context.

Windows decouple: for each release (t1, i), backwards in time, a table of suppressions for the steps after it is chosen
to release most, counting what its own releases are worth later. Unlike for vectors, suppressing more can breach, so
along one coordinate the private set is an interval; the value is linear in it, and the search goes to the end that the
slope favours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reticent_client.mask.chain import Bools, Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning.automata import Nodes
from reticent_client.mask.planning.release_times import safe_steps
from reticent_client.mask.planning.vectors import FAR, MIN_RELEASE
from reticent_client.mask.planning.windows import Masses, Table, Window
from reticent_client.mask.policy import SILENT, START
from reticent_client.mask.problem import SEARCH, SLACK, TINY, BoundedAdversary, Problem

SWEEPS = 2  # times that a round goes through a table; a third time hardly ever finds more

FADED = 1e-10
"""If at most this share of a window is still suppressed, the rest of it stays suppressed."""


@dataclass
class AdaptiveResult:
    """The best table found for each release, and what each release is then worth."""

    tables: dict[tuple[int, int], Table]  # by (step, context) of the release
    value: float

    def nodes(self, start: int, index: int) -> Nodes:
        """The nodes of one window."""
        table = self.tables.get((start, index))
        return ([], []) if table is None else nodes_of_table(table)


def plan_windows(problem: Problem, vector: Floats, *, rounds: int, deadline: Deadline) -> AdaptiveResult:
    """Choose a table for every release that some private policy may make, from the last step to the start."""
    chain = problem.chain
    worth = np.tile(problem.weights, (chain.horizon, 1))
    tables: dict[tuple[int, int], Table] = {}
    value = 0.0
    for start in range(chain.horizon - 2, START - 1, -1):
        safe = safe_steps(problem, start)
        # a state that an adversary rules out after some release may be released then, if not after every other
        indices = [0] if start == START else map(int, np.flatnonzero(chain.reachable[start]))
        for i in indices:
            window = Window(problem, start, i, worth)
            sweeps = 0 if deadline.passed() else SWEEPS * rounds
            table, value = best_table(window, safe[i], vector, sweeps)
            tables[start, i] = table
            if start != START:
                worth[start, i] += value
    return AdaptiveResult(tables, value)


def best_table(window: Window, safe: Bools, vector: Floats, sweeps: int) -> tuple[Table, float]:
    """The best private table found: never worse than a safe step's, nor than the vector's where that is private."""
    found = [(window.value(table), table) for table in _candidates(window, safe, vector, sweeps)]
    found.sort(key=lambda pair: -pair[0])
    for value, table in found:
        if window.private(table):
            return table, value
    return window.silence(), 0.0


def _candidates(window: Window, safe: Bools, vector: Floats, sweeps: int) -> Iterator[Table]:
    """The starting points of the search, and the possible improvement of each."""
    known = [_safe_table(window, safe), window.as_run(vector[window.first :])]
    starts = [table for table in known if window.private(table)]
    yield from starts
    if sweeps:
        starts.append(_Search(window, window.silence()).forward())
    for table in starts:
        search = _Search(window, table)
        for _ in range(sweeps):
            before = window.value(search.table)
            search.backward()
            yield search.table.copy()
            if window.value(search.table) <= before * (1 + 1e-9):
                break


def _safe_table(window: Window, safe: Bools) -> Table:
    """Release everything at the safe step that is worth most; suppress everything before it."""
    table = window.silence()
    chain = window.problem.chain
    masses = window.opening(chain)
    worths = []
    for level in range(window.length):
        worths.append(float(masses @ window.worth[window.first + level]) if safe[level] else -1.0)
        if window.first + level + 1 < chain.horizon:
            masses = masses @ chain.transitions[window.first + level]
    best = int(np.argmax(worths))
    if worths[best] >= 0:
        table[best] = 0.0
    return table


class _Search:
    """A table that is improved one step at a time, with all other steps fixed."""

    def __init__(self, window: Window, table: Table) -> None:
        self.window = window
        self.chain = window.problem.chain
        self.table = table.copy()

    def forward(self) -> Table:
        """Lower each step in turn as though everything after it were suppressed."""
        window = self.window
        own = Masses.run(window, self.chain, self.table)
        runs = [(each, Masses.run(window, each.chain, self.table, each)) for each in window.adversaries]
        left = 1.0
        for level in own:
            if left < FADED:
                break
            sides = []
            for adversary, run in runs:
                theirs = next(run, None)
                if theirs is not None:
                    sides.append((theirs, _Future.silent(adversary, level.step)))
            self._choose(level, sides, np.zeros(self.chain.size))
            left *= float(level.masses @ self._row(level.step))
        return self.table

    def backward(self) -> None:
        """Choose each step again, from the last to the first, given what the others do now."""
        window = self.window
        own = list(Masses.run(window, self.chain, self.table))
        levels = [
            {level.step: level for level in Masses.run(window, each.chain, self.table, each)}
            for each in window.adversaries
        ]
        last = max([own[-1].step, *(max(found) for found in levels)])
        self.table[last + 1 - window.first :] = 1.0  # nothing ever comes there
        mine = {level.step: level for level in own}
        left = self._left(own)
        futures = [_Future.silent(each, last) for each in window.adversaries]
        onward = np.zeros(self.chain.size)  # what being suppressed at a step is worth
        for step in range(last, window.first - 1, -1):
            row = self._row(step)
            if left.get(step, 0.0) >= FADED:
                sides = [(found[step], future) for found, future in zip(levels, futures, strict=True) if step in found]
                self._choose(mine[step], sides, onward)
            if step == window.first:
                return
            for future, found in zip(futures, levels, strict=True):
                future.step_back(row, found.get(step))
            onward = self.chain.transitions[step - 1] @ ((1 - row) * window.worth[step] + row * onward)

    def _row(self, step: int) -> Floats:
        return np.asarray(self.table[step - self.window.first])

    def _left(self, levels: list[Masses]) -> dict[int, float]:
        """The share of the window that is still suppressed before each step."""
        left, share = {}, 1.0
        for level in levels:
            left[level.step] = share
            share *= float(level.masses @ self._row(level.step))
        return left

    def _choose(self, own: Masses, sides: list[tuple[Masses, _Future]], onward: Floats) -> None:
        """Move each suppression of a step to the end of its private interval that releases more."""
        row = self._row(own.step)
        worth = self.window.worth[own.step]
        free = self.window.problem.releasable[own.step] & (own.masses > 0)
        for level, _ in sides:
            free = free & (level.releasable | ~level.reachable)
        if not free.any():
            return
        found = [_binding(level, future) for level, future in sides]
        empty = np.zeros((0, self.chain.size))
        matrix = np.concatenate([*(rows for rows, _ in found), empty])
        totals = np.concatenate([*(masses for _, masses in found), empty])
        slope = own.masses * (onward - worth)
        waiting = []
        for x in sorted(map(int, np.flatnonzero(free)), key=lambda x: slope[x]):
            target = _end(matrix, totals, row, x, down=slope[x] < 0)
            if slope[x] < 0 and target > 1 - FAR:
                waiting.append(x)
            else:
                row[x] = target
        for x in waiting:
            row[x] = _end(matrix, totals, row, x, down=True)


@dataclass
class _Future:
    """The steps after a step, for one adversary: the probabilities, all of them being suppressed as the table says.

    A target is a later release, or the end of the day. Every column is scaled to a largest entry of 1: what is compared
    with a target's mass is scaled with it.
    """

    adversary: BoundedAdversary
    step: int
    targets: Floats  # (n, v): of arriving at each target, suppressed until then
    tracked: Floats  # (n, k): of passing each later capped state, suppressed until then and there
    rest: Floats  # (k, v): of going on from there to each target
    caps: Floats  # (k,)

    @classmethod
    def silent(cls, adversary: BoundedAdversary, step: int) -> _Future:
        """Everything after the step is suppressed; the end of the day is the only target."""
        rows, caps = adversary.ahead[step]
        n = len(rows)
        return cls(adversary, step, np.ones((n, 1)), rows, np.ones((len(caps), 1)), caps)

    def step_back(self, row: Floats, level: Masses | None) -> None:
        """Go from this step to the one before it; `row` are this step's suppressions."""
        move = self.adversary.chain.transitions[self.step - 1]
        states = np.flatnonzero(np.isfinite(self.adversary.cap[self.step]))
        live = np.flatnonzero((row < 1) & level.reachable) if level is not None else np.zeros(0, int)
        weight, eye = row[:, None], np.eye(len(row))
        targets = move @ np.concatenate([self.targets * weight, eye[:, live]], axis=1)
        tracked = move @ np.concatenate([eye[:, states] * weight, self.tracked * weight], axis=1)
        rest = np.concatenate([self.targets[states], self.rest])
        rest = np.concatenate([rest, np.zeros((len(rest), len(live)))], axis=1)
        keep = targets.max(axis=0) > 0
        most = targets[:, keep].max(axis=0)
        self.targets, rest = targets[:, keep] / most, rest[:, keep] / most
        likely = tracked.max(axis=0)
        likely[likely == 0] = 1.0
        self.tracked, self.rest = tracked / likely, rest * likely[:, None]
        self.caps = np.concatenate([self.adversary.cap[self.step, states] + SEARCH, self.caps])
        self.step -= 1


def _binding(level: Masses, future: _Future) -> tuple[Floats, Floats]:
    """(rows, n): the constraints on a step's suppressions, rows @ suppressions >= 0, that can fail at all.

    Of the mass that arrives at a target, at most the cap passed through each capped state between; the second array
    holds that mass for each constraint.
    """
    n = len(level.masses)
    room = level.caps[:, None] * level.masses - level.passed  # (k, n)
    room = room[(room < 0).any(axis=1)]
    arriving = future.targets.T  # (v, n)
    past = room[:, None, :] * arriving  # (k, v, n)
    some = (future.tracked[level.masses > 0] > 0).any(axis=0)
    through = future.tracked[:, some].T[:, None, :] * future.rest[some][:, :, None]  # (k, v, n)
    coming = level.masses * (future.caps[some][:, None, None] * arriving - through)
    rows = np.concatenate([past.reshape(-1, n), coming.reshape(-1, n)])
    masses = np.tile(level.masses * arriving, (len(room) + int(some.sum()), 1))
    can_fail = (rows < 0).any(axis=1)
    return rows[can_fail], masses[can_fail]


def _end(rows: Floats, masses: Floats, suppressions: Floats, x: int, *, down: bool) -> float:
    """The end of a suppression's private interval, with all others fixed.

    What the others leave is summed without x, not as a difference: a suppression of 1e-11 may be needed.
    """
    value = float(suppressions[x])
    others = suppressions.copy()
    others[x] = 0.0
    left = rows @ others
    if not down:
        falling = rows[:, x] < 0
        return max(value, float((left[falling] / -rows[falling, x]).min(initial=1.0)))
    short = left < -SLACK * (masses @ others)
    needed = -left[short] / np.maximum(rows[short, x], TINY)
    target = min(value, float(needed.max(initial=0.0)))
    return value if value == 1 and target > 1 - MIN_RELEASE else target


def nodes_of_table(table: Table) -> Nodes:
    """One node for each step, as long as anything may still be released."""
    live = np.flatnonzero((table < 1).any(axis=1))
    length = int(live[-1]) + 1 if len(live) else 0
    width = table.shape[1]
    onward = [[level + 1 if level + 1 < length else SILENT] * width for level in range(length)]
    return [table[level] for level in range(length)], onward
