"""The simulatable check: when to release next is decided by what was released last, never by the current context.

Section 3.5 of Götz's dissertation. `greedy` is its algorithm 5; `best` chooses among the same safe steps those that
release most, backwards in time: V(t1, i) = max over safe t2, or never, of sum_j Pr[X_t2 = j | X_t1 = i] (w_j +
V(t2, j)), where w_j is the weight of context j.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from reticent_client.mask.chain import Bools, Floats, MarkovChain
from reticent_client.mask.policy import START, Ints
from reticent_client.mask.problem import TINY, VERDICT, BoundedAdversary, Problem

Strategy = Literal["greedy", "best"]


def release_times(problem: Problem, strategy: Strategy) -> tuple[Ints, float]:
    """The next release after each (step, context), `horizon` for never, and the utility of the whole."""
    chain = problem.chain
    horizon, n = chain.horizon, chain.size
    times = np.full((horizon + 1, n), horizon, dtype=np.int32)  # [1 + step, context]
    value = np.zeros((horizon, n))  # V
    for start in range(horizon - 1, START - 1, -1):
        safe = safe_steps(problem, start)  # (n, T - start - 1); one row for the start
        worth = _worth(chain, start, problem.weights + value)  # the same shape
        if strategy == "best":
            worth = np.where(safe, worth, -np.inf)
            choice = worth.argmax(axis=1) if safe.size else np.zeros(len(safe), dtype=int)
        else:
            choice = safe.argmax(axis=1) if safe.size else np.zeros(len(safe), dtype=int)
        some = safe.any(axis=1)
        rows = np.flatnonzero(some)
        times[start + 1, rows] = start + 1 + choice[rows]
        gained = np.zeros(len(safe))
        gained[rows] = worth[rows, choice[rows]]
        if start == START:
            return times, float(gained[0])
        value[start] = gained
    raise AssertionError("unreachable: the loop ends at the start")


def safe_steps(problem: Problem, start: int) -> Bools:
    """(n, T - start - 1): whether whatever can follow a release at `start` may be released at each later step.

    Each adversary's own chain determines which contexts can follow. The decision does not depend on the context, so an
    adversary who expects other contexts than the user's own chain must find them safe as well.
    """
    chain = problem.chain
    rows = 1 if start == START else chain.size
    safe = np.ones((rows, chain.horizon - start - 1), dtype=np.bool_)
    for adversary in problem.adversaries:
        for gap, private in enumerate(_private_windows(adversary, start)):
            safe[:, gap] &= private.all(axis=1)
    return safe


def _worth(chain: MarkovChain, start: int, worth: Floats) -> Floats:
    """(n, T - start - 1): what releasing everything at each later step is worth, given the worth of each release."""
    onward = _onward(chain, start)
    if not onward:
        return np.zeros((chain.size, 0))
    return np.stack([rows @ worth[start + 1 + gap] for gap, rows in enumerate(onward)], axis=1)


def _onward(chain: MarkovChain, start: int) -> list[Floats]:
    """[t2 - start - 1] -> (n, n) moving on from each context at `start`, or (1, n) from before the first step."""
    return [row[None, :] for row in chain.prior] if start == START else chain.onward(start)


def _can_reach(chain: MarkovChain, start: int) -> list[Bools]:
    """The same shapes as `_onward`: which moves have positive probability; free of underflow."""
    if start == START:
        return [row[None, :] for row in chain.reachable]
    moves: list[Bools] = []
    for step in chain.transitions[start:]:
        one = step > 0
        moves.append(moves[-1] @ one if moves else one)
    return moves


def _private_windows(adversary: BoundedAdversary, start: int) -> list[Bools]:
    """[t2 - start - 1] -> (rows, n): whether releasing j at t2 after i at `start` bounds every belief, then and later.

    Pr[X_t = s | i, j] = Pr[s | i] Pr[j | s] / Pr[j | i] (corollary 1). An output that this adversary rules out bounds
    nothing.
    """
    chain = adversary.chain
    onward, can = _onward(chain, start), _can_reach(chain, start)
    begun = np.ones(1, np.bool_) if start == START else chain.reachable[start]
    steps, states = np.nonzero(adversary.capped)  # in order of time
    first = int(np.searchsorted(steps, start, side="right"))
    cap = adversary.cap[steps, states] + VERDICT
    through = [onward[t - start - 1][:, s] for t, s in zip(steps[first:], states[first:], strict=True)]
    passing = np.stack(through, axis=1) if through else np.zeros((len(begun), 0))  # (i, k)
    verdicts: list[Bools] = []
    for gap, (ends, possible) in enumerate(zip(onward, can, strict=True)):
        stop = start + 1 + gap
        last = int(np.searchsorted(steps, stop, side="left"))
        arriving = adversary.arriving[stop][first:last]  # (k, j)
        beliefs = passing[:, : last - first, None] * arriving[None, :, :]  # times Pr[j | i]
        fine = (beliefs <= cap[first:last, None] * ends[:, None, :]).all(axis=1)
        fine &= (ends >= TINY) & adversary.releasable[stop][None, :]
        verdicts.append(fine | ~possible | ~begun[:, None])
    return verdicts
