"""The optimal check: the best release-or-suppress policy, and an upper bound on all of them.

After a release (t1, i) a policy loses nothing by forgetting what came before. Inside the window only the step, the
context and the set of sensitive states passed since matter. That is one linear program for each (t1, i), backwards in
time.

Few sensitive states matter in a window. A program that tracks only some of them is a relaxation: its value is an upper
bound, and when its solution happens to keep all other bounds too, it is the optimum. So states are added until it
does. If that makes too many states, the window is cut: everything after the cut is suppressed, which is private. The
same program without the cost of the cut gives the upper bound.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from reticent_client.mask.chain import Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning.adaptation import nodes_of_table, plan_windows
from reticent_client.mask.planning.automata import Nodes
from reticent_client.mask.planning.programs import Flow, Program
from reticent_client.mask.planning.unfolding import Solution, State
from reticent_client.mask.planning.windows import Table, Window
from reticent_client.mask.policy import SILENT, START
from reticent_client.mask.problem import Problem

BUDGET = 1_000_000  # entries in the matrices of all programs, before they are kept small, times the effort
MIN_ENTRIES, MAX_ENTRIES = (
    40_000,
    300_000,
)  # entries that one program may always have, and never more than, times the effort
SHARE = 4  # one program takes no more than this part of what is left
SILENCES = (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)  # shares given up where rounding would break a bound
FAINTEST = (
    0.0,
    1e-8,
    1e-6,
    1e-5,
    1e-4,
)  # how likely a context must be to be released, where that is what a solver stumbles on
CRUMBS = (0.0, 1e-12)  # shares of a state that may be left away as rounding
CLOSE = 1e-7  # values this close are the same to the solver
SHORT = 1e-6  # a policy further below its bound than this is not called complete, if nothing was cut


@dataclass
class OptimalResult:
    """The best of each window, what it is worth, and what no policy can exceed."""

    best: dict[State, Table | Solution]
    value: float
    ceiling: float
    complete: bool

    def nodes(self, start: int, index: int) -> Nodes:
        """The nodes of one window."""
        found = self.best.get((start, index))
        if found is None:
            return [], []
        return _nodes_of_solution(found) if isinstance(found, Solution) else nodes_of_table(found)


class Planner:
    """Solves the windows of a problem from the last step to the start."""

    def __init__(self, problem: Problem, vector: Floats, effort: int, deadline: Deadline) -> None:
        chain = problem.chain
        self.problem = problem
        self.effort = effort
        self.deadline = deadline
        self.worth = np.tile(problem.weights, (chain.horizon, 1))  # of the releases of the policy so far
        self.most = self.worth.copy()  # of the releases of any policy
        self.after = np.zeros((chain.horizon, chain.size))  # of being suppressed, if nothing had to be protected
        self.spent = 0  # entries of the programs so far
        self.in_trouble = False  # whether the solver gave up on a program
        self.cut = False  # whether a program was kept smaller than the day
        self._fallback = plan_windows(problem, vector, rounds=effort, deadline=deadline)

    def run(self) -> OptimalResult:
        """Solve every window."""
        problem, chain = self.problem, self.problem.chain
        best: dict[State, Table | Solution] = {}
        value = bound = 0.0
        for start in range(chain.horizon - 2, START - 1, -1):
            if start == START:
                indices = [0]
            else:
                indices = [int(i) for i in np.flatnonzero(problem.releasable[start])]
                gain = np.where(problem.releasable[start + 1], self.most[start + 1], 0.0)
                self.after[start] = chain.transitions[start] @ np.maximum(gain, self.after[start + 1])
            for i in indices:
                best[start, i], value, bound = self._window(start, i)
                if start != START:
                    self.worth[start, i] += value
                    self.most[start, i] += bound
        short = bound - value > SHORT and not self.cut
        complete = not (self.deadline.expired or self.in_trouble or short)
        return OptimalResult(best, value, max(bound, value), complete)

    def _window(self, start: int, i: int) -> tuple[Table | Solution, float, float]:
        """The best of a window, its value, and an upper bound on what any policy can make of it."""
        window = Window(self.problem, start, i, self.worth)
        table = self._fallback.tables[start, i]
        value = window.value(table)
        found: Table | Solution = table
        solution, bound = self._solve(window)
        if solution is not None and solution.value > value:
            found, value = solution, solution.value
        return found, value, max(bound, value)

    def _solve(self, window: Window) -> tuple[Solution | None, float]:
        """The window's optimum, or the best below it that the limits allow, and the bound on both."""
        bound = self._unprotected(window)
        if self.deadline.passed():
            return None, bound
        program = Program(window, [], window.length * self.problem.chain.size**2)
        solution = program.evaluate(program.greedy(self.worth))
        tracked: set[State] = set()
        while not solution.private:
            new = {state for state in solution.broken if state not in tracked}
            if not new or self.effort == 0 or self.deadline.passed():
                self.cut |= self.effort == 0
                return None, bound
            tracked |= new
            program = Program(window, sorted(tracked), self._limit())
            self.spent += program.entries
            self.cut |= not program.whole
            attempt = self._attempt(program)
            if attempt is None:
                return None, min(bound, self._bound(program))
            solution, promised = attempt
            if solution.private:
                bound = min(bound, self._bound(program, promised))
        return solution, bound

    def _limit(self) -> int:
        """The largest size of the next program: early ones must leave something for those that begin the day."""
        left = (BUDGET * self.effort - self.spent) // SHARE
        return min(max(left, MIN_ENTRIES * self.effort), MAX_ENTRIES * self.effort)

    def _unprotected(self, window: Window) -> float:
        """An upper bound for every policy in the window: none exceeds it even if nothing has to be protected."""
        first = window.first
        gain = np.where(self.problem.releasable[first], self.most[first], 0.0)
        return float(window.opening(self.problem.chain) @ np.maximum(gain, self.after[first]))

    def _attempt(self, program: Program) -> tuple[Solution, float] | None:
        """The program's solution, evaluated exactly, and the value that the solver promised; None when it gives up."""
        promised, best = -np.inf, None
        for least in FAINTEST:
            tried = program if least == 0 else program.without_faint_releases(least)
            result = tried.solve(self.worth, None, self.deadline.left())
            if result is None:
                break
            promised = max(promised, result[1])
            solution = self._made_private(tried, *result)
            if solution is not None and not solution.private:
                return solution, promised  # states are missing
            if solution is not None and (best is None or solution.value > best.value):
                best = solution
            if best is not None and best.value > promised - SHORT:
                break
        self.in_trouble |= best is None
        return None if best is None else (best, promised)

    def _made_private(self, program: Program, flows: list[Flow], promised: float) -> Solution | None:
        """The best private solution near the solver's; one that breaks the bounds of untracked states, if it does."""
        known = set(program.tracked)
        best: Solution | None = None
        for silence, crumb in itertools.product(SILENCES, CRUMBS):
            solution = program.evaluate(program.suppressions(flows, silence, crumb))
            if set(solution.broken) - known:
                return solution
            if solution.private and (best is None or solution.value > best.value):
                best = solution
                if best.value > promised - CLOSE:
                    break
        return best

    def _bound(self, program: Program, promised: float | None = None) -> float:
        """An upper bound for every policy in the program's window.

        The value that the program promised will do where later releases cannot be worth more than they are.
        """
        later = slice(program.window.first, None)
        missing = float((self.most - self.worth)[later].max(initial=0.0))
        if promised is not None and program.whole and missing < CLOSE:
            return promised + missing
        after = None if program.whole else self.after
        result = program.solve(self.most, after, self.deadline.left())
        return np.inf if result is None else result[1]


