"""The parts of `run.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from reticent_sim.engine.count_outcome import CountOutcome
from reticent_sim.engine.faults import Fault, FaultSchedule, ProcessOutcome
from reticent_sim.engine.messages import CostReport, LiveReport, MaskLeakage
from reticent_sim.engine.observer import TOLERANCE
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.times import STEPS, instant_of
from reticent_sim.engine.usage import TotalUsage
from reticent_sim.world.outcomes import AdDay

__all__ = ["LEVEL", "budget_data", "cost_data", "count_data", "day_data", "faults_data", "mask_data", "rates_data"]

LEVEL = 0.95
"""The level of intervals."""


def day_data(day: int, reports: Sequence[LiveReport], ads: AdDay | None) -> dict[str, Any]:
    """A day: the steps of all phones, and the ads."""
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


def rates_data(day: int, learned: Any, outcomes: Sequence[CountOutcome]) -> dict[str, Any]:
    """An estimate of click-through rates."""
    queries = [each.query.id for each in outcomes if each.day == day]
    return {"day": day, "queries": queries, "epsilon": learned.epsilon, "delta": learned.delta, "pairs": len(learned)}


def mask_data(measured: MaskLeakage, delta: float) -> dict[str, Any]:
    """The rises of beliefs under a check, as a histogram."""
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


def count_data(outcome: CountOutcome) -> dict[str, Any]:
    """A query: its release beside the truth."""
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


def faults_data(
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


def budget_data(scenario: Scenario, costs: Sequence[CostReport]) -> dict[str, Any]:
    """The budget of the phones, and its part that is spent."""
    limit = scenario.phone_settings.budget
    spent, deltas = zip(*(each for cost in costs for each in cost.spent), strict=True)
    return {
        "epsilon": limit.epsilon,
        "delta": limit.delta,
        "spent_epsilon_mean": sum(sorted(spent)) / len(spent),
        "spent_epsilon_max": max(spent),
        "spent_delta_max": max(deltas),
    }


def cost_data(
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
