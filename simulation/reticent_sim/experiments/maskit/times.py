"""Table 3.2: how long it takes to compute a policy, and to decide on a step."""

from __future__ import annotations

import numpy as np

from reticent_sim.experiments import statistics
from reticent_sim.experiments.maskit.checks import SENSITIVE, group_of
from reticent_sim.experiments.maskit.groups import Group
from reticent_sim.experiments.results import Finding, Result, Row, settings_of
from reticent_sim.experiments.runner import DELTA, Runner
from reticent_sim.experiments.systems import HYBRID, PROBABILISTIC, SIMULATABLE, SYSTEMS
from reticent_sim.experiments.verdicts import all_of, at_least, never

NAME = "maskit-times"
TITLE = "Processing times (table 3.2)"

PUBLISHED = {
    SIMULATABLE: ("none", "36 ms", "128 ms"),
    PROBABILISTIC: ("15 min", "< 1 ms", "< 1 ms"),
    HYBRID: ("18 min", "<= 36 ms", "<= 128 ms"),
}
"""To initialise on a PC, to decide on a PC, and to decide on a phone."""
SLOWEST = 5  # percent of the people, left out of one of the means

NEGLIGIBLE = 1e-3
"""Seconds: a decision that takes less is negligible beside finding out the context, which takes seconds."""
EXPENSIVE = {PROBABILISTIC: 15 * 60.0, HYBRID: 18 * 60.0}
"""Seconds to initialise, as published."""


def run(runner: Runner) -> Result:
    """Compute the data of the table. Both times are those of one core; decisions are a phone's own code."""
    group = group_of(runner)
    rows = [_row(group, system) for system in SYSTEMS]
    settings = settings_of(
        runner,
        group.people,
        sensitive=f"{SENSITIVE} contexts at random",
        delta=DELTA,
        note="times are of this machine, one core for each person; all else follows from the seed",
    )
    return Result(NAME, TITLE, settings, rows, findings(group))


def _row(group: Group, system: str) -> Row:
    ready, decide = _times(group, system)
    initialise, here, phone = PUBLISHED.get(system, ("", "", ""))
    return {
        "system": system,
        "n": len(ready),
        "initialise_s": statistics.mean(ready),
        "initialise_median_s": float(np.median(ready)),
        "initialise_most_s": max(ready),
        "decide_s": statistics.mean(decide),
        "decide_without_slowest_s": float(np.mean(np.sort(decide)[: len(decide) - len(decide) * SLOWEST // 100])),
        "decide_most_s": max(decide),
        "published_initialise": initialise,
        "published_decide_pc": here,
        "published_decide_phone": phone,
    }


def _times(group: Group, system: str) -> tuple[list[float], list[float]]:
    times = [result.times for result in group.results(system)]
    return [each.initialise for each in times], [each.decide for each in times]


def findings(group: Group) -> list[Finding]:
    """The claims about this table, compared with this run."""
    slowest = {system: max(_times(group, system)[1]) for system in SYSTEMS}
    ready = {system: statistics.mean(_times(group, system)[0]) for system in EXPENSIVE}
    return [
        Finding(
            name="decisions-are-negligible",
            claim="A decision takes a negligible time.",
            published="128 ms on a phone, 36 ms on a PC, at most",
            ours=f"{1e6 * max(slowest.values()):.0f} microseconds, for the slowest person and system",
            rule="less than a millisecond for every person and system",
            verdict=never(max(slowest.values()) >= NEGLIGIBLE, len(group.people)),
        ),
        Finding(
            name="initialising-is-expensive",
            claim="The probabilistic check and the hybrid take a quarter of an hour to initialise.",
            published="15 and 18 minutes",
            ours=", ".join(f"{system} {mean.value:.3f} s" for system, mean in ready.items()),
            rule="the intervals of both means lie above the published times",
            verdict=all_of(at_least(ready[system], seconds) for system, seconds in EXPENSIVE.items()),
        ),
    ]
