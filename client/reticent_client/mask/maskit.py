"""Runs a policy on a phone: one decision a step, through gaps, off-model contexts and kills.

Algorithm 1 of Götz's dissertation (section 3.3), with additions for a real phone. Two rules keep the policy's promise
if the phone is killed, at any moment that does not depend on its user:

- A step is stored before it is published, and a stored step is never decided again. A step that was decided but not
  stored was never published, and may be decided anew.
- The memory is that of the decision, whether or not the decision was published. A private stream stays private for an
  adversary who sees only a part of it: their belief is an average of the beliefs after the whole. So the policy
  continues after a restart as if nothing had happened.

If the memory is unknown, nothing more is released until the day ends, because no check has covered such releases.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, SupportsIndex, cast

import numpy as np

from reticent.randomness import is_seeded, secure
from reticent_client.errors import FileError, StepError
from reticent_client.mask.chain import UNKNOWN, MarkovChain
from reticent_client.mask.policy import Memory, Policy
from reticent_client.mask.report import MaskReport, Outcome, Tally
from reticent_client.mask.snapshot import snapshot_of, state_of
from reticent_client.mask.state_store import Store

MAX_DAYS = 60
"""The number of names of past days that are kept."""


class Decision(NamedTuple):
    """The outcome of a step."""

    output: str | None
    """The released context, None for silence."""
    outcome: Outcome


class MaskIt:
    """Run by the phone: decides each step by the policy, and remembers.

    An off-model context (the chain does not know it, or rules it out after the last release) is suppressed, counted and
    reported, and the policy continues. Such days are outside the policy's promise, which covers users who follow their
    chain.

    All methods may be called from any thread; one call runs at a time.

    Args:
        policy: The policy.
        rng: The generator of the coins; a secure one by default.
        store: Keeps the state through kills. The mask resumes from a stored state. An empty store may have been lost in
            the middle of a day, so nothing is released until the next day begins.
        day: The name of today, such as "2026-03-01". A restart uses it to tell today's state from that of an earlier
            day. Under the name of a finished day the mask is at that day's end; the names of the last 60 days are kept.

    >>> from reticent_client import MarkovChain, mask_sensitive
    >>> chain = MarkovChain(["home", "hospital"], [1, 0], [[[0.9, 0.1], [0.9, 0.1]]])
    >>> mask = MaskIt(mask_sensitive(chain, sensitive={"hospital"}))
    >>> mask.observe("home"), mask.observe("hospital")
    ('home', None)
    """

    _step: int
    _memory: Memory | None
    _possible: int  # the contexts that the chain allows at this step, given the last release
    _last: int | None  # what was released at the step before
    _begun: bool  # whether a step of this day was decided
    _unpublished: bool = False  # the step before may not have got out, and may be asked for again
    _step_required: bool = False  # the next step is not the present one unless somebody says so

    def __init__(
        self,
        policy: Policy,
        rng: np.random.Generator | None = None,
        *,
        store: Store | None = None,
        day: str | None = None,
    ) -> None:
        self.policy = policy
        self.day = day
        self._days = [] if day is None else [day]  # the names of the last days that have begun, today's included
        self._rng = _coins(rng)
        self._store = store
        self._lock = threading.Lock()
        self._moves = _moves(policy.chain)
        self._unknown = policy.chain.find(UNKNOWN)
        self._tally = Tally(seeded=is_seeded(self._rng))
        self._reset()
        if store is not None:
            self._resume_from_store(store.read(), day)

    @property
    def step(self) -> int:
        """The next step; the horizon when the day is over."""
        return self._step

    @property
    def suspended(self) -> bool:
        """Whether nothing will be released until the day ends, because the memory was lost."""
        return self._memory is None

    def observe(self, context: str | None, *, step: int | None = None) -> str | None:
        """Decide one step: return the context if it is released, None if it is suppressed.

        Args:
            context: The user's context, or None if nothing was read. None means the context "unknown" if the chain has
                it. Otherwise nothing is released, and the memory stays known only if the policy would have suppressed
                every context.
            step: The number of the step, by default the next one. Steps before it count as missed. It is required
                after a restart. The last stored step may be repeated: the result is the stored one, whatever the
                context is now.

        Raises:
            StepError: The step is over, was decided before, or lies outside the day.
        """
        if not isinstance(context, str | None):
            raise TypeError(f"a context is a string, or None for no reading: got {context!r}")
        if step is not None:
            step = _whole(step)
        with self._lock:
            if step is None and self._step_required:
                raise StepError(
                    "after a restart, or a failure to store, step= must say which step this is: "
                    f"{self._step} is the next that was not decided"
                )
            if not self._is_repeated(step):
                self._advance_to(self._step if step is None else step)
                self._decide(context)
            self._store_state()
            return None if self._last is None else self.policy.contexts[self._last]

    def filter_day(self, labels: Sequence[str | None]) -> list[str | None]:
        """Decide a whole day and begin the next; the same as `observe` for each step.

        Raises:
            StepError: A day has begun already.
        """
        return [decision.output for decision in self.decide_day(labels)]

    def decide_day(self, labels: Sequence[str | None]) -> list[Decision]:
        """The same as `filter_day`, with the outcome of each step. Only the outputs may leave the phone.

        Raises:
            StepError: A day has begun already.
        """
        if len(labels) != self.policy.horizon:
            raise ValueError(f"a day has {self.policy.horizon} steps: got {len(labels)}")
        with self._lock:
            if self._step:
                raise StepError(
                    f"a whole day begins at step 0, the next step is {self._step}: call next_day() when the day is over"
                )
            decisions = []
            for context in labels:
                outcome = self._decide(context)
                decisions.append(Decision(None if self._last is None else self.policy.contexts[self._last], outcome))
            self._start_day(None)
            return decisions

    def next_day(self, day: str | None = None) -> None:
        """Begin a new day at step 0; undecided steps of the old day count as missed.

        Never call it twice in a day, or steps would be decided twice. The name of the day, given here or to a new
        `MaskIt`, prevents that after a restart.

        Raises:
            StepError: The day of this name has begun already.
        """
        with self._lock:
            if day is not None and day in self._days:
                running = day == self.day and self._step < self.policy.horizon
                place = f"the next step is {self._step}" if running else "it is over"
                raise StepError(f"the day {day!r} has begun already: {place}")
            self._start_day(day)

    def snapshot(self) -> str:
        """The state as text for `restore`. It is small, and private: it contains where the user was."""
        with self._lock:
            return self._snapshot()

    def restore(self, snapshot: str) -> None:
        """Take the state of a snapshot of the same policy.

        Only the latest snapshot may be restored: an older one would decide published steps again.

        Raises:
            FileError: The snapshot is damaged, newer, or another policy's.
        """
        with self._lock:
            self._resume(snapshot)

    def report(self) -> MaskReport:
        """The outcomes of the steps so far."""
        with self._lock:
            return self._tally.report()

    def take_over_contexts(self, earlier: MaskIt) -> None:
        """Report the off-model contexts of an earlier mask as well: they are in its memory only, not in its store."""
        self._tally.labels.update(earlier._tally.labels)

    def _reset(self) -> None:
        self._step = 0
        self._memory = self.policy.begin()
        self._possible = _bits(self.policy.chain.initial)
        self._last = None
        self._begun = False

    def _start_day(self, day: str | None) -> None:
        """Begin a day and store it."""
        self._end_day(day)
        if day is not None:
            self._days = [*self._days, day][-MAX_DAYS:]
        self._store_state()

    def _end_day(self, day: str | None) -> None:
        """End the present day."""
        if self._begun:
            self._tally.counts["missed"] += self.policy.horizon - self._step
        self._tally.unusual_steps.finish_day()
        self._reset()
        self.day = day
        self._unpublished = False

    def _resume_from_store(self, stored: str | None, day: str | None) -> None:
        """Resume the stored state if it is today's; with an empty store, the mask is suspended."""
        if stored is None:
            self._memory = None
            self._store_state()
            return
        self._resume(stored)
        if day is not None and day != self.day:
            if day in self._days:  # its steps may be published; what is stored is of a later day, and stays
                self._end_day(day)
                self._step = self.policy.horizon
                return
            self._start_day(day)
        self._step_required = True

    def _is_repeated(self, step: int | None) -> bool:
        """Whether this repeats a decided step that may not have been published."""
        return self._unpublished and step is not None and step == self._step - 1 >= 0

    def _advance_to(self, step: int) -> None:
        """Skip the steps before this one; refuse a step that cannot be next."""
        horizon = self.policy.horizon
        if self._step == horizon and 0 <= step <= horizon:
            over = "" if self.day is None else f"the day {self.day!r} is over: "
            raise StepError(f"{over}step {step} cannot follow step {horizon - 1}, the day's last: call next_day()")
        if not 0 <= step < horizon:
            raise StepError(f"step {step} lies outside the day of {horizon} steps")
        if step < self._step:
            raise StepError(f"step {step} is over: the next step is {self._step}")
        while self._step < step:
            self._tally.counts["missed"] += 1
            self._skip_step()
            self._next_step()

    def _decide(self, context: str | None) -> Outcome:
        """Decide one step, put its release into `_last`, and go to the next step."""
        t, memory, counts = self._step, self._memory, self._tally.counts
        coin = self._rng.random()
        index = self._unknown if context is None else self.policy.chain.find(context)
        if not self._begun:
            self._begun = True
            counts["days"] += 1
        self._last = None
        outcome: Outcome
        if memory is None:
            outcome = "suspended"
        elif index is None and context is None:
            outcome = "missing"
            self._skip_step()
        elif index is None or not self._possible >> index & 1:
            outcome = "off_model"
            self._tally.off_model(context)
            self._memory = self._memory_after_off_model(memory, index)
        else:
            self._tally.expected(context, self.policy.chain.prior[t, index])
            released = bool(coin >= self.policy.suppression(t, memory)[index])
            self._memory = self.policy.advance(t, memory, index, released)
            outcome = "released" if released else "suppressed"
            if released:
                self._last = index
                self._possible = 1 << index
        counts[outcome] += 1
        if context in {None, UNKNOWN}:
            self._tally.gaps[outcome] += 1
        self._next_step()
        return outcome

    def _memory_after_off_model(self, memory: Memory, index: int | None) -> Memory | None:
        """The memory after an off-model context; None if it is unknown.

        A context that the chain does not know may stand for any that it knows.
        """
        indices = range(len(self.policy.contexts)) if index is None else (index,)
        after = {self.policy.advance(self._step, memory, i, False) for i in indices}
        return after.pop() if len(after) == 1 else None

    def _skip_step(self) -> None:
        """Pass a step without a reading and without a release."""
        self._last = None
        if self._memory is not None:
            self._memory = self.policy.missed(self._step, self._memory)

    def _next_step(self) -> None:
        """Go to the next step, and to the contexts that the chain allows there."""
        t, here, there = self._step, self._possible, 0
        self._step = t + 1
        if t < len(self._moves):
            moves = self._moves[t]
            while here:
                last = here.bit_length() - 1
                there |= moves[last]
                here ^= 1 << last
            self._possible = there

    def _store_state(self) -> None:
        """Store the state; nothing is published until this succeeds."""
        if self._store is not None:
            self._unpublished = self._step_required = True
            self._store.write(self._snapshot())
        self._unpublished = self._step_required = False

    @cached_property
    def _fingerprint(self) -> str:
        return self.policy.fingerprint()

    def _snapshot(self) -> str:
        state = {
            "policy": self._fingerprint,
            "day": self.day,
            "days": self._days,
            "step": self._step,
            "memory": self._memory,
            "possible": f"{self._possible:x}",
            "last": self._last,
            "begun": self._begun,
        } | self._tally.to_json()
        return snapshot_of(state)

    def _resume(self, snapshot: str) -> None:
        state = state_of(snapshot)
        if state["policy"] != self._fingerprint:
            raise FileError("the stored state belongs to another policy: begin with an empty store instead")
        memory = state["memory"]
        self._step = state["step"]
        self._memory = None if memory is None else tuple(memory)
        self._possible = int(state["possible"], 16)
        self._last = state["last"]
        self._begun = state["begun"]
        self.day = state["day"]
        self._days = state["days"]
        self._tally = Tally.from_json(state, seeded=self._tally.seeded)
        self._unpublished = True


def _coins(rng: object) -> np.random.Generator:
    """The given generator, or a secure one."""
    if rng is None:
        return secure()
    if not callable(getattr(rng, "random", None)):
        raise ValueError(f"rng must be a NumPy Generator, as reticent.randomness.seeded(1) is: got {rng!r}")
    return cast("np.random.Generator", rng)


def _whole(step: object) -> int:
    try:
        return operator.index(cast("SupportsIndex", step))
    except TypeError:
        raise TypeError(f"step must be a whole number: got {step!r}") from None


def _moves(chain: MarkovChain) -> list[list[int]]:
    """[t][i]: the contexts that can follow context i of step t, as bits."""
    return [[_bits(row) for row in step] for step in chain.transitions]


def _bits(probabilities: np.ndarray[Any, np.dtype[np.float64]]) -> int:
    """The contexts of positive probability."""
    return int.from_bytes(np.packbits(probabilities > 0, bitorder="little").tobytes(), "little")
