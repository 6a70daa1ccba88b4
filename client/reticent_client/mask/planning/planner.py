"""The optimal check: the best release-or-suppress policy, and an upper bound on all of them.

After a release (t1, i) a policy loses nothing by forgetting what came before. Inside the window only the step, the
context and the set of capped states passed since matter. That is one linear program for each (t1, i), backwards in
time.

The windows are swept several times. Each sweep follows more histories, in the windows where the distance between the
value and the bound matters. So the search can be stopped at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reticent_client.mask.chain import Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning.adaptation import nodes_of_table, plan_windows
from reticent_client.mask.planning.automata import Nodes
from reticent_client.mask.planning.refinement import Refinement
from reticent_client.mask.planning.solutions import Solution
from reticent_client.mask.planning.windows import Table, Window
from reticent_client.mask.policy import START
from reticent_client.mask.problem import Problem

State = tuple[int, int]  # a step and a context

SHORT = 1e-6  # a policy whose bound is further than this is not called complete
BUDGET = 6_000_000  # entries of the programs that are solved, times the effort
SWEEPS = 40
PART = 0.1  # a window is refined if its gap matters at least this much, compared with the one whose gap matters most

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
        self._spent = 0
        self._known: dict[State, Refinement] = {}
        self._matters: dict[State, float] = {}  # of each window, how much its own gap may matter in a day
        self._fallback = plan_windows(problem, vector, rounds=effort, deadline=deadline)

    def run(self) -> OptimalResult:
        """Sweep over the windows until the gap is closed, or all that the effort allows was tried.

        An interrupt (ctrl-C) ends the search; what was found until then is kept.
        """
        result = self._sweep(np.inf)
        try:
            for _ in range(SWEEPS if self.effort > 0 else 0):
                if self._progress is not None:
                    self._progress(result.value, result.ceiling)
                missing = result.ceiling - result.value
                if (
                    missing <= max(SHORT, self.gap * result.ceiling)
                    or self._is_over()
                    or not any(self._matters.values())
                ):
                    break
                weights = list(self._matters.values())
                least = PART * max(weights) if self._spent else 0.0
                result = self._sweep(least)
        except KeyboardInterrupt:
            self.deadline.stop()
            result = self._sweep(np.inf)
        return result

    def _is_over(self) -> bool:
        return self._spent >= BUDGET * self.effort or self.deadline.passed()

    def _sweep(self, least: float) -> OptimalResult:
        """Go through all windows, and refine those whose own gap matters at least this much."""
        problem, chain = self.problem, self.problem.chain
        best: dict[State, Table | Solution] = {}
        bounds: dict[State, float] = {}
        value = bound = 0.0
        for start in range(chain.horizon - 2, START - 1, -1):
            indices = [0] if start == START else [int(i) for i in np.flatnonzero(problem.releasable[start])]
            if start != START:
                gain = np.where(problem.releasable[start + 1], self._most[start + 1], 0.0)
                self._after[start] = chain.transitions[start] @ np.maximum(gain, self._after[start + 1])
            for i in indices:
                window = Window(problem, start, i, self._worth)
                if self._matters.get((start, i), 0.0) >= least and not self._is_over():
                    self._spent += self._known[start, i].refine(self._worth, self._most, self.deadline)
                best[start, i], value, bound = self._window(window)
                bounds[start, i] = bound - value
                if start != START:
                    self._worth[start, i] = problem.weights[i] + value
                    self._most[start, i] = problem.weights[i] + bound
        self._weigh(best, bounds)
        return OptimalResult(best, value, bound, bound - value <= SHORT)

    def _window(self, window: Window) -> tuple[Table | Solution, float, float]:
        """The best of a window so far, its value, and an upper bound on what any policy can make of it."""
        key = window.start, window.index
        table = self._fallback.tables[key]
        plain = window.value(table)
        known = self._known.setdefault(key, Refinement(window))
        value = max(plain, known.value(self._worth))
        bound = max(min(self._unprotected(window), known.bound(self._most)), value)
        best = known.best
        return table if best is None or best.value(self._worth) < plain else best, value, bound

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
            self._matters[key] = 0.0 if self._known[key].is_stuck else max(often, often_hoped) * own

    def _unprotected(self, window: Window) -> float:
        """An upper bound for every policy in the window: none exceeds it even if nothing has to be protected."""
        first = window.first
        gain = np.where(self.problem.releasable[first], self._most[first], 0.0)
        return float(window.opening(self.problem.chain) @ np.maximum(gain, self._after[first]))
