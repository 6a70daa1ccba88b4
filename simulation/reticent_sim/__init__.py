"""People, days and experiments: what Reticent is tried on before a phone runs it.

>>> from reticent_sim import Scenario, simulate
>>> run = simulate(Scenario(phones=20, days=1, ads=False, check="none", counters=2))  # doctest: +SKIP
>>> run.counts[0]["exact"]  # doctest: +SKIP
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reticent_sim.engine.errors import WorkerDied
    from reticent_sim.engine.faults import Fault, FaultSchedule
    from reticent_sim.engine.scenario import Scenario
    from reticent_sim.engine.simulation import Run, simulate
    from reticent_sim.engine.snapshot import Snapshot

__all__ = ["Fault", "FaultSchedule", "Run", "Scenario", "Snapshot", "WorkerDied", "simulate"]

_ON_USE = {
    "Fault": "reticent_sim.engine.faults",
    "FaultSchedule": "reticent_sim.engine.faults",
    "Run": "reticent_sim.engine.simulation",
    "Scenario": "reticent_sim.engine.scenario",
    "Snapshot": "reticent_sim.engine.snapshot",
    "WorkerDied": "reticent_sim.engine.errors",
    "simulate": "reticent_sim.engine.simulation",
}


def __getattr__(name: str) -> Any:
    """Import a name of the engine when it is used: most programs of this package simulate no servers."""
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_USE[name]), name)
