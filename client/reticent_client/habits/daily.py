"""Adversaries who learn from the releases, and policies that are made anew each morning against them.

The adversary learns by a public rule: its chain of a morning is a function of its starting chain, the policies and the
released days only. So a policy computed against it reveals nothing that was not released already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np

from reticent.storage.documents import DocumentFormat
from reticent_client.errors import FileError, ImpossibleOutput
from reticent_client.mask.adversary import Adversary, Outputs, Runnable
from reticent_client.mask.audit import Gain
from reticent_client.mask.chain import Floats, MarkovChain
from reticent_client.mask.maskit import MaskIt
from reticent_client.mask.policy import Policy

Check = Callable[[MarkovChain], Policy]
"""A check that takes only the chain: `functools.partial(hybrid, sensitive={"hospital"}, delta=0.1)`."""

FORMAT = DocumentFormat("reticent-learning-adversary", 1, "a learning adversary", FileError)


class LearningAdversary:
    """An adversary who begins with a chain, as certain as after `strength` fully observed days, and learns.

    The rule: the adversary counts days, and its chain is the shares of its counts (the mean of a Dirichlet distribution
    for the first context and for each row). It begins with `strength` times what a day of the starting chain holds on
    average: `strength * initial`, and `strength * prior[t, i] * transitions[t, i]` for the moves from context i at step
    t. After a day it adds what it expects of that day, given its chain that morning, the policy and what was released:
    the probability of each context at step 0, and of each move at each step. So each day adds one to the counts of
    every step. A day whose outputs its chain and the policy cannot produce teaches it nothing, and is counted.

    It follows that its prior on a morning is the average, over the days so far, of what it believed of each of them the
    evening after, the starting prior counting as `strength` days.

    >>> from reticent_client import mask_sensitive
    >>> chain = MarkovChain(["home", "clinic"], [0.5, 0.5], [])
    >>> adversary = LearningAdversary(chain, strength=1)
    >>> adversary.learn(mask_sensitive(chain, sensitive={"clinic"}), [None]).tolist()
    [[0.0, 1.0]]
    >>> adversary.chain.initial.tolist()
    [0.25, 0.75]
    """

    def __init__(self, chain: MarkovChain, strength: float) -> None:
        self._starting = chain
        self._strength = _number_of_days(strength)
        self._first = np.zeros(chain.size)  # (n,): how often each context was at step 0, of the days learned from
        self._moves = np.zeros_like(chain.transitions)  # (T - 1, n, n): how often each move was made at each step
        self._days = 0
        self._ignored = 0
        self._chain = chain

    @property
    def starting(self) -> MarkovChain:
        """The chain that it began with."""
        return self._starting

    @property
    def strength(self) -> float:
        """The number of days that the starting chain counts as."""
        return self._strength

    @property
    def chain(self) -> MarkovChain:
        """Its chain of this morning."""
        return self._chain

    @property
    def days(self) -> int:
        """The number of days that it has learned from."""
        return self._days

    @property
    def ignored(self) -> int:
        """The number of ignored days, which its chain and the policy could not produce."""
        return self._ignored

    def learn(self, policy: Runnable, outputs: Outputs) -> Floats | None:
        """Learn from a finished day; return the belief about that day, (T, n), or None for an ignored day.

        Args:
            policy: The policy of that day.
            outputs: The release of each step, None for a suppression.
        """
        if len(outputs) != self._chain.horizon:
            raise ValueError(f"a day has {self._chain.horizon} steps: got {len(outputs)} outputs")
        adversary = Adversary(policy, self._chain)
        try:
            moves = adversary.moves(outputs)
            beliefs = _beliefs(moves) if len(moves) else adversary.beliefs(outputs)
        except ImpossibleOutput:
            self._ignored += 1
            return None
        self._first = self._first + beliefs[0]
        self._moves = self._moves + moves
        self._days += 1
        self._chain = self._mean()
        return beliefs

    def _mean(self) -> MarkovChain:
        """The shares of the counts; a row without any keeps what it had at the start."""
        start = self._starting
        initial = (self._strength * start.initial + self._first) / (self._strength + self._first.sum())
        begun = self._strength * start.prior[:-1, :, None]  # (T - 1, n, 1)
        seen = self._moves.sum(axis=2, keepdims=True)
        counts = begun * start.transitions + self._moves
        totals = counts.sum(axis=2, keepdims=True)
        rows = np.divide(counts, totals, out=start.transitions.copy(), where=(seen > 0) & (totals > 0))
        return MarkovChain(start.contexts, initial, rows)

    def to_json(self) -> dict[str, Any]:
        """The adversary as plain data, exact; as secret as the starting chain."""
        return FORMAT.document(
            {
                "chain": self._starting.to_json(),
                "strength": self._strength,
                "first": self._first.tolist(),
                "moves": self._moves.tolist(),
                "days": self._days,
                "ignored": self._ignored,
            }
        )

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The adversary that `to_json` wrote; `FileError` for anything else."""
        content = FORMAT.content(data)
        try:
            adversary = cls(MarkovChain.from_json(content["chain"]), content["strength"])
            adversary._first = _counts(content["first"], adversary._first.shape)
            adversary._moves = _counts(content["moves"], adversary._moves.shape)
            adversary._days, adversary._ignored = int(content["days"]), int(content["ignored"])
            if adversary._days:
                adversary._chain = adversary._mean()
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"the adversary is damaged: {error}") from error
        return adversary


