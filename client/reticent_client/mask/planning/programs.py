"""One window's linear programs: how much to suppress of each history, so that no next release reveals too much.

Suppressed and released mass flow linearly through the window's histories. Privacy is one bound for each capped state on
each next release (t2, j), and on reaching the end suppressed: at most the cap of the arriving mass passed through the
state.

All variables are fractions of what would arrive at their history if nothing were released, so that histories of very
different mass are solved equally well. Few of the bounds matter; those that a solution breaks are added, until it
breaks none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from reticent_client.mask.chain import Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning.histories import CappedStates, Ints, Level
from reticent_client.mask.planning.solver import Inequality, LinearProgram, Optimum

END = -1
"""In place of the step of a release: reaching the end suppressed."""

NOTABLE = 1e-9  # a bound that is broken by less mass than this is not added
PART = 0.01  # bounds that are broken by less than this part of the worst are not added yet, in a small program
NEAR = 0.05  # a belief this close to its cap gets its bound in a large program, too
FAINT = 1e-5  # if it is about more mass than this
ROUNDS = 40
PRICED = 1e-12  # a bound that costs less is free

Bound = tuple[int, int, int]
"""The step and the context of a release, and the number of a capped state; k + g for the count of group g."""


@dataclass(frozen=True)
class Flows:
    """A solution: the fractions of each level's histories, and the prices of the bounds by mass."""

    kept: list[Floats]  # per level (m,)
    given: list[Floats]
    prices: dict[Bound, float]

    @property
    def suppressed(self) -> list[Floats]:
        """Per level (m,): the shares suppressed of what arrives."""
        return [
            np.divide(kept, kept + given, out=np.ones(len(kept)), where=kept + given > NOTABLE)
            for kept, given in zip(self.kept, self.given, strict=True)
        ]


def releases_excess(capped: CappedStates, level: Level, shares: Floats | None = None) -> Floats:
    """(m, k + groups): by how much a release of each history exceeds the bound of each earlier state, and each group.

    Shares (m, k) say how much of each history passed each state; without them, what is certain.
    """
    known = np.where(capped.steps < level.step, (level.known if shares is None else shares) - capped.caps, 0.0)
    return np.concatenate([known, level.counted - level.allowed], axis=1)


def end_excess(capped: CappedStates, level: Level, shares: Floats | None = None) -> Floats:
    """(m, k + groups): by how much each suppressed history exceeds the bounds where it is followed no longer."""
    horizon = capped.window.problem.chain.horizon
    after = level.known_after if shares is None else np.maximum(shares, level.known_after)
    if level.step + 1 == horizon:
        counts = level.counted_after(capped.groups) - level.allowed_after
        return np.concatenate([after - capped.caps, counts], axis=1)
    later = level.lost @ (capped.at(level.step + 1) + capped.ahead(level.step + 1))
    ends = (after - capped.caps) * level.lost.sum(axis=1)[:, None] + later
    return np.concatenate([ends, np.zeros((len(ends), len(capped.groups)))], axis=1)


