"""The privacy checks of Goetz's thesis as written: algorithms 3 and 5, and the utilities of 3.6.1.

The loops over triplets, states and steps are Python's, as in the listings; NumPy does the
matrix-vector products inside the innermost one. Times are the thesis's: 0 is "start", 1 to T are
the steps of the day, T + 1 is "end". Where the text leaves a choice, the cheaper reading is taken,
so that no ratio against these classes is flattered:

- Both open partial outputs (o_t1, suppressed, ...) and those that close with "end" say that nothing
  follows, and give one belief: it is computed once, and open ones that stop earlier are left out,
  because their beliefs are averages of the others.
- Of the three conditions for Pr[o] > 0 in section 3.4.5, the first two are looked up; the third,
  reachability, is the denominator of equation 3.3, which is computed anyway.
- The cache P of algorithm 3 is emptied whenever the search moves to the next coordinate: what it
  held is about vectors that no later one dominates.
- Pr["end" | anything] is 1 without a product.

Comparisons with delta allow for rounding by ``TOLERANCE``, which the thesis does not need.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
State: TypeAlias = tuple[int, int]
"""A time and a context."""
Output: TypeAlias = tuple[int, int, int, int]
"""A partial output: released at time t1 context i, then nothing until at time t2 context j."""
Triplet: TypeAlias = tuple[int, int, Output]
"""A time, a sensitive context and a partial output."""
Passed: TypeAlias = list[tuple[Array, set[Triplet]]]
"""The set P of algorithm 3: suppression vectors and the triplets that each of them passed."""
Message: TypeAlias = Callable[[int, int, int], Array]

TOLERANCE = 1e-9
START = 0  # the one state of time 0


class ThesisChain:
    """A user's day as the layered graph of section 3.2, from "start" to "end"."""

    def __init__(self, initial: Array, transitions: Array) -> None:
        """Take `initial` (n,) and `transitions` (T - 1, n, n)."""
        self.contexts = len(initial)
        self.horizon = len(transitions) + 1
        into_start = np.ones((1, 1))  # never used: it makes steps[t] the thesis's A^(t)
        to_end = np.ones((self.contexts, 1))
        self.steps: list[Array] = [into_start, initial[np.newaxis], *transitions, to_end]

    def unit(self, time: int, state: int) -> Array:
        """Return e_i among the states of this time."""
        vector = np.zeros(self.steps[time].shape[1])
        vector[state] = 1.0
        return vector

    def reach(self, time: int, state: int, later: int) -> Array:
        """Return the distribution at `later` of who is in `state` at `time`: equation 3.2."""
        row = self.unit(time, state)
        for t in range(time + 1, later + 1):
            row = row @ self.steps[t]
        return row

    def prior(self, time: int) -> Array:
        """Return Pr[X_t = c_i] for every i: proposition 1."""
        return self.reach(0, START, time)


