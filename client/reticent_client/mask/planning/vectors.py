"""Suppression vectors: one probability for each state, found coordinate by coordinate in closed form.

Section 3.4 of Götz's dissertation. In the constraint of every window the numerator and the denominator are linear in
each single suppression probability. With all others fixed, the smallest private one is therefore a maximum of ratios.
Going once through the coordinates from p = 1, in any order, ends at a vector that no coordinate can leave downwards:
privacy is monotone, so a coordinate that was as low as it could be when others were higher cannot go lower afterwards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reticent_client.errors import TooLarge
from reticent_client.mask.chain import Bools, Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.problem import SEARCH, SLACK, TINY, BoundedAdversary, Problem

MIN_RELEASE = 1e-6
"""A release less likely than this is not worth the windows it opens, nor the rounding it would rest on."""

MAX_SCALE = 250.0
"""The power of ten that all weights together may reach: no mass can exceed it, and so none overflows."""

FAR = 0.9
"""A coordinate that cannot fall this far waits for the others."""

MAX_BLOCK = 1 << 22  # beliefs held at once, in numbers
WORK = 4e8  # beliefs that one round of orders may look at before no further order is begun
ORDERS = 3  # orders in one round
THOROUGH = 4  # rounds of orders for each round of a check's effort
EXACT_STATES = 40  # states that an exact search may choose for
EXACT_NODES = 20_000  # partial vectors that it may visit

Coordinate = tuple[int, int]
Group = tuple[int, tuple[int, ...]]  # a step and the contexts that are lowered there, in this order


@dataclass
class _View:
    """One adversary's masses between all pairs of states, under the current suppressions.

    Node 0 is the start, node 1 + t n + i the state (t, i), the last node the end. `mass[u, v]` sums, over the paths
    from u to v, the products of moves and of `weight` strictly in between; `can[u, v]` says whether there is such a
    path, free of underflow. `weight` is the suppression divided by its mean at the step, as far as the product of all
    such scales allows: beliefs are ratios in which a step's scale cancels, and long days would underflow without it.
    """

    adversary: BoundedAdversary
    mass: Floats
    can: Bools
    weight: Floats
    nodes: npt.NDArray[np.int64]  # the capped nodes, in order of time
    levels: list[tuple[int, int]]  # where those of each step begin and end
    caps: Floats
    scales: Floats  # (T,): the powers of ten in the weights
    work: float = 0.0  # beliefs looked at so far

    @classmethod
    def of(cls, adversary: BoundedAdversary) -> _View:
        """The view of an adversary when everything is suppressed."""
        chain = adversary.chain
        horizon, n = chain.horizon, chain.size
        end = horizon * n + 1
        mass, can = np.zeros((end + 1, end + 1)), np.zeros((end + 1, end + 1), dtype=np.bool_)
        mass[0, 1:end], can[0, 1:end] = chain.prior.ravel(), chain.reachable.ravel()
        mass[:end, end], can[:end, end] = 1.0, True
        for t in range(horizon):
            possible = np.eye(n, dtype=np.bool_)
            for gap, onward in enumerate(adversary.between[t]):
                possible = possible @ (chain.transitions[t + gap] > 0)
                there = _level(t + gap + 1, n)
                mass[_level(t, n), there], can[_level(t, n), there] = onward, possible
        capped = adversary.capped & chain.reachable
        nodes = 1 + np.flatnonzero(capped.ravel())
        ends = np.cumsum([0, *capped.sum(axis=1)])
        levels = [(int(first), int(last)) for first, last in itertools.pairwise(ends)]
        return cls(
            adversary, mass, can, np.ones(end + 1), nodes, levels, adversary.cap[capped] + SEARCH, np.zeros(horizon)
        )

    def copy(self) -> _View:
        """A view that can be changed by itself."""
        arrays = self.mass.copy(), self.can.copy(), self.weight.copy()
        return _View(self.adversary, *arrays, self.nodes, self.levels, self.caps, self.scales.copy())

    def set(self, t: int, row: Floats) -> None:
        """Make the suppressions at step t those of `row`."""
        n = len(row)
        here, before, after = _level(t, n), slice(0, 1 + t * n), slice(1 + (t + 1) * n, None)
        mean = float(self.adversary.chain.prior[t] @ row)
        others = float(self.scales.sum() - self.scales[t])
        self.scales[t] = min(-math.log10(max(mean, TINY)), MAX_SCALE - others)
        self.weight[here] = row * 10 ** self.scales[t]
        self.work += (here.start * n * (len(self.mass) - here.stop)) / 10  # multiplied by the fast library
        self.mass[before, after] = (self.mass[before, here] * self.weight[here]) @ self.mass[here, after]
        passing = (self.can[before, here] & (row > 0)).astype(np.float32)
        self.can[before, after] = passing @ self.can[here, after].astype(np.float32) > 0

    def floor(self, t: int, i: int, row: Floats, live: Bools) -> float:
        """The least suppression of (t, i) that keeps every belief of this adversary within its cap.

        `row` (n,) holds the suppressions at step t; `live` the nodes that may be released. For a window (u, v) around
        (t, i) and a capped state k in it, let D and N be its mass and the mass through k, both with (t, i) released,
        and D1 and N1 the masses through (t, i). Then p has to keep N + p N1 <= cap (D + p D1). Where a window stands
        exactly at its bound, whatever is done here, it shows an excess of rounding alone, and needs nothing.
        """
        n = len(row)
        here, c = _level(t, n), 1 + t * n + i
        (starts,) = (live[: here.start] & self.can[: here.start, c]).nonzero()
        if not len(starts):
            return 0.0  # this adversary rules the state out
        first, last = self.levels[t]
        before, level, after = self.nodes[:first], self.nodes[first:last], self.nodes[last:]
        rows = self.mass[starts]  # (u, nodes)
        into = rows[:, c, None]  # (u, 1)
        shape = len(starts), len(self.nodes)
        through, gains = np.empty(shape), np.empty(shape)  # (u, k)
        through[:, :first] = rows[:, before] * self.weight[before]
        gains[:, :first] = self.caps[:first] * into - through[:, :first] * self.mass[before, c]
        if into.min() < TINY or (gains[:, :first] < -SLACK * into).any():
            return 1.0  # releasing it would itself be a breach
        (stops,) = (live[here.stop :] & self.can[c, here.stop :]).nonzero()
        stops += here.stop
        out = self.mass[c, stops]  # (v,)
        caps = self.caps[:, None]
        onward, ways = np.empty((len(self.nodes), len(stops))), np.empty((len(self.nodes), len(stops)))  # (k, v)
        onward[last:] = self.mass[after[:, None], stops]
        ways[last:] = caps[last:] * out - (self.mass[c, after] * self.weight[after])[:, None] * onward[last:]
        if out.min() < TINY or (ways[last:] < -SLACK * out).any():
            return 1.0
        others = row.copy()
        others[i] = 0.0
        left, right = rows[:, here] * others, self.mass[here, stops]
        total = left @ right  # D, (u, v)
        if total.min() < TINY:
            possible = (self.can[starts, here] & (others > 0)) @ self.can[here, stops]
            if (total[possible] < TINY).any():
                return 1.0
        through[:, first:last] = left[:, level - here.start]
        through[:, last:] = left @ (self.mass[here, after] * self.weight[after])
        onward[:first] = (self.mass[before, here] * others) @ right
        onward[first:last] = self.mass[level[:, None], stops]
        gains[:, first:last] = self.caps[first:last] * into
        gains[:, last:] = into
        ways[:last] = out
        self.work += len(starts) * onward.size
        need = 0.0
        for u in _blocks(len(starts), onward.size):  # N = through * onward; cap D1 - N1 = gains * ways
            excess = through[u, :, None] * onward - caps * total[u, None, :]
            counts = excess > SLACK * total[u, None, :]
            if counts.any():
                gain = np.maximum((gains[u, :, None] * ways)[counts], TINY)
                need = max(need, float((excess[counts] / gain).max()))
        return min(need, 1.0)


class Lowering:
    """A vector on its way down from "suppress everything"."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        chain = problem.chain
        self.table = np.ones((chain.horizon, chain.size))
        self._live = np.zeros(chain.horizon * chain.size + 2, dtype=np.bool_)
        self._live[[0, -1]] = True
        self._views = [_View.of(adversary) for adversary in problem.adversaries]

    @property
    def work(self) -> float:
        """The number of beliefs examined: the cost of the way down, the same on every machine."""
        return sum(view.work for view in self._views)

    def copy(self) -> Lowering:
        """A twin that can be lowered by itself."""
        twin = object.__new__(Lowering)
        twin.problem, twin.table, twin._live = self.problem, self.table.copy(), self._live.copy()
        twin._views = [view.copy() for view in self._views]
        return twin

    def floor(self, t: int, i: int) -> float:
        """The least private suppression of a coordinate that still stands at 1."""
        if not self.problem.releasable[t, i]:
            return 1.0
        return max(view.floor(t, i, self.table[t], self._live) for view in self._views)

    def set(self, t: int, i: int, value: float) -> None:
        """Lower a coordinate; `settle` the step before another step's floor is asked."""
        self.table[t, i] = value
        self._live[1 + t * self.table.shape[1] + i] = value < 1

    def settle(self, t: int) -> None:
        """Carry the step's new suppressions into all windows across it."""
        for view in self._views:
            view.set(t, self.table[t])

    def run(self, order: Sequence[Group], grid: int | None = None) -> Floats:
        """Lower every coordinate as far as it goes, and return the vector.

        What cannot fall far waits until all the others have had their turn: a release that hardly ever happens opens as
        many windows as one that always does, and they stand in the way of all that comes after. What cannot fall at all
        never will: as others fall, floors only rise.
        """
        waiting = [(t, self._lower(t, contexts, FAR, grid)) for t, contexts in order]
        for t, contexts in waiting:
            self._lower(t, contexts, MIN_RELEASE, grid)
        return self.table

    def _lower(self, t: int, contexts: Sequence[int], least: float, grid: int | None) -> tuple[int, ...]:
        """Lower those contexts of a step that fall by at least `least`; those that fall less are returned."""
        waiting: list[int] = []
        lowered = False
        for i in contexts:
            value = _on_grid(self.floor(t, i), grid)
            if value <= 1 - least:
                self.set(t, i, value)
                lowered = True
            elif value < 1:
                waiting.append(i)
        if lowered:
            self.settle(t)
        return tuple(waiting)


