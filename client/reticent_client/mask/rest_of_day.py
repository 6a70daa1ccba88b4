"""The rest of a day after a release, as a day of its own.

Given a release, what comes after it is independent of what came before: the user is where the release says, and the
policy's memory is that of the release.
"""

from __future__ import annotations

from dataclasses import dataclass

from reticent_client.mask.chain import Floats, MarkovChain
from reticent_client.mask.occupancy import DAY_START, Release
from reticent_client.mask.policy import Memory, Policy


@dataclass(frozen=True)
class RestOfDay:
    """A policy from a step on, over the chain of the rest of the day."""

    policy: Policy
    chain: MarkovChain
    first: int
    """The step of the day at which the rest begins."""
    memory: Memory

    def begin(self) -> Memory:
        """The memory before the first step of the rest."""
        return self.memory

    def suppression(self, t: int, memory: Memory) -> Floats:
        """(n,): the probability of suppressing each context."""
        return self.policy.suppression(t + self.first, memory)

    def advance(self, t: int, memory: Memory, index: int, released: bool) -> Memory:
        """The memory after a step of the rest."""
        return self.policy.advance(t + self.first, memory, index, released)


def memory_after(policy: Policy, release: Release) -> Memory:
    """The policy's memory right after a release."""
    t, index = release
    return policy.begin() if release == DAY_START else policy.advance(t, policy.begin(), index, True)


def chain_after(chain: MarkovChain, release: Release, stop: int | None = None) -> MarkovChain:
    """The chain of the steps after a release, up to the step `stop` or the end of the day."""
    t, index = release
    initial = chain.initial if release == DAY_START else chain.transitions[t][index]
    return MarkovChain(chain.contexts, initial, chain.transitions[t + 1 : stop])
