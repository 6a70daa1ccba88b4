"""The beliefs of an adversary on real days, computed once for each window between two releases.

Given the releases at its ends, beliefs about the steps of a window are independent of the rest of the day. So each pair
of consecutive releases is judged once, on however many days it occurs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from reticent_client.mask.adversary import Adversary, Outputs
from reticent_client.mask.chain import Floats, MarkovChain
from reticent_client.mask.occupancy import DAY_START, Release
from reticent_client.mask.policy import Policy
from reticent_client.mask.rest_of_day import RestOfDay, chain_after, memory_after


@dataclass(frozen=True)
class Learned:
    """The gain of an adversary from the outputs of a day, or of a window of it."""

    rise: Floats  # (steps, k): by how much the belief in each sensitive context rose
    impossible: int
    """The number of steps whose output the adversary's chain rules out."""
    some: Floats  # (k,): the belief in each sensitive context at some of the watched steps


class WindowBeliefs:
    """Beliefs of an adversary who is certain of a chain, as `Adversary.beliefs_of_real_day` has them.

    `watched` maps each sensitive context to the steps of "at some step".
    """

    def __init__(self, policy: Policy, chain: MarkovChain, watched: Mapping[str, Iterable[int]]) -> None:
        self._policy = policy
        self._chain = chain
        self._watched = {label: set(steps) for label, steps in watched.items()}
        self._columns = [chain.index(label) for label in watched]
        self._windows: dict[tuple[Release, Release | None], Learned] = {}
        whole = Adversary(policy, chain)
        self.some_before = np.array([whole.some([], label, steps) for label, steps in self._watched.items()])

    def of_day(self, outputs: Outputs) -> Learned:
        """The gain from the outputs of a whole day."""
        windows, last = [], DAY_START
        for t, label in enumerate(outputs):
            if label is not None:
                release = t, self._chain.index(label)
                windows.append(self._window(last, release))
                last = release
        if last[0] + 1 < self._chain.horizon:
            windows.append(self._window(last, None))
        return Learned(
            np.concatenate([window.rise for window in windows]),
            sum(window.impossible for window in windows),
            1 - np.prod([1 - window.some for window in windows], axis=0),
        )

    def _window(self, begin: Release, end: Release | None) -> Learned:
        found = self._windows.get((begin, end))
        if found is None:
            found = self._windows[begin, end] = self._judge(begin, end)
        return found

    def _judge(self, begin: Release, end: Release | None) -> Learned:
        """The gain from the window after one release, up to and with the next one."""
        first, stop = begin[0] + 1, self._chain.horizon if end is None else end[0] + 1
        own = chain_after(self._policy.chain, begin, stop - 1)
        rest = RestOfDay(self._policy, own, first, memory_after(self._policy, begin))
        adversary = Adversary(rest, chain_after(self._chain, begin, stop - 1))
        outputs: list[str | None] = [None] * (stop - first)
        if end is not None:
            outputs[-1] = self._chain.contexts[end[1]]
        beliefs, impossible = adversary.beliefs_of_real_day(outputs)
        some = [
            adversary.some_of_real_day(outputs, label, inside) if inside else 0.0
            for label, steps in self._watched.items()
            for inside in [{t - first for t in steps if first <= t < stop}]
        ]
        rise = (beliefs - self._chain.prior[first:stop])[:, self._columns]
        return Learned(rise, len(impossible), np.array(some))