def best_vector(problem: Problem, *, rounds: int, grid: int | None = None, deadline: Deadline) -> Floats:
    """The vector with the highest utility among several orders; all ones if the deadline leaves no time for any."""
    best, most, work = np.ones_like(problem.deltas), -1.0, 0.0
    untouched = Lowering(problem)
    for order in _orders(problem, max(1, ORDERS * rounds)):
        if deadline.passed() or work > WORK * max(rounds, 1):
            break
        lowering = untouched.copy()
        table = lowering.run(order, grid)
        work += lowering.work
        utility = vector_utility(problem, table)
        if utility > most:
            best, most = table, utility
    return best


def thorough_vector(problem: Problem, effort: int, deadline: Deadline) -> Floats:
    """The vector that the checks with an effort start from: they try more orders than `probabilistic` does."""
    return best_vector(problem, rounds=max(1, THOROUGH * effort), deadline=deadline)


def vector_utility(problem: Problem, table: Floats) -> float:
    """The expected releases of a day: the sum of (1 - p) times the prior and the weight."""
    return float((problem.gains * (1 - table)).sum())


def exact_vector(problem: Problem, grid: int) -> Floats:
    """The best vector on the grid {0, 1/grid, ..., 1} (what ALGPR finds), by branch and bound.

    A branch is cut when its lowered coordinates breach with all others at 1, or when releasing all others could not
    beat the best vector so far.
    """
    gains = problem.gains
    free = [(int(t), int(i)) for t, i in np.argwhere(problem.releasable & (gains > 0))]
    free.sort(key=lambda c: (c[0], -gains[c]))
    advice = 'use search="greedy", a coarser grid, or a shorter day'
    if len(free) > EXACT_STATES:
        raise TooLarge(
            f"an exact search chooses for at most {EXACT_STATES} states, this chain has {len(free)}: {advice}"
        )
    rest = np.append(np.cumsum([gains[c] for c in reversed(free)])[::-1], 0.0)
    best = np.ones_like(gains)
    most = 0.0
    visited = 0

    def visit(lowering: Lowering, depth: int, value: float) -> None:
        nonlocal best, most, visited
        visited += 1
        if visited > EXACT_NODES:
            raise TooLarge(
                f"an exact search over {len(free)} states on a grid of {grid} visits more than {EXACT_NODES} vectors: "
                f"{advice}"
            )
        if value > most + 1e-12:
            best, most = lowering.table.copy(), value
        if depth == len(free) or value + rest[depth] <= most + 1e-12:
            return
        t, i = free[depth]
        least = _on_grid(lowering.floor(t, i), grid)
        for step in range(round(least * grid), grid + 1):
            lowered = step / grid
            branch = lowering.copy()
            if lowered < 1:
                branch.set(t, i, lowered)
                branch.settle(t)
            visit(branch, depth + 1, value + gains[t, i] * (1 - lowered))

    visit(Lowering(problem), 0, 0.0)
    return best