class ThesisProbabilistic:
    """The improved probabilistic check: algorithm 3, sections 3.4.1 to 3.4.6.

    The rival is ``cache_messages=False``: line 20 of the listing computes each posterior by
    equation 3.3, and lemma 3 counts n^2 T for each of them. The proof of that lemma adds that
    forward and backward values "can be cached and re-used across belief computations", which the
    listing does not do; ``cache_messages=True`` does, within each call of ISPRIVATE.

    The text names no order for the coordinates of the search. By default it is that of the vector,
    by time and then context; ``largest_first=True`` starts with the most frequent states, which
    usually releases more and takes longer, because more outputs can then occur.
    """

    def __init__(
        self,
        initial: Array,
        transitions: Array,
        sensitive: set[int],
        delta: float,
        grid: int = 10,
        *,
        cache_messages: bool = False,
        largest_first: bool = False,
    ) -> None:
        self._chain = ThesisChain(initial, transitions)
        self._sensitive = sorted(sensitive)
        self._delta = delta
        self._grid = grid
        self._cache_messages = cache_messages
        self._largest_first = largest_first

    def initialize(self) -> Array:
        """Return suppression probabilities (T, n) by the Mondrian search of section 3.4.2.

        From all ones, each probability in turn falls to the least value on the grid that keeps
        privacy, found by binary search (section 3.4.5).
        """
        suppression = np.ones((self._chain.horizon, self._chain.contexts))
        for coordinate in self._coordinates():
            passed: Passed = []
            private, breaching = self._grid, -1  # numbers of grid steps
            while private - breaching > 1:
                middle = (private + breaching) // 2
                suppression[coordinate] = middle / self._grid
                if self._is_private(suppression, passed):
                    private = middle
                else:
                    breaching = middle
            suppression[coordinate] = private / self._grid
        return suppression

    def is_private(self, suppression: Array) -> bool:
        """Say whether these probabilities (T, n) keep privacy: ISPRIVATE with P empty.

        Lemma 5 fails for a vector with a coordinate of 1: an output that breached before can no
        longer occur, and one that passed before may breach now. The search asks only below 1.
        """
        return self._is_private(suppression, [])

    def utility(self, suppression: Array) -> float:
        """Return the expected number of releases in a day: section 3.6.1."""
        released = 1.0 - suppression
        return sum(
            float(released[t - 1, i] * self._chain.prior(t)[i])
            for t in range(1, self._chain.horizon + 1)
            for i in range(self._chain.contexts)
        )

    def _coordinates(self) -> list[State]:
        """List the coordinates of the vector, steps from 0, in the order of the search."""
        priors = np.array([self._chain.prior(t) for t in range(1, self._chain.horizon + 1)])
        coordinates = list(np.ndindex(*priors.shape))
        if self._largest_first:
            coordinates.sort(key=lambda coordinate: -priors[coordinate])
        return [(step, context) for step, context in coordinates]

    def _is_private(self, suppression: Array, passed: Passed) -> bool:
        """Run ISPRIVATE of algorithm 3, and add to `passed` what this vector passes."""
        known = set[Triplet]().union(*(old for p, old in passed if np.all(p <= suppression)))
        fresh: set[Triplet] = set()
        passed.append((suppression.copy(), fresh))
        forward, backward = self._messages(suppression)
        shown = self._shown(suppression)
        for t in range(1, self._chain.horizon + 1):
            for s in self._sensitive:
                prior = self._chain.prior(t)[s]
                for output in self._partial_outputs(t):
                    t1, i, t2, j = output
                    triplet = (t, s, output)
                    if not (shown[t1][i] and shown[t2][j]) or triplet in known:
                        continue
                    later = backward(t2, j, t) if t > t1 else self._after(t, t2, j, backward)
                    joint = forward(t1, i, t) * later
                    total = joint.sum()
                    if total == 0.0:
                        continue
                    if joint[s] / total - prior > self._delta + TOLERANCE:
                        return False
                    fresh.add(triplet)
        return True

    def _shown(self, suppression: Array) -> list[list[bool]]:
        """Say of every state if it can be released: conditions 1 and 2 of section 3.4.5."""
        inner = [
            [visited > 0.0 and p < 1.0 for visited, p in zip(self._chain.prior(t), row, strict=True)]
            for t, row in enumerate(suppression.tolist(), start=1)
        ]
        return [[True], *inner, [True]]

    def _partial_outputs(self, time: int) -> Iterator[Output]:
        """Yield the partial outputs around this time: lines 13 and 14 of algorithm 3."""
        sizes = [1, *[self._chain.contexts] * self._chain.horizon, 1]
        for t1 in range(time + 1):
            for i in range(sizes[t1]):
                for t2 in range(max(time, t1 + 1), len(sizes)):
                    for j in range(sizes[t2]):
                        yield t1, i, t2, j

    def _after(self, time: int, t2: int, j: int, backward: Message) -> Array:
        """Return beta at the first release, without its 1 - p: a factor of all of equation 3.3."""
        return self._chain.steps[time + 1] @ backward(t2, j, time + 1)

    def _messages(self, suppression: Array) -> tuple[Message, Message]:
        """Return the alpha and beta of section 3.2, adapted to partial outputs as in 3.4.5."""
        chain = self._chain
        keep: Callable[[Message], Message] = functools.cache if self._cache_messages else lambda message: message

        @keep
        def forward(t1: int, i: int, t: int) -> Array:
            if t == t1:
                return chain.unit(t1, i)
            before = forward(t1, i, t - 1)
            if t - 1 == t1:
                return before @ chain.steps[t]
            hidden: Array = before * suppression[t - 2]
            return hidden @ chain.steps[t]

        @keep
        def backward(t2: int, j: int, t: int) -> Array:
            if t == t2:
                released = 1.0 if t2 > chain.horizon else 1.0 - suppression[t2 - 1, j]
                return released * chain.unit(t2, j)
            hidden: Array = suppression[t - 1] * (chain.steps[t + 1] @ backward(t2, j, t + 1))
            return hidden

        return forward, backward


