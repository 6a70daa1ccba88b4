"""The states that a window's program distinguishes, and the exact evaluation of a policy over them.

A state is the step, the context and H, the set of *tracked* sensitive states passed since the window began. This
module evaluates given suppressions of these states exactly, against all sensitive states.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from reticent_client.mask.chain import Bools, Floats
from reticent_client.mask.planning.windows import Window
from reticent_client.mask.problem import SEARCH, TINY, VERDICT, BoundedAdversary

Sets = npt.NDArray[np.uint64]  # each a set of tracked states, as bits
Ints = npt.NDArray[np.int64]
State = tuple[int, int]  # a step and a context

CLEAR = 1e-270  # an output of at least this mass owes nothing to states below TINY


@dataclass
class Level:
    """The states of one step: where the user is, and which tracked states were passed, this step's included."""

    step: int
    contexts: Ints  # (m,)
    passed: Sets  # (m,)
    mass: Floats  # (m,): what arrives if everything is suppressed
    kernel: csr_array | None  # (m before, m): the moves that lead here; None at the first step
    marks: Sets  # (n,): what being in each context now adds to a set
    dropped: Bools  # (n,): where states were left out because float64 can hardly tell their mass from none

    def has(self, bits: Ints) -> Bools:
        """(m, k): whether each state passed each of some tracked states."""
        return np.asarray((self.passed[:, None] >> bits.astype(np.uint64)) & np.uint64(1), dtype=np.bool_)


def unfold(window: Window, tracked: list[State], limit: int, until: int) -> tuple[list[Level], int]:
    """A window's states, given those to be tracked in order of time, up to a step or to a size of the program.

    The size, which comes second, is roughly the number of entries in the program's matrix.
    """
    chain = window.problem.chain
    levels: list[Level] = []
    entries = 0
    for step in range(window.first, until):
        marks = np.zeros(chain.size, dtype=np.uint64)
        for bit, (when, i) in enumerate(tracked):
            if when == step:
                marks[i] = np.uint64(1) << np.uint64(bit)
        if not levels:
            opening = window.opening(chain)
            contexts = np.flatnonzero(opening >= TINY)
            dropped = (opening > 0) & (opening < TINY)
            level = Level(step, contexts, marks[contexts], opening[contexts], None, marks, dropped)
        else:
            before = levels[-1]
            moves = chain.transitions[step - 1][before.contexts]  # (m before, n)
            sources, contexts = np.nonzero(moves)
            sets, which = np.unique(before.passed[sources] | marks[contexts], return_inverse=True)
            keys, states = np.unique(which.ravel() * chain.size + contexts, return_inverse=True)
            shape = (len(before.contexts), len(keys))
            kernel = csr_array((moves[sources, contexts], (sources, states.ravel())), shape=shape)
            mass = before.mass @ kernel
            clear = np.flatnonzero(mass >= TINY)
            dropped = np.zeros(chain.size, dtype=np.bool_)
            dropped[keys[mass < TINY] % chain.size] = True
            keys = keys[clear]
            level = Level(
                step, keys % chain.size, sets[keys // chain.size], mass[clear], kernel[:, clear], marks, dropped
            )
        moves_in = 0 if level.kernel is None else level.kernel.nnz
        more = moves_in + len(level.contexts) * sum(when < step for when, _ in tracked)
        if levels and entries + more > limit:
            break
        entries += more
        levels.append(level)
    return levels, entries


@dataclass
class Solution:
    """The suppressed share of the mass that arrives at each state; after the last level, all of it."""

    levels: list[Level]
    suppression: list[Floats]  # per level (m,)
    value: float  # what all releases are worth, exactly
    broken: list[State] = field(default_factory=list)  # whose bounds it breaks, among the levels
    breaks_later: bool = False  # whether it breaks a bound after the last level
    unclear: bool = False  # whether some output rests on states that float64 can hardly tell from none

    @property
    def private(self) -> bool:
        """Whether it keeps all bounds."""
        return not (self.broken or self.breaks_later or self.unclear)


def evaluate(window: Window, levels: list[Level], suppression: list[Floats], adversary: BoundedAdversary) -> Solution:
    """The exact value of these suppressions, and the states whose bounds they break, independent of any solver."""
    n = window.problem.chain.size
    value, share = 0.0, 1.0
    mass = levels[0].mass
    passed = np.zeros((0, len(mass)))  # what passed through each capped state so far
    states: list[State] = []
    caps: list[float] = []
    solution = Solution(levels, suppression, 0.0)
    broken: set[State] = set()
    for level, fraction in zip(levels, suppression, strict=True):
        if level.kernel is not None:
            mass, passed = mass @ level.kernel, passed @ level.kernel
        released = np.zeros((len(mass), n))
        released[np.arange(len(mass)), level.contexts] = 1 - fraction
        arriving = mass @ released  # (n,)
        value += share * float(arriving @ window.worth[level.step])
        excess = passed @ released - np.array(caps)[:, None] * arriving
        broken |= {states[k] for k in np.flatnonzero((excess > 0).any(axis=1))}
        here = [int(i) for i in np.unique(level.contexts) if adversary.cap[level.step, i] < 1]
        states += [(level.step, i) for i in here]
        caps += [float(adversary.cap[level.step, i]) + VERDICT for i in here]
        rows = [np.where(level.contexts == i, mass, 0.0) for i in here]
        passed = np.concatenate([passed, np.reshape(rows, (len(here), len(mass)))]) * fraction
        mass = mass * fraction
        left = float(mass.sum())
        if left == 0:
            break
        mass, passed, share = mass / left, passed / left, share * left
    else:
        broken |= {states[k] for k in np.flatnonzero(passed.sum(axis=1) > np.array(caps))}
        ahead, later = adversary.ahead[levels[-1].step]
        solution.breaks_later = bool((mass @ ahead[levels[-1].contexts] > later - SEARCH + VERDICT).any())
    solution.value, solution.broken = value, sorted(broken)
    solution.unclear = _rests_on_the_faint(window, levels, suppression)
    return solution


def _rests_on_the_faint(window: Window, levels: list[Level], suppression: list[Floats]) -> bool:
    """Whether some output can come about through states that were left out, with too little else behind it.

    Those states are suppressed, and can go on to others: an output that clear mass makes hides them; one that it does
    not make has a belief that was never looked at.
    """
    if not any(level.dropped.any() for level in levels):
        return False
    chain = window.problem.chain
    mass, share = levels[0].mass, 1.0
    faint = silent = np.zeros(chain.size, dtype=np.bool_)  # contexts reached in silence: by faint paths, by clear ones
    for level, fraction in zip(levels, suppression, strict=True):
        if level.kernel is None:
            faint = level.dropped.copy()
        else:
            mass = mass @ level.kernel
            moves = chain.transitions[level.step - 1] > 0
            faint = moves[faint].any(axis=0) | (moves[silent].any(axis=0) & level.dropped)
        released = share * np.bincount(level.contexts, mass * (1 - fraction), chain.size)
        if (faint & _among(level.contexts[fraction < 1], chain.size) & (released < CLEAR)).any():
            return True
        faint &= _among(level.contexts[fraction > 0], chain.size) | level.dropped
        silent = _among(level.contexts[(fraction > 0) & (mass > 0)], chain.size)
        mass = mass * fraction
        left = float(mass.sum())
        if faint.any() and share * left < CLEAR:
            return True
        if left == 0:
            return False
        mass, share = mass / left, share * left
    return False


def _among(contexts: Ints, size: int) -> Bools:
    """(size,): whether each context is one of these."""
    found = np.zeros(size, dtype=np.bool_)
    found[contexts] = True
    return found
