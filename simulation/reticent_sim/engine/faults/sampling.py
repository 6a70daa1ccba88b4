"""Random schedules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reticent.randomness import seeded
from reticent_sim.engine.faults.fault import (
    CALL_KINDS,
    STEPS,
    Call,
    Fault,
    Kind,
    Server,
    phones_target,
)
from reticent_sim.engine.faults.schedule import FaultSchedule

__all__ = ["SAMPLED", "sample"]

SAMPLED: tuple[Kind, ...] = (*CALL_KINDS, "partition", "crash", "skew", "full", "slow", "absent")
"""The kinds of faults of a random schedule. Phones join and leave only where a schedule says so."""
_SERVERS: tuple[Server, ...] = ("keys", "aggregation")
_LIKELY_CALLS: tuple[Call, ...] = ("announcements", "query", "key", "contribute", "contribute", "decisions")
"""The calls that phones make in every count: half of what can go wrong is about contributions."""
_MOST_STEPS, _MOST_TIMES, _MOST_SKEW = 4, 3, 600
"""The longest fault in steps, the most calls in a step that fail, and the largest skew in seconds."""
_MOST_ROUNDS = 2
"""The longest fault of a count in rounds; it begins one round later at most."""
_OF_COUNTS: tuple[Kind, ...] = (*CALL_KINDS, "skew", "slow")
_SHARE = 10  # one phone of so many is concerned at most


def sample(
    seed: int,
    *,
    phones: int,
    days: int,
    faults: int = 20,
    kinds: Sequence[Kind] = SAMPLED,
    counts: Sequence[tuple[int, int]] = (),
) -> FaultSchedule:
    """A random schedule. A fault of it depends on its number only, not on how many there are.

    Args:
        seed: Of all of it.
        phones: The number of phones.
        days: The number of days.
        faults: The number of faults.
        kinds: The kinds to choose from.
        counts: The day and step of each count. If there are any, faults of calls and clocks hit counts only, and so
            does a half of the others, in rounds instead of steps.
    """
    if unknown := sorted(set(kinds) - set(SAMPLED)):
        raise ValueError(f"a random schedule has faults of {', '.join(SAMPLED)}: got {unknown[0]!r}")
    numbers = range(faults)
    return FaultSchedule(tuple(_fault(seeded(seed, "fault", each), phones, days, kinds, counts) for each in numbers))


def _fault(
    rng: np.random.Generator, phones: int, days: int, kinds: Sequence[Kind], counts: Sequence[tuple[int, int]]
) -> Fault:
    kind = kinds[int(rng.integers(len(kinds)))]
    start = int(rng.integers(days * STEPS))
    day, step, steps, phase = start // STEPS, start % STEPS, int(rng.integers(1, _MOST_STEPS + 1)), None
    steps = min(steps, days * STEPS - start)
    if counts and (kind in _OF_COUNTS or rng.random() < 0.5):
        day, step = counts[int(rng.integers(len(counts)))]
        steps, phase = int(rng.integers(1, _MOST_ROUNDS + 1)), int(rng.integers(1, _MOST_ROUNDS + 2))
    first = int(rng.integers(phones))
    last = min(phones - 1, first + int(rng.integers(max(1, phones // _SHARE))))
    alone, several = phones_target(first, first), phones_target(first, last)
    server = _SERVERS[rng.integers(len(_SERVERS))]
    times = int(rng.integers(1, _MOST_TIMES + 1))
    if kind in CALL_KINDS:
        call = _LIKELY_CALLS[rng.integers(len(_LIKELY_CALLS))]
        return Fault(day, step, kind, several, call=call, times=times)
    if kind == "skew":
        seconds = int(rng.integers(1, _MOST_SKEW + 1)) * (-1 if rng.random() < 0.5 else 1)
        return Fault(day, step, kind, alone, seconds=seconds, steps=steps, phase=phase)
    if kind == "crash":
        return Fault(day, step, kind, server, steps=steps - 1, phase=phase)
    if kind == "slow":
        return Fault(day, step, kind, several, rounds=times)
    target = server if kind == "full" and rng.random() < 0.5 else several
    return Fault(day, step, kind, target, steps=steps, phase=phase, server=server if kind == "partition" else None)
