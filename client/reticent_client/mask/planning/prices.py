"""Prices of a window's bounds that prove a low ceiling, and a policy that nearly keeps the bounds.

For given prices the best that a history can do is to release and pay, or to go on. One pass backwards through the
histories gives the ceiling that the prices prove. One pass forwards gives the mass by which their policy breaks each
bound, which is the ceiling's slope. Choices are smoothed, so that a quasi-Newton method finds good prices in some
hundred passes: each takes less than a thousandth of the time of a linear program over the same histories.

At the lowest smoothed ceiling the policy breaks no bound, and loses about as much as its choices are soft. In the next
round it costs to choose otherwise than this policy did. This is the proximal-point method: the losses vanish, though
choices stay soft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize
from scipy.sparse import coo_array, csr_array

from reticent_client.mask.chain import Bools, Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning.histories import EXPLORED, NEGLIGIBLE, CappedStates, Ints, Level
from reticent_client.mask.planning.programs import END, Bound, end_excess, releases_excess

SOFT = 0.03  # the softness of choices, in parts of the largest worth of a release
EXACT = 1e-9  # so soft that it does not show
MEMORY = 10  # slopes that the search keeps
FLAT = 1e-8  # the relative progress of a step at which the first search ends
FLATTER = 1e-11  # and a round of the next
LEVEL = 1e-9  # the slope at which it ends
FIRST_STEPS = 150  # of the first search
STEPS, MOST_STEPS = 100, 500  # of each round at first, and at most
PROGRESS = 0.5  # rounds that leave more of the gap have twice as many steps from then on
ROUNDS = 20
NEVER = -1e9  # in place of the worth of a release that is not allowed
ENTRIES = 160  # so many entries take as long in a pass as one in an iteration of the solver
OVERHEAD = 8_000  # and so many as all that a level takes besides
UNUSED = 1e-9  # a price below this is 0
FLATTEST = 1e-9  # the least curvature that counts, in parts of the largest

csr_matvec: Any
try:
    from scipy.sparse._sparsetools import csr_matvec
except ImportError:  # SciPy's own product does the same; it checks more than a small product takes
    csr_matvec = None

_minimize: Any = minimize  # its type stubs do not fit a function with a slope


@dataclass(frozen=True)
class Choices:
    """Prices, and the policy that they lead to."""

    prices: dict[Bound, float]
    suppressed: list[Floats]  # per level (m,)
    value: float  # of the policy, which may break bounds by little


@dataclass(frozen=True)
class _Smoothing:
    """Smoothed choices: the share released is (worth of a release - worth of going on) / unit + centre."""

    unit: float  # in which all values are counted
    release: Floats  # the worth of a release in units, and the centre
    toll: Floats | None  # of each history, released or not


class SmoothCeiling:
    """The ceiling of a window as a function of prices, with smoothed choices.

    Where a release is worth d more than going on, a share s of the history is released. At first it is the one with the
    largest s · d + softness · s · (1 - s): all of it if d is above the softness, nothing if d is below its negative.
    Near the shares c of another policy it is the one with the largest s · d - softness · (s - c)².

    Args:
        capped: The capped states of the window.
        levels: The histories.
        worth: (T, n): what each release is worth.
    """

    def __init__(self, capped: CappedStates, levels: Sequence[Level], worth: Floats) -> None:
        self.work = 0
        """The work of all searches so far, as the solver counts it."""
        self._room = capped.room
        releasable = capped.window.problem.releasable
        self._scale = max(float(worth.max()), 1e-300)
        self._mass = levels[0].mass
        self._moves = [level.moves.matrix for level in levels if level.moves is not None]
        self._back = [matrix.T.tocsr() for matrix in self._moves]
        offsets = np.cumsum([0, *(len(level.contexts) for level in levels)])
        self._parts = [slice(begin, end) for begin, end in pairwise(offsets.tolist())]
        may = [releasable[level.step, level.contexts] for level in levels]
        self._worth = np.concatenate(
            [
                np.where(allowed, worth[level.step, level.contexts], NEVER * self._scale)
                for level, allowed in zip(levels, may, strict=True)
            ]
        )
        self._bounds: list[Bound] = []
        self._excess = self._of_releases(capped, levels, may)
        self._ends = self._of_ends(capped, levels)
        self._by_bound = self._excess.T.tocsr(), self._ends.T.tocsr()
        self._tighter = np.zeros(len(self._bounds))
        entries = self._excess.nnz + self._ends.nnz + sum(matrix.nnz for matrix in self._moves)
        self._entries = 2 * entries + OVERHEAD * len(levels)

    def lower(self, start: Mapping[Bound, float], deadline: Deadline) -> dict[Bound, float]:
        """Prices that prove a lower ceiling than the first ones do."""
        return self._named(self._descend(self._prices(start), self._smoothing(SOFT), FIRST_STEPS, FLAT, deadline))

    def approach(
        self,
        start: Mapping[Bound, float],
        tolerance: float,
        deadline: Deadline,
        near: Sequence[Floats] | None = None,
    ) -> Choices:
        """Prices and a policy that are nearly best.

        Args:
            start: The prices to begin with.
            tolerance: The part of the ceiling that may be missing in the end.
            deadline: When to stop.
            near: Per level (m,): the shares that a policy suppresses, to begin near it.
        """
        prices, steps, missing = self._prices(start), STEPS, np.inf
        if near is None:
            shares = self._shares(prices, self._smoothing(SOFT if len(prices) else EXACT))[1]
        else:
            shares = 1 - np.concatenate(near)
        for _ in range(ROUNDS if len(prices) else 0):
            if deadline.passed():
                break
            smoothing = self._smoothing(SOFT, shares)
            prices = self._descend(prices, smoothing, steps, FLATTER, deadline)
            shares = self._shares(prices, smoothing)[1]
            ceiling, left = self._missing(prices, shares)
            if left <= tolerance * ceiling or steps > MOST_STEPS:
                break
            if left > PROGRESS * missing:
                steps *= 2
            missing = min(left, missing)
        value = float(self._flows(shares)[0] @ self._worth)
        return Choices(self._named(prices), [1 - shares[part] for part in self._parts], value)

    def _descend(self, prices: Floats, smoothing: _Smoothing, steps: int, flat: float, deadline: Deadline) -> Floats:
        """Prices of a lower smoothed ceiling, by the quasi-Newton method, in units that fit the prices."""

        def stop_in_time(_: Floats) -> None:
            if deadline.passed():
                raise StopIteration

        if not len(prices) or deadline.passed():
            return prices
        units = self._units(prices, smoothing)
        result = _minimize(
            self._pass,
            prices / units,
            args=(units, smoothing),
            method="L-BFGS-B",
            jac=True,
            bounds=Bounds(0.0, np.inf),
            callback=stop_in_time,
            options={"maxiter": steps, "maxcor": MEMORY, "ftol": flat, "gtol": LEVEL},
        )
        self.work += (1 + int(result.nfev)) * self._entries // ENTRIES
        return np.asarray(result.x) * units

    def _missing(self, prices: Floats, shares: Floats) -> tuple[float, float]:
        """The ceiling that prices prove, and how far a policy is from it; what it breaks counts at the prices."""
        ceiling, _ = self._shares(prices, self._smoothing(EXACT))
        released, suppressed = self._flows(shares)
        broken = np.maximum(self._broken(released, suppressed), 0.0)
        return ceiling, ceiling - float(released @ self._worth) + float(broken @ prices)

    def leave_room(self, more: Floats) -> None:
        """Tighten the bounds on silence by so much mass, (k,), each time, but by half of what they allow at most."""
        for number, (step, _, column) in enumerate(self._bounds):
            if step == END and column < len(more):
                self._tighter[number] = min(self._tighter[number] + more[column], self._room[column] / 2)

    def policy(self, prices: Mapping[Bound, float], softness: float) -> list[Floats]:
        """Per level (m,): the shares suppressed by the best policy for some prices, with soft choices."""
        _, shares = self._shares(self._prices(prices), self._smoothing(softness))
        return [1 - shares[part] for part in self._parts]

    def _prices(self, prices: Mapping[Bound, float]) -> Floats:
        return np.array([prices.get(bound, 0.0) for bound in self._bounds])

    def _named(self, prices: Floats) -> dict[Bound, float]:
        return {bound: float(price) for bound, price in zip(self._bounds, prices, strict=True) if price > UNUSED}

    def _of_releases(self, capped: CappedStates, levels: Sequence[Level], may: Sequence[Bools]) -> csr_array:
        """(histories, bounds): by how much a release of each history exceeds each bound on releases."""
        rows, columns, values = [], [], []
        for level, allowed, part in zip(levels, may, self._parts, strict=True):
            excess = releases_excess(capped, level)
            can_be_broken = np.zeros((capped.window.problem.chain.size, excess.shape[1]), dtype=np.bool_)
            np.logical_or.at(can_be_broken, level.contexts[allowed], excess[allowed] > 0)
            number = np.full(can_be_broken.shape, -1)
            number[can_be_broken] = len(self._bounds) + np.arange(int(can_be_broken.sum()))
            self._bounds += [(level.step, int(context), int(column)) for context, column in np.argwhere(can_be_broken)]
            node, column = np.nonzero((number[level.contexts] >= 0) & allowed[:, None] & (excess != 0))
            rows.append(part.start + node)
            columns.append(number[level.contexts[node], column])
            values.append(excess[node, column])
        return _matrix(rows, columns, values, (len(self._worth), len(self._bounds)))

    def _of_ends(self, capped: CappedStates, levels: Sequence[Level]) -> csr_array:
        """(histories, bounds): the same for silence to the end of the day, where a history ends or is lost."""
        ends = [
            (part.start, end_excess(capped, level))
            for level, part in zip(levels, self._parts, strict=True)
            if level is levels[-1] or level.lost.any()
        ]
        can_be_broken = np.any([(excess > 0).any(axis=0) for _, excess in ends], axis=0)
        number = np.cumsum(can_be_broken) - 1
        self._bounds += [(END, 0, int(column)) for column in np.flatnonzero(can_be_broken)]
        rows, columns, values = [], [], []
        for offset, excess in ends:
            node, column = np.nonzero((excess != 0) & can_be_broken)
            rows.append(offset + node)
            columns.append(number[column])
            values.append(excess[node, column])
        return _matrix(rows, columns, values, (len(self._worth), int(can_be_broken.sum())))

    def _units(self, prices: Floats, smoothing: _Smoothing) -> Floats:
        """Units of the prices in which the slopes change about equally fast."""
        _, shares = self._shares(prices, smoothing)
        given, kept = self._flows(np.minimum(shares, 1 - EXPLORED))
        releases, ends = self._by_bound
        curvatures = np.concatenate([releases.power(2) @ (given + kept), ends.power(2) @ (given + kept)])
        return np.asarray(1 / np.sqrt(np.maximum(curvatures, FLATTEST * max(float(curvatures.max()), NEGLIGIBLE))))

    def _smoothing(self, softness: float, near: Floats | None = None) -> _Smoothing:
        """Choices of some softness, in parts of the largest worth, near these shares released if there are any."""
        unit = 2 * softness * self._scale
        if near is None:
            return _Smoothing(unit, self._worth / unit + 0.5, None)
        toll = near * near / 2
        return _Smoothing(unit, self._worth / unit + (near - toll), toll)

    def _shares(self, prices: Floats, smoothing: _Smoothing) -> tuple[float, Floats]:
        """The smoothed ceiling, and the shares of all histories that are released."""
        prices, count = prices / -smoothing.unit, self._excess.shape[1]
        release = _times(self._excess, prices[:count])
        release += smoothing.release
        silence = _times(self._ends, prices[count:])
        if smoothing.toll is not None:
            silence -= smoothing.toll
        shares = np.empty(len(release))
        onward = np.zeros(len(release[self._parts[-1]]))
        for part, moves in zip(reversed(self._parts), [*reversed(self._moves), None], strict=True):
            onward += silence[part]
            better = release[part] - onward
            share = shares[part]
            np.minimum(np.maximum(better, 0.0, out=share), 1.0, out=share)
            onward += share * (better - 0.5 * share)
            if moves is not None:
                onward = _times(moves, onward)
        return float(self._mass @ onward) * smoothing.unit, shares

    def _flows(self, shares: Floats) -> tuple[Floats, Floats]:
        """The mass of each history that is released, and suppressed."""
        released, suppressed = np.empty(len(shares)), np.empty(len(shares))
        mass = self._mass
        for part, back in zip(self._parts, [None, *self._back], strict=True):
            if back is not None:
                mass = _times(back, mass)
            np.multiply(mass, shares[part], out=released[part])
            mass = np.subtract(mass, released[part], out=suppressed[part])
        return released, suppressed

    def _pass(self, prices: Floats, units: Floats, smoothing: _Smoothing) -> tuple[float, Floats]:
        """The smoothed ceiling of prices in units, and its slope: by how much mass each bound is broken, negated."""
        prices = prices * units
        ceiling, shares = self._shares(prices, smoothing)
        slope = -self._broken(*self._flows(shares))
        return ceiling - float(self._tighter @ prices), slope * units

    def _broken(self, released: Floats, suppressed: Floats) -> Floats:
        """By how much mass these flows break each bound; negative where they keep it."""
        releases, ends = self._by_bound
        return np.concatenate([_times(releases, released), _times(ends, suppressed)]) + self._tighter


def _matrix(
    rows: Sequence[Ints], columns: Sequence[Ints], values: Sequence[Floats], shape: tuple[int, int]
) -> csr_array:
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    return coo_array(entries, shape=shape).tocsr()


def _times(matrix: csr_array, vector: Floats) -> Floats:
    """The product."""
    if csr_matvec is None:
        return np.asarray(matrix @ vector)
    product = np.zeros(matrix.shape[0])
    csr_matvec(*matrix.shape, matrix.indptr, matrix.indices, matrix.data, vector, product)
    return product
