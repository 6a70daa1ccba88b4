"""The beliefs of an adversary who knows the habits and the policies, and sees the released streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reticent.randomness import seeded
from reticent_client import Adversary, MarkovChain, MaskIt, Policy
from reticent_client.mask.chain import UNKNOWN
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

    For the check of the phones, the streams are those that were released. For others, a mask decides the same days.
    """
    return [_measured(check, request, world, policies) for check in request.checks]


def _measured(check: str, request: Measure, world: World, policies: Policies) -> MaskLeakage:
    rises: dict[int, list[float]] = {}
    released = steps = breaches = strayed = 0
    for number, days in request.streams.items():
        person = world.person(number)
        rises[number] = []
        for day, stream in days.items():
            lived = person.day(day)
            chain = policies.chain(person.routine, kind_of(day))
            if not follows(chain, lived):
                strayed += 1
                continue
            policy = (
                None if check == NO_CHECK else policies.schedule(check, person.routine).on((START + day * DAY).date())
            )
            if policy is None:
                outputs: Sequence[str | None] = lived
            elif check == request.check:
                outputs = stream
            else:
                outputs = MaskIt(policy, seeded(world.seed, "compared", check, number, day)).filter_day(lived)
            found = _rise(chain, policy, lived, outputs, sensitive=person.sensitive, delta=request.delta)
            if found is None:
                strayed += 1
                continue
            rise, breached = found
            rises[number].append(rise)
            breaches += breached
            released += sum(context is not None for context in outputs)
            steps += sum(context is not None for context in lived)
    return MaskLeakage(check, rises, released, steps, breaches, strayed)


def follows(chain: MarkovChain, day: Day) -> bool:
    """Whether a day can be a sample of the chain."""
    here, *onward = [chain.find(UNKNOWN if context is None else context) for context in day]
    possible = here is not None and chain.initial[here] > 0
    for move, there in zip(chain.transitions, onward, strict=True):
        possible = possible and there is not None and move[here, there] > 0
        here = there
    return bool(possible)


def _rise(
    chain: MarkovChain,
    policy: Policy | None,
    lived: Day,
    outputs: Sequence[str | None],
    *,
    sensitive: frozenset[str],
    delta: float,
) -> tuple[float, int] | None:
    """The largest rise of a belief on a day, and the sensitive states whose belief rises by more than the bound.

    Without a policy, the adversary knows every context. None where the policy rules out a suppression: the phone was
    off. A release that it rules out stays: the adversary believes it.
    """
    places = np.array([chain.find(UNKNOWN if context is None else context) for context in lived])
    columns = np.array([place for place, label in enumerate(chain.contexts) if label in sensitive], dtype=np.intp)
    states = places[:, None] == columns  # (T, sensitive)
    beliefs = states.astype(np.float64)
    if policy is not None:
        every, impossible = Adversary(policy).beliefs_of_real_day(outputs)
        if any(outputs[t] is None for t in impossible):
            return None
        beliefs = every[:, columns]
    rises = beliefs - chain.prior[:, columns]
    return float(rises.max(initial=0.0)), int((states & (rises > delta + TOLERANCE)).sum())