class Program:
    """The linear program over some histories of one window.

    Args:
        capped: The capped states of the window.
        levels: The histories. With merged ones the program is a relaxation: its bounds need not be enough.
        worth: (T, n): what each release is worth.
    """

    def __init__(self, capped: CappedStates, levels: Sequence[Level], worth: Floats) -> None:
        self._levels = levels
        self._first = levels[0].step
        self._size = capped.window.problem.chain.size
        self._offsets = np.concatenate([[0], np.cumsum([len(level.contexts) for level in levels])])
        self._releases = [releases_excess(capped, level) for level in levels]
        self._ends = [end_excess(capped, level) for level in levels]
        self._added: dict[Bound, float] = {}  # with the mass in which each is expressed
        releasable = capped.window.problem.releasable
        allowed = np.concatenate([releasable[level.step, level.contexts] for level in levels])
        total = int(self._offsets[-1])
        self._total = total
        self._free = np.flatnonzero(allowed)
        self._release = np.full(total, -1)  # the variable of each history's released fraction
        self._release[self._free] = total + np.arange(len(self._free))
        gains = np.concatenate([level.mass * worth[level.step, level.contexts] for level in levels])
        sources = np.zeros(total)
        sources[: len(levels[0].contexts)] = 1.0
        self._linear = LinearProgram(np.concatenate([np.zeros(total), gains[self._free]]), self._flow(), sources)

    @property
    def work(self) -> int:
        """The solver's work so far."""
        return self._linear.work

    def solve(self, known: Iterable[Bound], deadline: Deadline) -> Flows | None:
        """The best flows, beginning with some bounds; None when the solver gives up."""
        self._add([bound for bound in known if self._applies(bound)])
        plan: Flows | None = None
        for _ in range(ROUNDS):
            found = self._linear.solve(deadline)
            if found is None:
                return None
            plan = self._plan(found)
            new = self._broken(plan.kept, plan.given)
            if not new or new[0][0] <= NOTABLE:
                break
            self._add([bound for over, bound in new if self._linear.is_large or over >= PART * new[0][0]])
        return plan

    def _plan(self, found: Optimum) -> Flows:
        released = np.zeros(self._total)
        released[self._free] = np.maximum(found.x[self._total :], 0.0)
        masses = zip(self._added.items(), found.prices, strict=True)
        prices = {bound: price / mass for (bound, mass), price in masses if price > PRICED}
        kept = self._by_level(np.maximum(found.x[: self._total], 0.0))
        return Flows(kept, self._by_level(released), prices)

    def _by_level(self, values: Floats) -> list[Floats]:
        return np.split(values, self._offsets[1:-1])

    def _flow(self) -> csr_array:
        """Conservation of mass: the mass suppressed and released at a history is the mass suppressed before it."""
        total, free = self._total, self._free
        rows, columns = [np.arange(total), free], [np.arange(total), self._release[free]]
        values = [np.ones(total), np.ones(len(free))]
        for before, level, *offsets in zip(
            self._levels, self._levels[1:], self._offsets, self._offsets[1:], strict=False
        ):
            moves = level.moves
            if moves is None:
                raise AssertionError("only to the first level nothing leads")
            rows.append(offsets[1] + moves.target)
            columns.append(offsets[0] + moves.source)
            values.append(-moves.chance * before.mass[moves.source] / level.mass[moves.target])
        entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
        return coo_array(entries, shape=(total, total + len(free))).tocsr()

    def _broken(self, kept: list[Floats], given: list[Floats]) -> list[tuple[float, Bound]]:
        """The bounds that these flows break, and how much mass breaks them, the worst first; not those in the program.

        In a large program, those that are nearly broken come, too: it takes long to solve it once more.
        """
        found: list[tuple[float, Bound]] = []
        end = np.zeros(self._ends[0].shape[1])
        for level, stays, goes, release, ends in zip(
            self._levels, kept, given, self._releases, self._ends, strict=True
        ):
            end += (stays * level.mass) @ ends
            sums, released = _by_context(level.contexts, self._size), goes * level.mass
            over = sums @ (released[:, None] * release)
            mass = (sums @ released)[:, None]
            least = np.where((mass > FAINT) & self._linear.is_large, -NEAR * mass, NOTABLE)
            near = (over > least) & (over != 0.0)  # it is 0 for states after the release
            found += [(over[j, k], (level.step, int(j), int(k))) for j, k in np.argwhere(near)]
        found += [(end[k], (END, 0, int(k))) for k in np.flatnonzero(end > NOTABLE)]
        return sorted((each for each in found if each[1] not in self._added), reverse=True)

    def _applies(self, bound: Bound) -> bool:
        """Whether anything can be released there."""
        step, context, _ = bound
        if step == END:
            return True
        nodes = np.flatnonzero(self._levels[step - self._first].contexts == context)
        offset = int(self._offsets[step - self._first])
        return bool((self._release[offset + nodes] >= 0).any())

    def _add(self, bounds: Sequence[Bound]) -> None:
        rows = []
        for bound in bounds:
            row, self._added[bound] = self._row(bound)
            rows.append(row)
        self._linear.add(rows)

    def _row(self, bound: Bound) -> tuple[Inequality, float]:
        """A bound as a row, and the mass in which the row is expressed."""
        step, context, k = bound
        if step == END:
            values = np.concatenate(
                [level.mass * ends[:, k] for level, ends in zip(self._levels, self._ends, strict=True)]
            )
            some = np.flatnonzero(values)
            return Inequality(some, values[some]), 1.0
        number = step - self._first
        level = self._levels[number]
        nodes = np.flatnonzero(level.contexts == context)
        mass = float(level.mass[nodes].sum())
        values = level.mass[nodes] / mass * self._releases[number][nodes, k]
        return Inequality(self._release[self._offsets[number] + nodes], values), mass


def _by_context(contexts: Ints, size: int) -> Floats:
    """(n, m): for sums over the histories of each context."""
    return np.asarray(np.arange(size)[:, None] == contexts, dtype=np.float64)
