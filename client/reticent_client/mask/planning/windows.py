"""Windows: the steps between one release and the next, and the bounds on beliefs about them.

What lies between a release (t1, i) and the next release, or the end of the day, is independent of everything else,
given the two. A window's table holds the probability of suppressing each context at each of its steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reticent_client.mask.chain import Bools, Floats, MarkovChain
from reticent_client.mask.policy import START
from reticent_client.mask.problem import SEARCH, TINY, VERDICT, BoundedAdversary, Problem

Table = Floats
"""(T - t1 - 1, n): suppressions at the steps after t1; 1 where a context cannot occur."""


@dataclass(frozen=True)
class Window:
    """The window that begins with the release of context `index` at step `start`, or before the first step."""

    problem: Problem
    start: int
    index: int
    worth: Floats  # (T, n): what releasing a state is worth, itself and all that follows

    @property
    def first(self) -> int:
        """The first step of the window."""
        return self.start + 1

    @property
    def length(self) -> int:
        """The number of steps left in the day."""
        return self.problem.chain.horizon - self.first

    def opening(self, chain: MarkovChain) -> Floats:
        """(n,): where the user is expected to be at the first step."""
        return chain.initial if self.start == START else chain.transitions[self.start][self.index]

    @cached_property
    def adversaries(self) -> list[BoundedAdversary]:
        """Those who do not rule out that the window begins."""
        if self.start == START:
            return list(self.problem.adversaries)
        return [each for each in self.problem.adversaries if each.chain.reachable[self.start, self.index]]

    def silence(self) -> Table:
        """The table that suppresses everything."""
        return np.ones((self.length, self.problem.chain.size))

    def as_run(self, table: Table) -> Table:
        """The table with the phone's own rule in it: what the user's chain rules out since the release is suppressed.

        Another adversary may expect those contexts. A step at which the user is sure to be released needs no rule.
        """
        ran = table.copy()
        possible = self.opening(self.problem.chain) > 0
        for row, step in zip(ran, range(self.first, self.problem.chain.horizon), strict=True):
            if step > self.first:
                possible = (self.problem.chain.transitions[step - 1][possible] > 0).any(axis=0)
            if (row[possible] > 0).any():
                row[~possible] = 1.0
        return ran

    def value(self, table: Table) -> float:
        """The value of the table's releases."""
        value, mass = 0.0, 1.0
        for level in Masses.run(self, self.problem.chain, table):
            row = table[level.step - self.first]
            value += mass * float((level.masses * (1 - row)) @ self.worth[level.step])
            mass *= float(level.masses @ row)
        return value

    def released(self, table: Table) -> Floats:
        """(T, n): the table's expected releases."""
        found, mass = np.zeros((self.problem.chain.horizon, self.problem.chain.size)), 1.0
        for level in Masses.run(self, self.problem.chain, table):
            row = table[level.step - self.first]
            found[level.step] = mass * level.masses * (1 - row)
            mass *= float(level.masses @ row)
        return found

    def private(self, table: Table) -> bool:
        """Whether every adversary's every belief stays within its cap, for every next release and for none at all."""
        return all(self._private_against(adversary, table) for adversary in self.adversaries)

    def _private_against(self, adversary: BoundedAdversary, table: Table) -> bool:
        for level in Masses.run(self, adversary.chain, table, adversary, VERDICT):
            row = table[level.step - self.first]
            if ((row < 1) & level.reachable & ~(adversary.releasable[level.step] & level.releasable)).any():
                return False
            silent = ((row > 0) & level.reachable).any()
            left = float(level.masses @ row)
            if silent and left < TINY:
                return False  # silence can come about, and cannot be judged
            if silent and level.step + 1 == adversary.chain.horizon and (level.passed @ row > level.caps * left).any():
                return False
        return True


@dataclass
class Masses:
    """One adversary's expectations at one step of a window, before its output; `masses` sum to 1 at every step.

    Only ratios within a step matter to beliefs. Scaling each step to 1 keeps windows of mass 1e-300 and below exact.
    """

    step: int
    masses: Floats  # (n,)
    reachable: Bools  # (n,): the truth behind `masses > 0`
    passed: Floats  # (k, n): the mass that passed through each capped state so far, this step's included
    caps: Floats  # (k,)
    here: slice  # the capped states of this very step

    @property
    def releasable(self) -> Bools:
        """(n,): whether releasing each context now bounds every belief about the steps before."""
        before = slice(0, self.here.start)
        fine = (self.passed[before] <= self.caps[before, None] * self.masses).all(axis=0)
        return np.asarray(fine & (self.masses >= TINY))

    @staticmethod
    def run(
        window: Window,
        chain: MarkovChain,
        table: Table,
        adversary: BoundedAdversary | None = None,
        margin: float = SEARCH,
    ) -> Iterator[Masses]:
        """The expectations at each step under the table, as far as anything is still suppressed.

        A step's row is read when the next step is asked for, so that it may be chosen on the way. Without an adversary,
        no state is tracked.
        """
        masses = window.opening(chain)
        reachable = masses > 0
        n = chain.size
        passed, caps = np.zeros((0, n)), np.zeros(0)
        for step in range(window.first, chain.horizon):
            begin = len(caps)
            if adversary is not None:
                states = np.flatnonzero((adversary.cap[step] < 1) & reachable)
                rows = np.zeros((len(states), n))
                rows[np.arange(len(states)), states] = masses[states]
                passed = np.concatenate([passed, rows])
                caps = np.concatenate([caps, adversary.cap[step, states] + margin])
            yield Masses(step, masses, reachable, passed, caps, slice(begin, len(caps)))
            row = table[step - window.first]
            scale = float(masses @ row)
            if scale == 0 or step + 1 == chain.horizon:
                return
            move = chain.transitions[step]
            masses = (masses * row / scale) @ move
            passed = (passed * row / scale) @ move
            reachable = (move[reachable & (row > 0)] > 0).any(axis=0)