def _orders(problem: Problem, count: int) -> Iterator[list[Group]]:
    """Orders to try, the most promising first. No order does best for everybody; what gains nothing comes last."""
    gains = problem.gains
    overall = gains.sum(axis=0)
    states = [(int(t), int(i)) for t, i in np.argwhere(problem.releasable)]
    rng = np.random.default_rng(0)  # which orders are tried is no secret and must not change between runs
    ranks: list[Callable[[Coordinate], object]] = [
        lambda c: (-gains[c], c),
        lambda c: (gains[c], c),
        lambda c: (c[0], gains[c]),
        lambda c: (-overall[c[1]], -c[0]),
        lambda c: (overall[c[1]], c),
    ]
    for number in range(count):
        if number < len(ranks):
            order = sorted(states, key=ranks[number])  # type: ignore[arg-type]  # all return what can be compared
        else:
            luck = rng.random(gains.shape) * gains
            order = sorted(states, key=luck.__getitem__)
        order.sort(key=lambda c: problem.weights[c[1]] == 0)
        yield [(t, tuple(i for _, i in group)) for t, group in itertools.groupby(order, key=lambda c: c[0])]


def _on_grid(value: float, grid: int | None) -> float:
    """The value, or the next one up on the grid; 1 when what is left to release is not worth having."""
    if grid is not None:
        value = math.ceil(value * grid * (1 - 1e-12)) / grid
    return 1.0 if value > 1 - MIN_RELEASE else value


def _level(t: int, n: int) -> slice:
    """The nodes of a step."""
    return slice(1 + t * n, 1 + (t + 1) * n)


def _blocks(rows: int, width: int) -> Iterator[slice]:
    """Rows in blocks of bounded size."""
    if width:
        size = max(1, MAX_BLOCK // width)
        for start in range(0, rows, size):
            yield slice(start, min(start + size, rows))
