"""Prices of a window's bounds that prove a low ceiling, and a policy that nearly keeps the bounds.

For given prices the best that a history can do is to release and pay, or to go on. One pass backwards through the
histories gives the ceiling that the prices prove. One pass forwards gives the mass by which their policy breaks each
bound, which is the ceiling's slope. Choices are smoothed, so that a quasi-Newton method finds good prices in some
hundred passes: each takes less than a thousandth of the time of a linear program over the same histories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize
from scipy.sparse import coo_array

from reticent_client.mask.chain import Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning.histories import CappedStates, Level
from reticent_client.mask.planning.programs import END, Bound, end_excess, releases_excess

MEMORY = 20  # slopes that the search keeps
FLAT = 1e-6  # the relative progress of a step at which it ends
NEVER = -1e9  # in place of the worth of a release that is not allowed
ENTRIES = 160  # so many entries take as long in a pass as one in an iteration of the solver
OVERHEAD = 8_000  # and so many as all that a level takes besides
GUIDE = 0.1  # how soft the choices of the policy are: softer ones lead to more histories
UNUSED = 1e-9  # a price below this is 0

_minimize: Any = minimize  # its type stubs do not fit a function with a slope


@dataclass(frozen=True)
class PricedPolicy:
    """Prices of bounds, and the best policy for them if choices are a little soft."""

    prices: dict[Bound, float]
    suppressed: list[Floats]  # per level (m,)
    work: int  # as the solver counts it


class SmoothCeiling:
    """The ceiling of a window as a function of prices, with smoothed choices.

    Where a release is worth d more than going on, a share s of the history is released, the one with the largest
    s · d + softness · s · (1 - s): all of it if d is above the softness, nothing if d is below its negative.

    Args:
        capped: The capped states of the window.
        levels: The histories.
        most: (T, n): what each release can be worth at most.
    """

    def __init__(self, capped: CappedStates, levels: Sequence[Level], most: Floats) -> None:
        releasable = capped.window.problem.releasable
        self._scale = max(float(most.max()), 1e-300)
        self._mass = levels[0].mass
        self._moves = [level.moves.matrix for level in levels if level.moves is not None]
        self._back = [matrix.T.tocsr() for matrix in self._moves]
        offsets = np.cumsum([0, *(len(level.contexts) for level in levels)])
        self._parts = [slice(begin, end) for begin, end in pairwise(offsets.tolist())]
        may = [releasable[level.step, level.contexts] for level in levels]
        self._worth = np.concatenate(
            [
                np.where(allowed, most[level.step, level.contexts], NEVER * self._scale)
                for level, allowed in zip(levels, may, strict=True)
            ]
        )
        self._bounds: list[Bound] = []
        rows, columns, values = [], [], []
        for level, allowed, offset in zip(levels, may, offsets, strict=False):
            excess = releases_excess(capped, level)
            can_be_broken = np.zeros((capped.window.problem.chain.size, excess.shape[1]), dtype=np.bool_)
            np.logical_or.at(can_be_broken, level.contexts[allowed], excess[allowed] > 0)
            number = np.full(can_be_broken.shape, -1)
            number[can_be_broken] = len(self._bounds) + np.arange(int(can_be_broken.sum()))
            self._bounds += [(level.step, int(context), int(column)) for context, column in np.argwhere(can_be_broken)]
            node, column = np.nonzero((number[level.contexts] >= 0) & allowed[:, None] & (excess != 0))
            rows.append(offset + node)
            columns.append(number[level.contexts[node], column])
            values.append(excess[node, column])
        ends = end_excess(capped, levels[-1])
        broken = np.flatnonzero((ends > 0).any(axis=0))
        self._ends = np.ascontiguousarray(ends[:, broken])
        self._at_end = slice(len(self._bounds), len(self._bounds) + len(broken))
        self._bounds += [(END, 0, int(column)) for column in broken]
        entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
        self._excess = coo_array(entries, shape=(len(self._worth), len(self._bounds))).tocsr()
        self._by_bound = self._excess.T.tocsr()
        self._entries = 2 * self._excess.nnz + 2 * sum(matrix.nnz for matrix in self._moves) + OVERHEAD * len(levels)

    def lower(
        self, start: Mapping[Bound, float], softnesses: Sequence[float], steps: int, deadline: Deadline
    ) -> PricedPolicy:
        """Prices that prove a lower ceiling than the first ones do.

        Args:
            start: The prices to begin with.
            softnesses: Of the choices, one after the other, in parts of the largest worth of a release.
            steps: Of the quasi-Newton method for each of them.
            deadline: When to stop.
        """

        def stop_in_time(_: Floats) -> None:
            if deadline.passed():
                raise StopIteration

        prices = np.array([start.get(bound, 0.0) for bound in self._bounds])
        passes = 1
        for softness in softnesses:
            if deadline.passed() or not len(prices):
                break
            result = _minimize(
                self._pass,
                prices,
                args=(softness * self._scale,),
                method="L-BFGS-B",
                jac=True,
                bounds=Bounds(0.0, np.inf),
                callback=stop_in_time,
                options={"maxiter": steps, "maxcor": MEMORY, "ftol": FLAT},
            )
            prices = np.asarray(result.x)
            passes += int(result.nfev)
        shares = self._shares(prices, GUIDE * self._scale)[1]
        found = {bound: float(price) for bound, price in zip(self._bounds, prices, strict=True) if price > UNUSED}
        suppressed = [1 - shares[part] for part in self._parts]
        return PricedPolicy(found, suppressed, passes * self._entries // ENTRIES)

    def _shares(self, prices: Floats, softness: float) -> tuple[float, Floats]:
        """The smoothed ceiling, and the shares of all histories that are released."""
        release = self._worth - self._excess @ prices
        onward = -(self._ends @ prices[self._at_end])
        shares = np.empty(len(release))
        for part, moves in zip(reversed(self._parts), [*reversed(self._moves), None], strict=True):
            better = release[part] - onward
            share = np.clip(better / (2 * softness) + 0.5, 0.0, 1.0)
            onward += share * (better + softness * (1 - share))
            shares[part] = share
            if moves is not None:
                onward = moves @ onward
        return float(self._mass @ onward), shares

    def _pass(self, prices: Floats, softness: float) -> tuple[float, Floats]:
        """The smoothed ceiling, and its slope: by how much mass each bound is broken, negated."""
        ceiling, shares = self._shares(prices, softness)
        released = np.empty(len(shares))
        mass = self._mass
        for part, back in zip(self._parts, [None, *self._back], strict=True):
            if back is not None:
                mass = back @ mass
            released[part] = mass * shares[part]
            mass = mass - released[part]
        slope = -(self._by_bound @ released)
        slope[self._at_end] = -(mass @ self._ends)
        return ceiling, slope
