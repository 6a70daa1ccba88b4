"""The adversary, who is certain of a chain, knows the policy and sees everything that was released.

Bayesian reasoning of section 3.2 of Götz's dissertation, over pairs of a policy's memory and a context, so that it
works for any policy: it uses only `begin`, `suppression` and `advance`. Weights are kept as logarithms:
an output of probability 1e-400 can occur.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from reticent_client.errors import ImpossibleOutput
from reticent_client.mask.chain import Floats, MarkovChain

Outputs = Sequence[str | None]
"""The release of each step from the first on, None for a suppression; a prefix is shorter than a day."""

Weights = dict[Hashable, Floats]
"""For each memory the policy may have, the log-weight (n,) of each context."""


class Runnable(Protocol):
    """The part of a policy that an adversary uses."""

    @property
    def chain(self) -> MarkovChain:
        """The user's chain."""

    def begin(self) -> Any:
        """The memory before the first step."""

    def suppression(self, t: int, memory: Any) -> Floats:
        """(n,): the probability of suppressing each context."""

    def advance(self, t: int, memory: Any, index: int, released: bool) -> Any:
        """The memory after a step."""


@dataclass
class _Pass:
    """A forward pass through the outputs, with all that the backward pass needs."""

    weights: list[Weights] = field(default_factory=list)  # before each step's output
    emitted: list[Weights] = field(default_factory=list)  # log-probability of each step's output
    after: list[dict[Hashable, dict[int, Hashable]]] = field(default_factory=list)  # memories afterwards
    released: list[bool] = field(default_factory=list)
    cuts: set[int] = field(default_factory=set)  # steps that start afresh
    impossible: list[int] = field(default_factory=list)


