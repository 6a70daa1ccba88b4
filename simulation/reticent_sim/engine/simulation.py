"""`simulate`: run a scenario against real servers, and describe what happened."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reticent.privacy import Query, QueryBurnt
from reticent.rates import RateTable
from reticent.storage.databases import has_password, schemas
from reticent_analyst.cohort_odds import no_release
from reticent_analyst.errors import LevelBurnt
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.engine.backends import BackendName, backend_of
from reticent_sim.engine.coordinator import Coordinator
from reticent_sim.engine.count_outcome import CountOutcome
from reticent_sim.engine.exactness import WILD
from reticent_sim.engine.faults import Fault, FaultSchedule, ProcessOutcome
from reticent_sim.engine.malice import DecidedCount, collusions, findings
from reticent_sim.engine.messages import CostReport, LiveReport, MaskLeakage
from reticent_sim.engine.observer import TOLERANCE
from reticent_sim.engine.questions import check_questions
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.servers import RETICENT
from reticent_sim.engine.snapshot import Snapshot
from reticent_sim.engine.times import STEPS, instant_of
from reticent_sim.engine.trace import Trace
from reticent_sim.engine.usage import TotalUsage, peak_memory
from reticent_sim.engine.worker_pool import default_workers
from reticent_sim.world.outcomes import AdDay, rates_progress
from reticent_sim.world.rate_tables import combined

__all__ = ["FAULTS_FILE", "RUN_FILE", "TRACE_FILE", "Run", "simulate"]

RUN_FILE, TRACE_FILE, FAULTS_FILE = "run.json", "trace.txt", "faults.jsonl"
SCHEMAS = {"reticent_agg", "reticent_keys"}
"""The schemas of the servers in a PostgreSQL database."""
LEVEL = 0.95
"""The level of intervals."""
UNLIKELY = 1e-4
"""A query that absent phones burn with a smaller probability must not be burnt without another cause."""


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
                    self._rates.append(_rates(day, estimates[-1], coordinator.outcomes))
            if day in scenario.count_days:
                with contextlib.suppress(QueryBurnt):
                    coordinator.count_counters()
            ads = None
            if requests:
                coordinator.show("evaluate the ads")
                ads = rates_progress(self._world, requests, served, delta=scenario.ad_delta)
            self._days.append(_day(day, reports, ads))
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
            "masks": [_mask(each, scenario.delta) for each in masks],
            "counts": [_count(each) for each in coordinator.outcomes],
            "level": LEVEL,
            "rates": self._rates,
            "budget": _budget(scenario, costs),
            "cost": _cost(costs, usage, memory, coordinator.outcomes, server_cpu=cpu, own_cpu=own_cpu),
            "faults": _faults(self._schedule, coordinator.faulted, coordinator.applied),
            "malice": [asdict(each) for each in findings(usage.experiences, decided)],
            "collusions": [
                asdict(each) | {"covered": each.is_covered} for each in collusions(usage.experiences, decided)
            ],
            "failures": dict(sorted(coordinator.failures.items())),
            "problems": list(_problems(scenario, masks, coordinator.outcomes, faults=bool(self._schedule.faults))),
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


def _day(day: int, reports: Sequence[LiveReport], ads: AdDay | None) -> dict[str, Any]:
    clicks = sum(report.clicks for report in reports)
    return {
        "day": day,
        "date": instant_of(day, 0).date().isoformat(),
        "steps": STEPS * sum(report.released + report.suppressed + report.missing for report in reports) // STEPS,
        "released": sum(report.released for report in reports),
        "suppressed": sum(report.suppressed for report in reports),
        "missing": sum(report.missing for report in reports),
        "ads": None
        if ads is None
        else {
            "requests": ads.requests,
            "shown": sum(report.shown for report in reports),
            "clicks": clicks,
            "precision": ads.precision,
            "coverage": ads.coverage,
            "revenue": {"none": ads.revenue_none, "learned": ads.revenue_learned, "exact": ads.revenue_exact},
            "progress": ads.progress,
            "progress_interval": list(ads.interval),
        },
    }


def _rates(day: int, learned: Any, outcomes: Sequence[CountOutcome]) -> dict[str, Any]:
    queries = [each.query.id for each in outcomes if each.day == day]
    return {"day": day, "queries": queries, "epsilon": learned.epsilon, "delta": learned.delta, "pairs": len(learned)}


def _mask(measured: MaskLeakage, delta: float) -> dict[str, Any]:
    rises = np.array([rise for own in measured.rises.values() for rise in own])
    bins = max(4, min(36, round(40 * delta)))  # delta is an edge, and what equals it is below
    edges = np.unique([*np.linspace(0, delta, bins + 1), *np.linspace(delta, 1, 41 - bins)])
    counts, _ = np.histogram(np.clip(rises - TOLERANCE, 0, 1), edges)
    return {
        "check": measured.check,
        "released": measured.released / max(1, measured.steps),
        "phones": len(measured.rises),
        "days": len(rises),
        "rises": {
            "max": float(rises.max(initial=0.0)),
            "mean": float(rises.mean()) if len(rises) else 0.0,
            "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
        },
        "breaches": measured.breaches,
        "forbidden": measured.forbidden,
        "strayed": measured.strayed,
    }


def _count(outcome: CountOutcome) -> dict[str, Any]:
    release, query = outcome.release, outcome.query
    counters: list[dict[str, Any]] = []
    if release is not None:
        intervals = release.interval(LEVEL).tolist()
        rows = zip(release.counters, outcome.truth, release.value, intervals, release.variance, strict=True)
        counters = [
            {"name": name, "truth": truth, "value": value, "low": low, "high": high, "sigma": variance**0.5}
            for name, truth, value, (low, high), variance in rows
        ]
    return {
        "id": query.id,
        "day": outcome.day,
        "kind": "counters" if query.sequence is None else "rates",
        "counters": counters,
        "population": query.population,
        "contributors": sum(outcome.progress.contributors),
        "cohorts": query.cohorts,
        "cohorts_left_out": [] if release is None else list(release.cohorts_left_out),
        "method": None if release is None else "median" if any(release.cohorts_outlying) else "sum",
        "epsilon": query.epsilon,
        "delta": query.delta,
        "exact": outcome.exact,
        "burnt": outcome.burnt,
        "seconds": round(outcome.seconds, 2),
    }


def _faults(
    schedule: FaultSchedule, outcomes: Sequence[ProcessOutcome], of_phones: AbstractSet[Fault]
) -> list[dict[str, Any]]:
    """All faults of the run, and whether they took effect; those of processes and of their disks with the outcome."""
    found: dict[Fault, list[str]] = {}
    applied = {*of_phones, *(each.fault for each in outcomes if each.is_applied)}
    for each in outcomes:
        found.setdefault(each.fault, []).append(each.outcome)
    return [
        {
            "day": fault.day,
            "step": fault.step,
            "kind": fault.kind,
            "target": fault.target,
            "steps": 0 if fault.phase is not None else fault.steps,
            "applied": fault in applied,
            "outcome": ", then ".join(dict.fromkeys(found.get(fault, ()))),
        }
        for fault in schedule.faults
    ]


def _budget(scenario: Scenario, costs: Sequence[CostReport]) -> dict[str, Any]:
    limit = scenario.phone_settings.budget
    spent, deltas = zip(*(each for cost in costs for each in cost.spent), strict=True)
    return {
        "epsilon": limit.epsilon,
        "delta": limit.delta,
        "spent_epsilon_mean": sum(sorted(spent)) / len(spent),
        "spent_epsilon_max": max(spent),
        "spent_delta_max": max(deltas),
    }


def _cost(
    costs: Sequence[CostReport],
    usage: TotalUsage,
    memory: Mapping[str, int],
    outcomes: Sequence[CountOutcome],
    *,
    server_cpu: float,
    own_cpu: float,
) -> dict[str, Any]:
    """The cost of the phones on average, and of the processes in all.

    Args:
        costs: Of the workers.
        usage: Of the phones.
        memory: The most bytes that each process held.
        outcomes: The outcomes of all queries.
        server_cpu: CPU seconds of the servers.
        own_cpu: CPU seconds of the simulation itself: the people, policies, an adversary's beliefs and the coordinator.
    """
    phones = sum(len(cost.spent) for cost in costs)
    contributed = sum(each.acknowledged for each in outcomes)
    return {
        "phones": phones,
        "cpu_ms": 1000 * usage.phones_cpu / phones,
        "server_cpu_ms": 1000 * server_cpu / phones,
        "simulation_cpu_ms": 1000 * own_cpu / phones,
        "calls": usage.calls / phones,
        "bytes_sent": usage.bytes_sent / phones,
        "bytes_received": usage.bytes_received / phones,
        "store_bytes": sum(cost.store_bytes for cost in costs) / phones,
        "memory_mb": {"workers": sum(cost.memory for cost in costs) / 1e6}
        | {name: size / 1e6 for name, size in memory.items()},
        "contributions_per_second": contributed / max(1e-9, sum(each.seconds for each in outcomes)),
    }


def _problems(
    scenario: Scenario, masks: Sequence[MaskLeakage], outcomes: Sequence[CountOutcome], *, faults: bool
) -> Iterator[str]:
    """Broken promises, a sentence each.

    Args:
        scenario: The scenario.
        masks: The rises of beliefs under each check.
        outcomes: The outcomes of all queries.
        faults: Whether there were faults.
    """
    for each in masks:
        if each.check in CHECKS and CHECKS[each.check].private and each.largest > scenario.delta + TOLERANCE:
            yield f"the check {each.check} let a belief rise by {each.largest:.6g}: more than delta = {scenario.delta}"
        if each.forbidden:
            yield f"the check {each.check} must suppress {each.forbidden} of the contexts that phones released"
    for outcome in outcomes:
        if outcome.exact is False:
            yield f"the release of {outcome.query.id!r} is not the sum of what the phones contributed"
        counted = sum(outcome.progress.contributors)
        if counted < outcome.acknowledged:
            yield (
                f"{outcome.query.id!r} has {counted} contributions, but {outcome.acknowledged} phones have an "
                "acknowledgement"
            )
        if "void" in outcome.progress.outcomes and WILD not in scenario.malice.values():
            yield f"a cohort of {outcome.query.id!r} is void, but no phone contributes wild values"
        if outcome.burnt is not None and not scenario.malice and not faults and _is_unlikely(scenario, outcome.query):
            yield f"{outcome.query.id!r} is burnt, but there were no faults, and too few phones were absent for that"


def _is_unlikely(scenario: Scenario, query: Query) -> bool:
    """Whether absent phones alone are unlikely to burn a query."""
    return no_release(query.population, query.cohorts, query.min_contributions, scenario.absent) < UNLIKELY