def _nodes_of_solution(solution: Solution) -> Nodes:
    """One node for each step and set of tracked states passed before it, where anything may still be released."""
    levels = solution.levels
    size = len(levels[0].marks)
    places = [
        {(int(x), int(h)): k for k, (x, h) in enumerate(zip(level.contexts, level.passed, strict=True))}
        for level in levels
    ]
    rows: list[Floats] = []
    onward: list[list[int]] = []
    numbers: dict[tuple[int, int], int] = {}

    def row_of(depth: int, passed: int) -> tuple[Floats, list[int]]:
        """The suppressions of a node, and the set with which each suppressed context goes on (-1 for none).

        A context that cannot come there may come all the same; it adds nothing to the set.
        """
        row, sets = np.ones(size), [-1] * size
        for x in range(size):
            mark = int(levels[depth].marks[x])
            k = places[depth].get((x, passed | mark))
            if k is not None:
                row[x] = solution.suppression[depth][k]
                sets[x] = passed | mark if row[x] > 0 else -1
            elif not mark:
                sets[x] = passed
        return row, sets

    def number_of(depth: int, passed: int) -> int:
        """The node's number; SILENT where nothing is released from it on."""
        if depth == len(levels):
            return SILENT
        known = numbers.get((depth, passed))
        if known is not None:
            return known
        row, sets = row_of(depth, passed)
        place = len(rows)
        rows.append(row)
        onward.append([])
        leads = [SILENT if after == -1 else number_of(depth + 1, after) for after in sets]
        if (row == 1).all() and all(lead == SILENT for lead in leads):
            rows.pop()
            onward.pop()
            place = SILENT
        else:
            onward[place] = leads
        numbers[depth, passed] = place
        return place

    number_of(0, 0)
    return rows, onward
