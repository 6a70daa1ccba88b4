"""People, days and experiments: what Reticent is tried on before a phone runs it.

>>> from reticent_sim import Scenario, simulate
>>> run = simulate(Scenario(phones=20, days=1, ads=False, check="none", counters=2))  # doctest: +SKIP
>>> run.counts[0]["exact"]  # doctest: +SKIP
True
"""

from typing import TYPE_CHECKING

from reticent.lazy_imports import lazy_names

if TYPE_CHECKING:
    from reticent_sim.engine.errors import WorkerDied
    from reticent_sim.engine.faults import Fault, FaultSchedule
    from reticent_sim.engine.scenario import Scenario
    from reticent_sim.engine.simulation import Run, simulate
    from reticent_sim.engine.snapshot import Snapshot
else:  # most programs of this package simulate no servers
    __getattr__ = lazy_names(
        __name__,
        {
            "Fault": "reticent_sim.engine.faults",
            "FaultSchedule": "reticent_sim.engine.faults",
            "Run": "reticent_sim.engine.simulation",
            "Scenario": "reticent_sim.engine.scenario",
            "Snapshot": "reticent_sim.engine.snapshot",
            "WorkerDied": "reticent_sim.engine.errors",
            "simulate": "reticent_sim.engine.simulation",
        },
    )

__all__ = ["Fault", "FaultSchedule", "Run", "Scenario", "Snapshot", "WorkerDied", "simulate"]
