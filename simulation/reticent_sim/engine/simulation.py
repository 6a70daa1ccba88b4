"""`simulate`: run a scenario against real servers, and describe what happened."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reticent.privacy import QueryBurnt
from reticent.rates import RateTable
from reticent.storage.databases import has_password, schemas
from reticent_analyst.errors import LevelBurnt
from reticent_sim.engine.backends import BackendName, backend_of
from reticent_sim.engine.broken_promises import broken_promises
from reticent_sim.engine.coordinator import Coordinator
from reticent_sim.engine.faults import FaultSchedule
from reticent_sim.engine.malice import DecidedCount, collusions, findings
from reticent_sim.engine.questions import check_questions
from reticent_sim.engine.run_data import (
    LEVEL,
    budget_data,
    cost_data,
    count_data,
    day_data,
    faults_data,
    mask_data,
    rates_data,
)
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.servers import RETICENT
from reticent_sim.engine.snapshot import Snapshot
from reticent_sim.engine.trace import Trace
from reticent_sim.engine.usage import peak_memory
from reticent_sim.engine.worker_pool import default_workers
from reticent_sim.world.outcomes import rates_progress
from reticent_sim.world.rate_tables import combined

__all__ = ["FAULTS_FILE", "RUN_FILE", "TRACE_FILE", "Run", "simulate"]

RUN_FILE, TRACE_FILE, FAULTS_FILE = "run.json", "trace.txt", "faults.jsonl"
SCHEMAS = {"reticent_agg", "reticent_keys"}
"""The schemas of the servers in a PostgreSQL database."""


@dataclass(frozen=True)
class Run:
    """A finished simulation.

    Args:
        scenario: The scenario.
        trace: The hash of all that happened; the same for the same scenario, whatever the number of workers.
        data: Everything, as in `run.json`.
        folder: The folder of the files; None if it was temporary.
    """

    scenario: Scenario
    trace: str
    data: Mapping[str, Any]
    folder: Path | None

    @property
    def days(self) -> list[dict[str, Any]]:
        """The releases, the ads and the revenue of each day."""
        return list(self.data["days"])

    @property
    def counts(self) -> list[dict[str, Any]]:
        """The released counts beside the truth."""
        return list(self.data["counts"])

    @property
    def masks(self) -> list[dict[str, Any]]:
        """The beliefs of an adversary, by check."""
        return list(self.data["masks"])

    @property
    def problems(self) -> list[str]:
        """The broken promises, a sentence each; empty if every promise was kept."""
        return list(self.data["problems"])


def simulate(
    scenario: Scenario,
    out: str | Path | None = None,
    *,
    engine: BackendName = "local",
    workers: int | None = None,
    faults: FaultSchedule | None = None,
    aggregation_program: Sequence[str | Path] = RETICENT,
    show: Callable[[Snapshot], None] = lambda _: None,
) -> Run:
    """Run a scenario: real servers, real phones over TLS, and simulated time.

    Args:
        scenario: The scenario.
        out: An empty folder for all files, with `run.json` and `trace.txt`; a temporary one unless given.
        engine: Where the workers run.
        workers: The number of workers; one for each processor unless given. It changes no result.
        faults: The faults; those of the scenario unless given.
        aggregation_program: Runs the aggregation server, in place of `reticent`.
        show: Called with the state of the run whenever it changes.

    Raises:
        ValueError: The folder or the database is not empty, or a file of the scenario is wrong.
        MissingExtra: PostgreSQL needs the extra `postgres`.
        WorkerDied: A worker died.
    """
    workers = default_workers() if workers is None else workers
    if type(workers) is not int or workers < 1:
        raise ValueError(f"workers must be a whole number from 1: got {workers!r}")
    workers, out = min(scenario.phones, workers), None if out is None else Path(out)
    check_questions(scenario)
    schedule = scenario.schedule() if faults is None else faults
    schedule.check(
        phones=scenario.phones, days=scenario.days, workers=workers, aggregation_servers=scenario.aggregation_servers
    )
    if scenario.database is not None:
        _check_database(scenario.database)
    with _folder(out) as folder:
        (folder / FAULTS_FILE).write_text(schedule.to_text(), encoding="utf-8")
        trace = Trace(folder / TRACE_FILE)
        coordinator = Coordinator(
            scenario,
            folder,
            faults=schedule,
            backend=backend_of(engine),
            workers=workers,
            aggregation_program=aggregation_program,
            trace=trace,
            show=show,
        )
        simulation = _Simulation(scenario, schedule)
        with contextlib.closing(trace), coordinator:
            data = simulation.run(coordinator)
        data["trace"] = trace.hash
        text = json.dumps(data, indent=1, allow_nan=False)
        (folder / RUN_FILE).write_text(text + "\n", encoding="utf-8")
    return Run(scenario, trace.hash, data, out)


class _Simulation:
    """A simulation, and its results so far."""

    def __init__(self, scenario: Scenario, schedule: FaultSchedule) -> None:
        self._scenario, self._schedule = scenario, schedule
        self._world = scenario.world
        self._began, self._cpu_before = time.monotonic(), time.process_time()
        self._days: list[dict[str, Any]] = []
        self._rates: list[dict[str, Any]] = []

    def run(self, coordinator: Coordinator) -> dict[str, Any]:
        scenario = self._scenario
        started = time.monotonic() - self._began
        estimates: list[RateTable] = []
        for day in range(scenario.days):
            reports = coordinator.live(day)
            requests = sorted(request for report in reports for request in report.requests)
            served = combined(estimates) if estimates else None
            if scenario.ads:
                with contextlib.suppress(LevelBurnt, QueryBurnt):
                    estimates.append(coordinator.estimate_rates())
                    coordinator.load_rates(combined(estimates))
                    self._rates.append(rates_data(day, estimates[-1], coordinator.outcomes))
            if day in scenario.count_days:
                with contextlib.suppress(QueryBurnt):
                    coordinator.count_counters()
            ads = None
            if requests:
                coordinator.show("evaluate the ads")
                ads = rates_progress(self._world, requests, served, delta=scenario.ad_delta)
            self._days.append(day_data(day, reports, ads))
        coordinator.take_decisions()
        masks = coordinator.measure()
        measured = coordinator.processes if sys.platform == "linux" else []
        memory = {process.name: process.peak_memory() for process in measured}
        cpu = sum(process.cpu_seconds() for process in measured)
        costs, usage = coordinator.finish(), coordinator.usage
        memory = {"coordinator": peak_memory()} | memory
        own_cpu = usage.other_cpu + time.process_time() - self._cpu_before
        decided = [DecidedCount(each.progress, each.release) for each in coordinator.outcomes]
        return {
            "format": "reticent-run",
            "version": 1,
            "scenario": scenario.to_json(),
            "trace": "",
            "seconds": round(time.monotonic() - self._began, 1),
            "seconds_to_start": round(started, 1),
            "days": self._days,
            "delta": scenario.delta,
            "masks": [mask_data(each, scenario.delta) for each in masks],
            "counts": [count_data(each) for each in coordinator.outcomes],
            "level": LEVEL,
            "rates": self._rates,
            "budget": budget_data(scenario, costs),
            "cost": cost_data(costs, usage, memory, coordinator.outcomes, server_cpu=cpu, own_cpu=own_cpu),
            "faults": faults_data(self._schedule, coordinator.faulted, coordinator.applied),
            "malice": [asdict(each) for each in findings(usage.experiences, decided)],
            "collusions": [
                asdict(each) | {"covered": each.is_covered} for each in collusions(usage.experiences, decided)
            ],
            "failures": dict(sorted(coordinator.failures.items())),
            "problems": list(
                broken_promises(scenario, masks, coordinator.outcomes, faults=bool(self._schedule.faults))
            ),
        }


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is None:
        with tempfile.TemporaryDirectory(prefix="reticent-simulation-") as name:
            yield Path(name).resolve()
        return
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise ValueError(f"{out} is not empty: a simulation needs a folder of its own")
    yield out.resolve()


def _check_database(database: str) -> None:
    """Refuse a database that holds the data of a server, and an address that the run's files must not show."""
    if has_password(database):
        raise ValueError("the address of the database holds a password: put it into a password file or PGPASSWORD")
    if found := sorted(schemas(database) & SCHEMAS):
        raise ValueError(
            f"the database already has the schema {found[0]}: make a new one with createdb, and state its address"
        )
