"""A run that looks like a real one, made from a seed."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np

from reticent.randomness import seeded

MONDAY = dt.date(2027, 1, 4)
PLACES = ("gym", "office", "transit", "park", "school", "market", "cinema", "library")
HABITS = ("visits", "hours", "mornings", "evenings", "weekdays", "weekends", "trips", "calls")
RATES = [f"ads/{place}/click/coffee" for place in PLACES]
BURNT = {"method": None, "exact": None, "burnt": "too few phones"}
EDGES = [round(edge, 2) for edge in np.linspace(0, 1, 51).tolist()]
DELTA = 0.1
BUDGET = {"epsilon": 0.5, "delta": 1e-5}
"""Of one query."""


def made_run(seed: int = 1, phones: int = 1000, days: int = 7) -> dict[str, Any]:
    """The content of `run.json`."""
    rng = seeded(seed, "made run")
    names = [f"{habit} {place}" for place in PLACES for habit in HABITS]
    levels = [f"rates-{day}-level-{level}" for day in range(min(days, 3)) for level in range(2)]
    return {
        "format": "reticent-run",
        "version": 1,
        "scenario": {
            "phones": phones, "days": days, "check": "hybrid", "delta": DELTA, "epsilon": 4.0, "absent": 0.1,
            "malicious": {"garbage": 3, "wild": 3}, "seed": seed, "compare": ["optimal"], "faults": None,
        },
        "trace": rng.bytes(16).hex(),
        "seconds": 61.24,
        "days": [_day(rng, day, phones) for day in range(days)],
        "masks": [
            {"check": check, "released": share, "phones": phones, "strayed": 31, **_rises(rng, far, phones * days)}
            for check, share, far in (("hybrid", 0.781, 0.0), ("optimal", 0.842, 0.0), ("none", 1.0, 0.11))
        ],
        "delta": DELTA,
        "counts": [
            *(_count(rng, f"visits-{day}", day, names, phones) for day in (1, 3, 5) if day < days),
            *(_count(rng, each, int(each[6]), RATES, phones) | {"kind": "rates"} for each in levels),
            _count(rng, f"visits-{days}", days - 1, [], phones) | BURNT,
        ],
        "level": 0.95,
        "rates": [
            {"day": day, "queries": [f"rates-{day}-level-{k}" for k in range(2)], "pairs": 180 + 40 * day} | BUDGET
            for day in range(days)
        ],
        "budget": {
            "epsilon": 4.0, "delta": 1e-4,
            "spent_epsilon_mean": 2.918, "spent_epsilon_max": 3.5, "spent_delta_max": 6e-5,
        },
        "cost": {
            "phones": phones, "cpu_ms": 36.2, "server_cpu_ms": 11.9, "simulation_cpu_ms": 8.4, "calls": 61.4,
            "bytes_sent": 41_280.5, "bytes_received": 58_113.2, "store_bytes": 22_528,
            "memory_mb": {"workers": 612.4, "coordinator": 133.7, "keys": 143.9, "aggregation": 121.3, "ads": 97.2},
            "contributions_per_second": 318.6,
        },
        "faults": sorted([_fault(rng, days) for _ in range(38)], key=lambda each: (each["day"], each["step"])),
        "malice": [_lie(phones - 1 - k, k) for k in range(12)],
        "failures": {"UNAVAILABLE: the aggregation server": 214, "declined: 8 of 9 phones are needed": 3},
        "problems": [],
    }  # fmt: skip


def _day(rng: np.random.Generator, day: int, phones: int) -> dict[str, Any]:
    steps = 24 * phones
    missing = int(steps * rng.uniform(0.02, 0.04))
    suppressed = int(steps * rng.uniform(0.15, 0.21))
    progress = 1 - math.exp(-0.35 * day)
    none, exact = (amount * rng.uniform(0.96, 1.04) for amount in (0.0848, 0.1364))
    requests = int(2.3 * phones)
    precision, coverage = 0.11 + 0.09 * progress, 0.34 + 0.4 * progress
    shown = int(requests * coverage)
    return {
        "day": day, "date": str(MONDAY + dt.timedelta(days=day)), "steps": steps,
        "released": steps - missing - suppressed, "suppressed": suppressed, "missing": missing,
        "ads": {
            "requests": requests, "shown": shown, "clicks": int(shown * precision),
            "precision": precision, "coverage": coverage,
            "progress": progress, "progress_interval": [0.93 * progress - 0.02, 1.05 * progress + 0.02],
            "revenue": {"none": none, "learned": none + progress * (exact - none), "exact": exact},
        },
    }  # fmt: skip


def _rises(rng: np.random.Generator, far: float, number: int) -> dict[str, Any]:
    """Small rises, and a share of `far` ones."""
    rises = np.minimum(rng.exponential(0.017, number), 0.0993)
    is_far = rng.random(number) < far
    rises[is_far] = rng.beta(3, 1.4, int(is_far.sum()))
    histogram = {"edges": EDGES, "counts": np.histogram(rises, EDGES)[0].tolist()}
    return {
        "days": number,
        "breaches": int((rises > DELTA).sum()),
        "rises": {"max": float(rises.max()), "mean": float(rises.mean()), "histogram": histogram},
    }


def _count(rng: np.random.Generator, name: str, day: int, names: list[str], phones: int) -> dict[str, Any]:
    sigma = 11.4
    counters = []
    for place, each in enumerate(names):
        truth = float(int(phones * 0.9 * math.exp(-0.07 * place) * rng.uniform(0.85, 1.1)))
        value = truth + rng.normal(0, sigma)
        counters.append(
            {
                "name": each,
                "truth": truth,
                "value": value,
                "low": value - 2.2 * sigma,
                "high": value + 2.2 * sigma,
                "sigma": sigma,
            }
        )
    return {
        "id": name, "day": day, "kind": "counters", "counters": counters, "population": phones,
        "contributors": int(phones * 0.81), "cohorts": 15, "cohorts_left_out": [3, 11], "method": "median",
        "exact": True, "burnt": None, **BUDGET,
    }  # fmt: skip


FAULTS = {
    "partition": ("phones 100-199", 6, ""),
    "reply lost": ("phones 3-17", 1, ""),
    "duplicate": ("phones 64-65", 1, ""),
    "crash": ("aggregation", 3, "killed, then serves again, then killed, then serves again"),
    "skew": ("phone 17", 2, ""),
    "full": ("keys", 0, "its disk is full, then its disk has room again"),
    "join": ("phone 640", 1, ""),
}
"""Of each kind a target, how long it lasts, and what came of it."""


def _fault(rng: np.random.Generator, days: int) -> dict[str, Any]:
    kind = list(FAULTS)[int(rng.integers(len(FAULTS)))]
    target, steps, outcome = FAULTS[kind]
    time = {"day": int(rng.integers(days)), "step": int(rng.integers(24))}
    applied = time["step"] % 8 != 0
    return {**time, "kind": kind, "target": target, "steps": steps, "applied": applied, "outcome": outcome}


LIES = {
    "garbage": (True, "refused: not a ciphertext"),
    "wild": (True, "its cohort stood out from the median and was left out"),
    "replay": (True, "refused: this contribution is known"),
    "silence": (False, "counted as absent"),
    "colluder": (False, "its contribution is honest"),
}


def _lie(phone: int, number: int) -> dict[str, Any]:
    kind = list(LIES)[number % len(LIES)]
    noticed, how = LIES[kind]
    by = ["aggregation server", "analyst"][: 1 + number % 2] if noticed else []
    return {"phone": phone, "kind": kind, "noticed": noticed, "how": how, "by": by}