class Adversary:
    """Beliefs of an adversary who is certain of `chain` (the user's own unless given).

    >>> from reticent_client import MarkovChain, mask_sensitive
    >>> chain = MarkovChain(["x", "s"], [0.5, 0.5], np.empty((0, 2, 2)))
    >>> Adversary(mask_sensitive(chain, sensitive={"s"})).beliefs([None]).tolist()
    [[0.0, 1.0]]
    """

    def __init__(self, policy: Runnable, chain: MarkovChain | None = None) -> None:
        self.policy = policy
        self.chain = policy.chain if chain is None else chain
        if self.chain.contexts != policy.chain.contexts or self.chain.horizon != policy.chain.horizon:
            raise ValueError("the adversary's chain has other contexts or another horizon than the policy's")
        with np.errstate(divide="ignore"):
            self._initial = np.log(self.chain.initial)
            self._transitions = np.log(self.chain.transitions)

    @property
    def prior(self) -> Floats:
        """(T, n): the belief before anything is released."""
        return self.chain.prior

    def beliefs(self, outputs: Outputs) -> Floats:
        """(T, n): the probability of each context at each step, given the outputs.

        `ImpossibleOutput` when the chain and the policy cannot produce them.
        """
        return self._smooth(self._forward(outputs))

    def moves(self, outputs: Outputs) -> Floats:
        """(T - 1, n, n): the probability of each pair of contexts at a step and the next one, given the outputs.

        `ImpossibleOutput` when the chain and the policy cannot produce them.

        >>> from reticent_client import MarkovChain, mask_sensitive
        >>> chain = MarkovChain(["x", "s"], [0.5, 0.5], [[[0.5, 0.5], [0.5, 0.5]]])
        >>> Adversary(mask_sensitive(chain, sensitive={"s"})).moves(["x", None]).tolist()
        [[[0.0, 1.0], [0.0, 0.0]]]
        """
        run, n = self._forward(outputs), self.chain.size
        seen = len(run.emitted)
        moves = np.empty((self.chain.horizon - 1, n, n))
        for t, _, later in self._backward(run):
            if t + 1 < self.chain.horizon:
                moves[t] = self._pairs(run, t, later)
        if seen < self.chain.horizon:
            here = moves[seen - 1].sum(axis=0) if seen else self.chain.initial
            for t in range(seen, self.chain.horizon - 1):
                moves[t] = here[:, None] * self.chain.transitions[t]
                here = moves[t].sum(axis=0)
        return moves

    def beliefs_of_real_day(self, outputs: Outputs) -> tuple[Floats, list[int]]:
        """Beliefs after outputs that the chain may rule out, and the steps at which it did.

        Real days leave the chain. This adversary ignores an impossible suppression, and believes an impossible release,
        forgetting everything before it.
        """
        run = self._forward(outputs, surprised=True)
        return self._smooth(run), run.impossible

    def some(self, outputs: Outputs, context: str, window: Iterable[int]) -> float:
        """The probability, given the outputs, that the context occurs at some step of the window.

        >>> from reticent_client import MarkovChain, mask_sensitive
        >>> chain = MarkovChain(["x", "s"], [0.5, 0.5], [[[0.5, 0.5], [0.5, 0.5]]])
        >>> Adversary(mask_sensitive(chain, sensitive={"s"})).some(["x"], "s", range(2))
        0.5
        """
        return self._some(self._forward(outputs), context, window)

    def some_of_real_day(self, outputs: Outputs, context: str, window: Iterable[int]) -> float:
        """The same after outputs that the chain may rule out, as `beliefs_of_real_day` understands them."""
        return self._some(self._forward(outputs, surprised=True), context, window)

    def _some(self, run: _Pass, context: str, window: Iterable[int]) -> float:
        steps = set(window)
        for t in steps:
            if not 0 <= t < self.chain.horizon:
                raise ValueError(f"step {t} of the window lies outside the day of {self.chain.horizon} steps")
        never = self._log_weight(run, self.chain.index(context), steps)
        return max(0.0, float(-np.expm1(never - self._log_weight(run))))

    def _forward(self, outputs: Outputs, *, surprised: bool = False) -> _Pass:
        """Weigh every (memory, context) before each step's output."""
        indices = self._indices(outputs)
        run = _Pass()
        weights: Weights = {self.policy.begin(): self._initial}
        for t, released in enumerate(indices):
            emitted = self._emitted(t, weights, released)
            if all(np.isneginf(weights[m] + emitted[m]).all() for m in weights):
                if not surprised:
                    raise ImpossibleOutput(
                        f"output {outputs[t]!r} is impossible at step {t}, given the chain, policy and earlier outputs"
                    )
                run.impossible.append(t)
                if released is None:
                    emitted = {memory: np.zeros(self.chain.size) for memory in weights}
                else:
                    run.cuts.add(t)
                    weights = {next(iter(weights)): _only(released, self.chain.size)}
                    emitted = {memory: np.zeros(self.chain.size) for memory in weights}
            run.weights.append(weights)
            run.emitted.append(emitted)
            run.released.append(released is not None)
            after, weights = self._advance(t, weights, emitted, released is not None)
            run.after.append(after)
        run.weights.append(weights)
        return run

    def _emitted(self, t: int, weights: Weights, released: int | None) -> Weights:
        """The log-probability of an output in each context, for each memory."""
        emitted: Weights = {}
        with np.errstate(divide="ignore"):
            for memory in weights:
                suppressed = np.asarray(self.policy.suppression(t, memory), dtype=np.float64)
                if released is None:
                    emitted[memory] = np.log(suppressed)
                else:
                    row = np.full(self.chain.size, -np.inf)
                    row[released] = np.log1p(-suppressed[released])
                    emitted[memory] = row
        return emitted

    def _advance(
        self, t: int, weights: Weights, emitted: Weights, released: bool
    ) -> tuple[dict[Hashable, dict[int, Hashable]], Weights]:
        """The memories after a step, and the weights before the next one (or after the last)."""
        after: dict[Hashable, dict[int, Hashable]] = {}
        held: Weights = {}
        for memory, row in weights.items():
            joint = row + emitted[memory]
            after[memory] = {}
            for i in map(int, np.flatnonzero(joint > -np.inf)):
                new = self.policy.advance(t, memory, i, released)
                after[memory][i] = new
                target = held.setdefault(new, np.full(self.chain.size, -np.inf))
                target[i] = np.logaddexp(target[i], joint[i])
        if t + 1 == self.chain.horizon:
            return after, held
        moved = {new: _log_sum(row[:, None] + self._transitions[t], 0) for new, row in held.items()}
        return after, moved

    def _smooth(self, run: _Pass) -> Floats:
        """The belief at every step, given all outputs."""
        horizon, n = self.chain.horizon, self.chain.size
        beliefs = np.empty((horizon, n))
        seen = len(run.emitted)
        if seen < horizon:
            beliefs[seen] = _normalised(run.weights[seen], _Certain(n))
            for t in range(seen, horizon - 1):
                beliefs[t + 1] = beliefs[t] @ self.chain.transitions[t]
        for t, here, _ in self._backward(run):
            beliefs[t] = _normalised(run.weights[t], here)
        return beliefs

    def _backward(self, run: _Pass) -> Iterator[tuple[int, Weights, Weights]]:
        """From the last output to the first: the step, the log-weight of it and all later outputs, and of those alone.

        The first is by memory before the step, the second by memory after it and by the context of the next step.
        """
        n = self.chain.size
        later: Weights = _Certain(n)
        for t in range(len(run.emitted) - 1, -1, -1):
            here: Weights = {}
            for memory, emitted in run.emitted[t].items():
                row = np.full(n, -np.inf)
                for i, new in run.after[t][memory].items():
                    row[i] = emitted[i] + self._onward(t, i, later[new])
                here[memory] = row
            yield t, here, later
            later = _Certain(n) if t in run.cuts else here

    def _pairs(self, run: _Pass, t: int, later: Weights) -> Floats:
        """(n, n): the distribution of the contexts at step t and the next one, over all memories."""
        joint = np.full((self.chain.size, self.chain.size), -np.inf)
        for memory, weights in run.weights[t].items():
            for i, new in run.after[t][memory].items():
                arrived = weights[i] + run.emitted[t][memory][i]
                joint[i] = np.logaddexp(joint[i], arrived + self._transitions[t][i] + later[new])
        pairs = np.exp(joint - joint.max())
        return np.asarray(pairs / pairs.sum())

    def _onward(self, t: int, i: int, future: Floats) -> float:
        """The log-probability of all later outputs, from context i at step t."""
        if t + 1 == self.chain.horizon:
            return 0.0
        return float(_log_sum(self._transitions[t][i] + future, 0))

    def _log_weight(self, run: _Pass, avoided: int | None = None, steps: Iterable[int] = ()) -> float:
        """The log-probability of the outputs and of not being in a context at any of some steps."""
        banned = set() if avoided is None else set(steps)
        weights: Weights = {self.policy.begin(): self._initial}
        before_cuts = 0.0
        for t in range(self.chain.horizon):
            if t in run.cuts:
                before_cuts += _log_total(weights)
                weights = run.weights[t]
            if t in banned:
                weights = {memory: row.copy() for memory, row in weights.items()}
                for row in weights.values():
                    row[avoided] = -np.inf
            if t < len(run.emitted):
                _, weights = self._advance(t, weights, run.emitted[t], run.released[t])
            elif t + 1 < self.chain.horizon:
                weights = {memory: _log_sum(row[:, None] + self._transitions[t], 0) for memory, row in weights.items()}
        return before_cuts + _log_total(weights)

    def _indices(self, outputs: Outputs) -> list[int | None]:
        if len(outputs) > self.chain.horizon:
            raise ValueError(f"a day has {self.chain.horizon} steps: got {len(outputs)} outputs")
        return [None if label is None else self.chain.index(label) for label in outputs]


class _Certain(dict[Hashable, Floats]):
    """The weights when nothing follows: 0 for every memory."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def __missing__(self, memory: Hashable) -> Floats:
        return np.zeros(self._size)


def _only(index: int, size: int) -> Floats:
    row = np.full(size, -np.inf)
    row[index] = 0.0
    return row


def _log_total(weights: Weights) -> float:
    """The log of the sum of all weights."""
    return float(_log_sum(np.concatenate([*weights.values(), [-np.inf]]), 0))


def _log_sum(terms: Floats, axis: int) -> Floats:
    """log(sum(exp(terms))) along an axis, -inf where all terms are."""
    most = terms.max(axis=axis, keepdims=True)
    most = np.where(np.isneginf(most), 0.0, most)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(terms - most).sum(axis=axis)) + most.squeeze(axis))


def _normalised(weights: Weights, future: Weights) -> Floats:
    """The distribution of the context, over all memories."""
    joint = np.stack([weights[memory] + future[memory] for memory in weights])
    row = np.exp(joint - joint.max()).sum(axis=0)
    return np.asarray(row / row.sum())