@dataclass(frozen=True, eq=False)
class LearnedDay:
    """A finished day: its releases and the adversary's beliefs."""

    policy: Policy
    outputs: tuple[str | None, ...]
    prior: Floats  # (T, n): the belief of that morning
    beliefs: Floats | None
    """(T, n): the belief of that evening; None if the day was off the adversary's model."""
    gain: Gain | None
    """The largest rise of the belief in a sensitive state; None if the day was off the adversary's model."""


class Daily:
    """A policy for each day, against an adversary who learns: `morning()` gives it, `evening(outputs)` ends the day.

    What is promised: on each day, for every output that can occur, every step and every sensitive context, the
    adversary's belief about that day rises by at most delta over that morning's. This holds if

    - days are independent of each other, given the morning's chain: that is how this adversary thinks of a day;
    - the adversary uses the rule of `LearningAdversary`, from the same starting chain with the same strength;
    - each policy is a function of the starting chain and of past releases only. `Daily` sees to this where the check
      gives the same policy for the same chain: one with a time limit may not.

    What is not bounded: the sum over days, beliefs about earlier days in the light of later ones, and what adversaries
    learn by another rule, for example one who wonders which of several kinds of people the user is.

    On a phone the adversary is kept from day to day by its `to_json`, and each day has a store of its own:

    >>> from functools import partial
    >>> from reticent_client import hybrid
    >>> chain = MarkovChain(["home", "clinic"], [0.75, 0.25], [])
    >>> days = Daily(LearningAdversary(chain, strength=28), partial(hybrid, sensitive={"clinic"}, delta=0.25))
    >>> mask = MaskIt(days.morning())
    >>> days.evening([mask.observe("clinic")]).outputs
    (None,)
    """

    def __init__(self, adversary: LearningAdversary, check: Check) -> None:
        self._adversary = adversary
        self._check = check
        self._policy: Policy | None = None
        self._number = 0

    @property
    def adversary(self) -> LearningAdversary:
        """The adversary that the policies are made against."""
        return self._adversary

    def morning(self) -> Policy:
        """The policy of this day, made against the adversary's present chain; the same until the evening."""
        if self._policy is None:
            self._policy = self._check(self._adversary.chain)
        return self._policy

    def evening(self, outputs: Sequence[str | None]) -> LearnedDay:
        """End the day, and have the adversary learn from it.

        Args:
            outputs: What was released at each step, None for all else: suppressed, missing or missed.
        """
        policy, prior = self.morning(), self._adversary.chain.prior
        beliefs = self._adversary.learn(policy, outputs)
        gain = None if beliefs is None else _largest_rise(policy, self._number, beliefs - prior)
        self._policy = None
        self._number += 1
        return LearnedDay(policy, tuple(outputs), prior, beliefs, gain)


def daily(
    adversary: LearningAdversary,
    check: Check,
    days: Iterable[Sequence[str | None]],
    rng: np.random.Generator | None = None,
) -> Iterator[LearnedDay]:
    """Run days, each with a policy made that morning against an adversary who has learned from the days before.

    `Daily` states the promise.

    Args:
        adversary: It learns as the days go by.
        check: Given the morning's chain; `functools.partial` fills in what is sensitive, and delta.
        days: As many labels each as the adversary's chain has steps, None where nothing was read.
        rng: Where the coins come from; secure ones unless given.
    """
    ongoing = Daily(adversary, check)
    for day in days:
        yield ongoing.evening(MaskIt(ongoing.morning(), rng).filter_day(day))


def _number_of_days(strength: object) -> float:
    if not isinstance(strength, Real) or not 0 < float(strength) < np.inf:
        raise ValueError(f"strength must be a number of days above 0: got {strength!r}")
    return float(strength)


def _beliefs(moves: Floats) -> Floats:
    """(T, n): the probability of each context at each step, from those of the moves."""
    return np.concatenate([moves.sum(axis=2), moves[-1:].sum(axis=1)])


def _largest_rise(policy: Policy, day: int, rise: Floats) -> Gain:
    """The largest rise of the belief in a sensitive state."""
    sensitive = np.where(np.isnan(policy.deltas), -np.inf, rise)
    t, i = np.unravel_index(int(sensitive.argmax()), sensitive.shape)
    return Gain(float(rise[t, i]), f"day {day + 1}", int(t), policy.contexts[int(i)])


def _counts(values: object, shape: tuple[int, ...]) -> Floats:
    """Counts that were stored, checked."""
    counts = np.array(values, dtype=np.float64).reshape(shape)
    if not (np.isfinite(counts) & (counts >= 0)).all():
        raise ValueError("a count must be a number of at least 0")
    return counts
