"""What three figures share: the utility of all systems while one thing varies."""

from __future__ import annotations

from collections.abc import Mapping

from reticent_sim.experiments.maskit.groups import MEASURES, OPTIMAL_EVERY, Group
from reticent_sim.experiments.results import Row

DELTAS = (0.02, 0.05, 0.1, 0.2, 0.3)

Sweep = Mapping[float, Group]
"""What was found for each value of what varies."""


def rows(series: str, varies: str, sweep: Sweep) -> list[Row]:
    """A row for each value and system."""
    return [
        {
            "series": series,
            varies: value,
            "system": system,
            "n": len(group.answers(system)),
            **{measure: group.known(system, measure) for measure in MEASURES},
        }
        for value, group in sweep.items()
        for system in group.systems
    ]


def note() -> str:
    """What the reader of the rows of `optimal` must know."""
    return (
        f"optimal is computed for one person of {OPTIMAL_EVERY}; its numbers are those of adaptive for all people plus "
        "the mean difference for these few"
    )
