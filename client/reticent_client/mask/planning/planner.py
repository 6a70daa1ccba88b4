"""The optimal check: the best release-or-suppress policy, and an upper bound on all of them.

After a release (t1, i) a policy loses nothing by forgetting what came before. Inside the window only the step, the
context and the set of capped states passed since matter. That is one linear program for each (t1, i), backwards in
time.

First each window is solved coarsely. Then those whose distance between value and bound matters most are refined, a few
at a time on several cores, and all windows are evaluated anew. So the search can be stopped at any time. Its order does
not depend on the time that anything takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from reticent_client.mask.chain import Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning.adaptation import nodes_of_table, plan_windows
from reticent_client.mask.planning.automata import Nodes
from reticent_client.mask.planning.refinement import SAME, Refinement
from reticent_client.mask.planning.solutions import Solution
from reticent_client.mask.planning.solver import in_turn
from reticent_client.mask.planning.windows import Table, Window
from reticent_client.mask.policy import START
from reticent_client.mask.problem import Problem

State = tuple[int, int]  # a step and a context

SHORT = 1e-6  # a policy whose bound is further than this is not called complete
BUDGET = 15_000_000  # the work of all searches for prices and programs, times the effort
FIRST = 12.0  # times the work of all, after which the first search of windows is short, but for that of the start
RESERVED = 0.5  # of the time, the same
ROUNDS = 60
PART = 0.3  # windows are refined together if they promise this part of what the best one promises for its work
TOGETHER = 6  # windows, at most
WORKERS = min(os.cpu_count() or 1, 4)  # windows that are refined at the same time

Progress = Callable[[float, float], None]
"""Called with the value and the ceiling so far."""


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
        return found.nodes() if isinstance(found, Solution) else nodes_of_table(found)


class Planner:
    """Solves the windows of a problem, from the last step to the start."""

    def __init__(
        self,
        problem: Problem,
        vector: Floats,
        effort: int,
        deadline: Deadline,
        *,
        gap: float = 0.0,
        progress: Progress | None = None,
    ) -> None:
        chain = problem.chain
        self.problem = problem
        self.effort = effort
        self.deadline = deadline
        self.gap = gap
        self._progress = progress
        self._worth = np.tile(problem.weights, (chain.horizon, 1))  # of the releases of the policy so far
        self._most = self._worth.copy()  # of the releases of any policy
        self._after = np.zeros((chain.horizon, chain.size))  # of being suppressed, if nothing had to be protected
        self._visits = np.array(list(accumulate(chain.transitions, np.matmul, initial=chain.initial)))
        self._spent = 0
        self._time = deadline.left()
        self._known: dict[State, Refinement] = {}
        self._matters: dict[State, tuple[float, float]] = {}  # how often each window begins, and its own gap
        self._fallback = plan_windows(problem, vector, rounds=effort, deadline=deadline)

    def run(self) -> OptimalResult:
        """Refine windows until the gap is closed, or all that the effort allows was tried.

        An interrupt (ctrl-C) ends the search; what was found until then is kept.
        """
        result = self._sweep(None)
        with ThreadPoolExecutor(WORKERS) as pool:
            try:
                for number in range(ROUNDS if self.effort > 0 else 0):
                    if self._progress is not None:
                        self._progress(result.value, result.ceiling)
                    missing = result.ceiling - result.value
                    if missing <= max(SHORT, self.gap * result.ceiling) or self._is_over():
                        break
                    if number == 0:
                        result = self._sweep(pool)
                    elif chosen := self._next():
                        self._refine(chosen, pool)
                        result = self._sweep(None)
                    else:
                        break
            except KeyboardInterrupt:
                self.deadline.stop()
                pool.shutdown(cancel_futures=True)
                result = self._sweep(None)
        return result

    def _is_over(self) -> bool:
        return self._spent >= BUDGET * self.effort or self.deadline.passed()

    def _next(self) -> list[State]:
        """The next to be refined: those whose gap matters most for the work that they need."""
        promises = {
            key: often * self._known[key].promise(gap, self._worth, self._most)
            for key, (often, gap) in self._matters.items()
            if often * gap > 0
        }
        best = sorted(promises, key=lambda key: (-promises[key], key))[:TOGETHER]
        return [key for key in best if promises[key] >= PART * promises[best[0]] and promises[key] > 0]

    def _refine(self, windows: Sequence[State], pool: Executor) -> None:
        """Refine some windows, each for the later releases as they are."""
        for start, index in windows:
            self._known[start, index].begin(self._at_most(start, index), self._like(start, index))

        def refine(key: State) -> int:
            with in_turn():
                return self._known[key].refine(self._worth, self._most, self.deadline)

        longest_first = sorted(windows, key=lambda key: (-self._known[key].work, key))
        self._spent += sum(pool.map(refine, longest_first))

    def _like(self, start: int, index: int) -> Refinement | None:
        """The search in a window that opens a step later: of the same context, or else where most is remembered."""
        if same := self._known.get((start + 1, index)):
            return same
        later = [known for key, known in sorted(self._known.items()) if key[0] == start + 1]
        return max(later, key=lambda known: known.remembered, default=None)

    def _sweep(self, pool: Executor | None) -> OptimalResult:
        """Go through all windows, and with a pool refine each for what is known of those after it."""
        problem, chain = self.problem, self.problem.chain
        best: dict[State, Table | Solution] = {}
        bounds: dict[State, float] = {}
        value = bound = 0.0
        for start in range(chain.horizon - 2, START - 1, -1):
            indices = [0] if start == START else [int(i) for i in np.flatnonzero(problem.releasable[start])]
            if start != START:
                gain = np.where(problem.releasable[start + 1], self._most[start + 1], 0.0)
                self._after[start] = chain.transitions[start] @ np.maximum(gain, self._after[start + 1])
            windows = {(start, i): Window(problem, start, i, self._worth) for i in indices}
            for key, window in windows.items():
                self._known.setdefault(key, Refinement(window))
            if pool is not None and not self.deadline.passed():
                self._refine([key for key, window in windows.items() if self._gap(window) > SAME], pool)
            for key, window in windows.items():
                best[key], value, bound = self._window(window)
                bounds[key] = bound - value
                if start != START:
                    self._worth[key] = problem.weights[key[1]] + value
                    self._most[key] = problem.weights[key[1]] + bound
        self._weigh(best, bounds)
        return OptimalResult(best, value, bound, bound - value <= SHORT)

    def _window(self, window: Window) -> tuple[Table | Solution, float, float]:
        """The best of a window so far, its value, and an upper bound on what any policy can make of it."""
        key = window.start, window.index
        table = self._fallback.tables[key]
        plain = window.value(table)
        known = self._known[key]
        value = max(plain, known.value(self._worth))
        bound = max(min(self._unprotected(window), known.bound(self._most)), value)
        best = known.best
        return table if best is None or best.value(self._worth) < plain else best, value, bound

    def _gap(self, window: Window) -> float:
        _, value, bound = self._window(window)
        return bound - value

    def _weigh(self, best: dict[State, Table | Solution], gaps: dict[State, float]) -> None:
        """Find how much the gap of each window, without those of the windows after it, matters in a day."""
        chain = self.problem.chain
        begins = np.zeros((chain.horizon, chain.size))  # how often each window begins under the policy so far
        hoped = begins.copy()  # and under a policy that reaches the bounds
        missing = self._most - self._worth
        for key in sorted(best):
            found, window = best[key], Window(self.problem, *key, self._worth)
            released = found.released if isinstance(found, Solution) else window.released(found)
            for_bound = self._known[key].hoped
            if for_bound is None:
                for_bound = released
            often, often_hoped = (1.0, 1.0) if window.start == START else (begins[key], hoped[key])
            begins += often * released
            hoped += often_hoped * for_bound
            own = max(gaps[key] - float((for_bound * missing).sum()), 0.0)
            self._matters[key] = max(often, often_hoped), own

    def _at_most(self, start: int, index: int) -> float:
        """The most often that a window can begin: as often as the user is there.

        0 if too much work or time is spent already: the windows before are then searched as though they were rare.
        """
        if start == START:
            return 1.0
        is_late = self._spent > FIRST * BUDGET * self.effort or self.deadline.left() < RESERVED * self._time
        return 0.0 if is_late else float(self._visits[start, index])

    def _unprotected(self, window: Window) -> float:
        """An upper bound for every policy in the window: none exceeds it even if nothing has to be protected."""
        first = window.first
        gain = np.where(self.problem.releasable[first], self._most[first], 0.0)
        return float(window.opening(self.problem.chain) @ np.maximum(gain, self._after[first]))