class ThesisSimulatable:
    """The improved simulatable check: algorithm 5, section 3.5, without tables.

    Every call computes every prior (proposition 1) and every posterior (corollary 1) again, as the
    listing does; that beliefs could be cached is a remark of lemma 8.
    """

    def __init__(self, initial: Array, transitions: Array, sensitive: set[int], delta: float) -> None:
        self._chain = ThesisChain(initial, transitions)
        self._sensitive = sorted(sensitive)
        self._delta = delta

    def okay_to_release(self, step: int, outputs: Sequence[int | None]) -> bool:
        """Say whether `step` (from 0) may be released after these outputs of the steps before."""
        now = step + 1
        last, released = self._last_release(outputs[:step])
        possible = self._chain.reach(last, released, now) > 0.0
        for j in np.flatnonzero(possible).tolist():
            for s in self._sensitive:
                for t in range(last + 1, self._chain.horizon + 1):
                    prior = self._chain.prior(t)[s]
                    if t < now:
                        posterior = self._between((last, released), (t, s), (now, j))
                    else:
                        posterior = self._chain.reach(now, j, t)[s]
                    if posterior - prior > self._delta + TOLERANCE:
                        return False
        return True

    def utility(self) -> float:
        """Return the expected number of releases in a day: T - gamma_start(0) of section 3.6.1."""
        horizon = self._chain.horizon

        @functools.cache
        def gamma(t: int, i: int) -> float:
            suppressed = self._suppressions(t, i)
            following = t + suppressed + 1
            if following > horizon:
                return float(suppressed)
            reached = self._chain.reach(t, i, following)
            return suppressed + sum(float(reached[j]) * gamma(following, j) for j in np.flatnonzero(reached).tolist())

        return horizon - gamma(0, START)

    def _suppressions(self, time: int, state: int) -> int:
        """Count the suppressions right after this state's release: supp of section 3.6.1."""
        outputs: list[int | None] = [None] * (time - 1) + [state] if time > 0 else []
        for step in range(time, self._chain.horizon):
            if self.okay_to_release(step, outputs):
                return step - time
            outputs.append(None)
        return self._chain.horizon - time

    def _between(self, before: State, hidden: State, after: State) -> float:
        """Return the belief in a state between two released ones: corollary 1."""
        reach, (t, s), (t2, j) = self._chain.reach, hidden, after
        return float(reach(*before, t)[s] * reach(t, s, t2)[j] / reach(*before, t2)[j])

    @staticmethod
    def _last_release(outputs: Sequence[int | None]) -> State:
        """Return the last released state, which is "start" at first."""
        for step in reversed(range(len(outputs))):
            context = outputs[step]
            if context is not None:
                return step + 1, context
        return 0, START
