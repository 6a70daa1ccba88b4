"""Upper bounds on what any policy can make of a window, proved by prices of the bounds, whatever the solver's accuracy.

A price for each bound turns a window into a problem of stopping: release, and pay for what is known of the past, or go
on. A private policy pays at most 0 on average, so the value of that problem is at least that of every private policy,
for any prices of at least 0. Merged histories pay for what they have certainly passed, and for their number of states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reticent_client.mask.chain import Floats
from reticent_client.mask.planning.histories import CappedStates, Level
from reticent_client.mask.planning.programs import END, Bound, end_excess, releases_excess


@dataclass(frozen=True)
class CeilingProof:
    """Prices of a window's bounds, over merged histories. Those of less mass than `NEGLIGIBLE` count for nothing."""

    opening: Floats
    steps: list[tuple[Level, Floats]]
    """The levels, and what a release of each history pays, (m,): infinite where none is allowed."""
    end: Floats
    """(m,): the worth of silence at the end."""

    @classmethod
    def of(cls, capped: CappedStates, levels: Sequence[Level], prices: Mapping[Bound, float]) -> CeilingProof:
        """The proof by some prices of at least 0."""
        size = len(capped) + len(capped.groups)
        at_end = np.zeros(size)
        at: dict[int, Floats] = defaultdict(lambda: np.zeros((len(capped.numbers[0]), size)))
        for (step, context, number), price in prices.items():
            if step == END:
                at_end[number] = price
            else:
                at[step][context, number] = price
        releasable = capped.window.problem.releasable
        steps = []
        for level in levels:
            pays = np.zeros(len(level.contexts))
            if level.step in at:
                pays = (releases_excess(capped, level) * at[level.step][level.contexts]).sum(axis=1)
            steps.append((level, np.where(releasable[level.step, level.contexts], pays, np.inf)))
        return cls(levels[0].mass, steps, -end_excess(capped, levels[-1]) @ at_end)

    def bound(self, most: Floats) -> float:
        """The most that the window can be worth, if each release can be worth at most this (T, n)."""
        onward = self.end
        for level, pays in reversed(self.steps):
            onward = np.maximum(most[level.step, level.contexts] - pays, onward)
            if level.moves is not None:
                onward = level.moves.back(onward)
        return float(self.opening @ onward)
