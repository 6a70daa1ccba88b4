"""Upper bounds on what any policy can make of a window, proved by prices of the bounds, whatever the solver's accuracy.

A price for each bound turns a window into a problem of stopping: release, and pay for what is known of the past, or go
on. A private policy pays at most 0 on average, so the value of that problem is at least that of every private policy,
for any prices of at least 0. Merged histories pay for what they have certainly passed, and for their number of states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reticent_client.mask.chain import Floats
from reticent_client.mask.planning.histories import CappedStates, Level
from reticent_client.mask.planning.programs import END, Bound, end_excess, releases_excess


@dataclass(frozen=True)
class CeilingProof:
    """Prices of a window's bounds, over merged histories. Those of less mass than `NEGLIGIBLE` count for nothing."""

    capped: CappedStates
    levels: list[Level]
    prices: Mapping[Bound, float]

    def bound(self, most: Floats) -> float:
        """The most that the window can be worth, if each release can be worth at most this (T, n)."""
        size = len(self.capped) + len(self.capped.groups)
        at_end = np.zeros(size)
        at: dict[int, Floats] = defaultdict(lambda: np.zeros((len(self.capped.numbers[0]), size)))
        for (step, context, number), price in self.prices.items():
            if step == END:
                at_end[number] = price
            else:
                at[step][context, number] = price
        releasable = self.capped.window.problem.releasable
        onward = -end_excess(self.capped, self.levels[-1]) @ at_end
        for level in reversed(self.levels):
            gain = most[level.step, level.contexts]
            if level.step in at:
                gain = gain - (releases_excess(self.capped, level) * at[level.step][level.contexts]).sum(axis=1)
            gain = np.where(releasable[level.step, level.contexts], gain, -np.inf)
            onward = np.maximum(gain, onward)
            if level.moves is not None:
                onward = level.moves.back(onward)
        return float(self.levels[0].mass @ onward)
