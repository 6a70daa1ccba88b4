"""The part that three figures share: the utility of all systems over one variable."""

from __future__ import annotations

from collections.abc import Mapping

from reticent_sim.experiments.maskit.groups import MEASURES, OPTIMAL_EVERY, Group
from reticent_sim.experiments.results import Row

DELTAS = (0.02, 0.05, 0.1, 0.2, 0.3)

Sweep = Mapping[float, Group]
"""The group for each value of the variable."""


def rows(series: str, varies: str, sweep: Sweep) -> list[Row]:
    """A row for each value and system."""
    return [
        {
            "series": series,
            varies: value,
            "system": system,
            "n": len(group.results(system)),
            **{measure: group.known(system, measure) for measure in MEASURES},
        }
        for value, group in sweep.items()
        for system in group.systems
    ]


def note() -> str:
    """A note about the rows of `optimal`."""
    return (
        f"optimal is computed for one person of {OPTIMAL_EVERY}; its numbers are those of adaptive for all people plus "
        "the mean difference for these few"
    )
