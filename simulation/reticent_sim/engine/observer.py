"""The beliefs of an adversary who knows the habits and the policies, and sees the released streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reticent.randomness import seeded
from reticent_client import Adversary, MarkovChain, MaskIt, Policy
from reticent_client.mask.adversary import Runnable
from reticent_client.mask.chain import UNKNOWN, Floats
from reticent_client.mask.policy import Memory
from reticent_sim.engine.messages import MaskLeakage, Measure
from reticent_sim.engine.policies import Policies, kind_of
from reticent_sim.engine.scenario import NO_CHECK
from reticent_sim.engine.times import DAY, START
from reticent_sim.world.people import Day
from reticent_sim.world.world import World

__all__ = ["TOLERANCE", "follows", "measured"]

TOLERANCE = 1e-9
"""A rise above the bound by less counts as rounding."""


def measured(request: Measure, world: World, policies: Policies) -> list[MaskLeakage]:
    """The rises of the beliefs in sensitive contexts, for phones of this worker.

    For the check of the phones, the streams are those that were published, and the contexts those that the phones have
    read: a phone with a wrong clock lives by its own time. For others, a mask decides the days of the users.
    """
    return [_measured(check, request, world, policies) for check in request.checks]


def _measured(check: str, request: Measure, world: World, policies: Policies) -> MaskLeakage:
    rises: dict[int, list[float]] = {}
    released = steps = breaches = forbidden = strayed = 0
    for number, days in request.streams.items():
        person = world.person(number)
        rises[number] = []
        for day, stream in days.items():
            lived, missed = person.day(day), frozenset[int]()
            chain = policies.chain(person.routine, kind_of(day))
            policy = (
                None if check == NO_CHECK else policies.schedule(check, person.routine).on((START + day * DAY).date())
            )
            if policy is None:
                outputs: Sequence[str | None] = lived
            elif check == request.check:
                outputs = [None if each is None else each.context for each in stream]
                missed = frozenset(step for step, each in enumerate(stream) if each is None)
                lived = [place if each is None else each.read for place, each in zip(lived, stream, strict=True)]
            else:
                outputs = MaskIt(policy, seeded(world.seed, "compared", check, number, day)).filter_day(lived)
            seen = None if policy is None else _PolicyWithGaps(policy, missed)
            found = (
                _rise(chain, seen, lived, outputs, sensitive=person.sensitive, delta=request.delta)
                if follows(chain, lived, missed)
                else None
            )
            if found is None:
                strayed += 1
                continue
            rise, breached, impossible = found
            rises[number].append(rise)
            breaches += breached
            forbidden += impossible
            released += sum(context is not None for context in outputs)
            steps += sum(context is not None for context in lived)
    return MaskLeakage(check, rises, released, steps, breaches, forbidden, strayed)


def follows(chain: MarkovChain, day: Day, missed: frozenset[int] = frozenset()) -> bool:
    """Whether a day can be a sample of the chain, whatever its contexts at missed steps are."""
    possible = chain.initial > 0  # (n,)
    for t, context in enumerate(day):
        if t:
            possible = possible @ (chain.transitions[t - 1] > 0) > 0
        if t not in missed:
            place = chain.find(UNKNOWN if context is None else context)
            possible &= np.arange(chain.size) == (-1 if place is None else place)
    return bool(possible.any())


class _PolicyWithGaps:
    """A policy, to an adversary who sees at which steps a phone published nothing.

    Such a step says nothing about the context. The mask then knows its memory, or releases nothing until the day ends.
    """

    def __init__(self, policy: Policy, missed: frozenset[int]) -> None:
        self.chain = policy.chain
        self._policy = policy
        self._missed = missed

    def begin(self) -> Memory | None:
        return self._policy.begin()

    def suppression(self, t: int, memory: Memory | None) -> Floats:
        if memory is None or t in self._missed:
            return np.ones(self.chain.size)
        return self._policy.suppression(t, memory)

    def advance(self, t: int, memory: Memory | None, index: int, released: bool) -> Memory | None:
        if memory is None:
            return None
        if t in self._missed:
            return self._policy.missed(t, memory)
        return self._policy.advance(t, memory, index, released)


def _rise(
    chain: MarkovChain,
    policy: Runnable | None,
    lived: Day,
    outputs: Sequence[str | None],
    *,
    sensitive: frozenset[str],
    delta: float,
) -> tuple[float, int, int] | None:
    """The largest rise of a belief on a day, the sensitive states whose belief rises too far, and forbidden releases.

    Without a policy, the adversary knows every context. None where the policy rules out a suppression: the mask did not
    know the context. A release that it rules out stays: the adversary believes it.
    """
    places = np.array([chain.find(UNKNOWN if context is None else context) for context in lived])
    columns = np.array([place for place, label in enumerate(chain.contexts) if label in sensitive], dtype=np.intp)
    states = places[:, None] == columns  # (T, sensitive)
    beliefs, forbidden = states.astype(np.float64), 0
    if policy is not None:
        every, impossible = Adversary(policy).beliefs_of_real_day(outputs)
        if any(outputs[t] is None for t in impossible):
            return None
        beliefs, forbidden = every[:, columns], len(impossible)
    rises = beliefs - chain.prior[:, columns]
    return float(rises.max(initial=0.0)), int((states & (rises > delta + TOLERANCE)).sum()), forbidden
