"""Time, memory and learned rates of simulations, against stated goals: 10,000 phones in a count, and 1,000 in a week.

All are real phones that call real servers over TLS, by `reticent_sim`. `python -m benchmarks.simulation PHONES`
measures a count with another number of phones.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from benchmarks.measure import Row, table
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.simulation import simulate
from reticent_sim.engine.snapshot import Snapshot

FEW, MANY = 1_000, 10_000
WEEK = 7
COUNT_SECONDS, WEEK_SECONDS = 75, 300  # goals on two idle cores
MEMORY = 4.0  # GB
SEEDS = (1, 2, 3)
LEARNED = 0.8
"""The least part of the revenue that exact rates add, which a week of learned rates must bring."""
TIMEOUT = 4 * 3600.0


def run() -> Iterator[str]:
    """A count of two numbers of phones, a week of the smaller one, and what the rates of a week bring.

    Raises:
        ValueError: Learned rates bring too little.
    """
    few, many = (_in_a_process("count", phones) for phones in (FEW, MANY))
    yield table(f"A count of 64 counters under 2048 bits with {MANY:,} phones", _count_rows(many, few))
    week = _in_a_process("week", FEW)
    rows = [
        Row("masks, ads, estimates and three counts", f"{week['run']:,.0f} s", target=f"at most {WEEK_SECONDS} s"),
        Row("CPU time of a phone and day", f"{week['cpu'] / WEEK:,.0f} ms"),
        Row("memory of all processes", f"{week['memory']:.1f} GB", target=f"at most {MEMORY:g} GB"),
        Row("load of the machine", f"{week['load']:.1f}", target=f"0 to {os.cpu_count()}"),
    ]
    yield table(f"{WEEK} days of {FEW:,} phones", rows)
    found = {seed: _in_a_process("learned_rates", seed) for seed in SEEDS}
    yield table(f"Rates after {WEEK} days of {FEW:,} phones, as a part of what exact rates add", _rates_rows(found))
    if missed := [seed for seed, each in found.items() if each["low"] < LEARNED]:
        raise ValueError(f"learned rates bring less than {LEARNED:.0%} with the seeds {missed}")


def _rates_rows(found: dict[int, dict[str, float]]) -> list[Row]:
    return [
        Row(
            f"seed {seed}, with a load of {each['load']:.1f}",
            f"{each['progress']:.1%} ({each['low']:.1%} to {each['high']:.1%})",
            target=f"from {LEARNED:.0%}",
        )
        for seed, each in found.items()
    ]


def _count_rows(found: dict[str, float], few: dict[str, float] | None = None) -> list[Row]:
    ratio = []
    if few is not None:
        ratio = [Row(f"the same, compared with {FEW:,} phones", f"{found['cpu'] / few['cpu']:.2f}", target="near 1")]
    return [
        Row(
            "enrol, count and take decisions",
            f"{found['all']:,.0f} s",
            target=f"{COUNT_SECONDS} s for {MANY:,}",
        ),
        Row("enrol", f"{found['enrol']:,.0f} s"),
        Row("count, from the announcement to the release", f"{found['count']:,.0f} s"),
        Row("take decisions", f"{found['decisions']:,.0f} s"),
        Row("CPU time of a phone, servers included", f"{found['cpu']:.1f} ms"),
        *ratio,
        Row("memory of all processes", f"{found['memory']:.1f} GB", target=f"at most {MEMORY:g} GB"),
        Row("sent and received by a phone", f"{found['sent']:,.0f} and {found['received']:,.0f} bytes"),
        Row("store of a phone", f"{found['store'] / 1e3:.1f} kB"),
        Row("contributions in the release", f"{found['contributors']:,.0f}"),
        Row("load of the machine", f"{found['load']:.1f}", target=f"0 to {os.cpu_count()}"),
    ]


def count(phones: int) -> dict[str, float]:
    """One count of phones that have neither masks nor ads."""
    return _measured(Scenario(phones=phones, days=1, check="none", ads=False, absent=0.0, key_bits=2048))


def week(phones: int) -> dict[str, float]:
    """A week of masks and ads, with an estimate of rates each day, and a count on each of the last three."""
    return _measured(Scenario(phones=phones, days=WEEK, counts=3, key_bits=2048))


def learned_rates(seed: int) -> dict[str, float]:
    """The part of the revenue that rates of a week bring on its last day, with its 95 % interval over people."""
    scenario = Scenario(phones=FEW, days=WEEK, check="hybrid", entries=8, routines=24, seed=seed)
    ads: dict[str, Any] = simulate(scenario).days[-1]["ads"]
    low, high = ads["progress_interval"]
    return {"progress": ads["progress"], "low": low, "high": high, "load": os.getloadavg()[1]}


def _measured(scenario: Scenario) -> dict[str, float]:
    phases: dict[str, float] = defaultdict(float)
    last = "", time.monotonic()

    def show(snapshot: Snapshot) -> None:
        nonlocal last
        name, since = last
        last = snapshot.phase, time.monotonic()
        phases[name] += last[1] - since

    begun = time.monotonic()
    data = simulate(scenario, show=show).data
    took = time.monotonic() - begun
    used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cost: dict[str, Any] = data["cost"]
    counted: dict[str, Any] = data["counts"][-1]
    if not all(each["exact"] for each in data["counts"]):
        raise ValueError(f"a release is not the sum of what the phones contributed: {data['counts']}")
    seconds = {
        "enrol": phases["enrol the phones"],
        "count": counted["seconds"],
        "decisions": phases["decisions"],
    }
    return seconds | {
        "all": sum(seconds.values()),
        "run": took,
        "cpu": 1e3 * sum(each.ru_utime + each.ru_stime for each in used) / scenario.phones,
        "memory": (sum(cost["memory_mb"].values()) + used[0].ru_maxrss / 1e3) / 1e3,
        "sent": cost["bytes_sent"],
        "received": cost["bytes_received"],
        "store": cost["store_bytes"],
        "contributors": float(counted["contributors"]),
        "load": os.getloadavg()[1],
    }


def _in_a_process(function: str, argument: int) -> dict[str, float]:
    code = f"import sys, json; from benchmarks import simulation; print(json.dumps(simulation.{function}({argument})))"
    done = subprocess.run(  # noqa: S603  # our own
        [sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=TIMEOUT
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    for number in map(int, sys.argv[1:]):
        print(table(f"A count with {number:,} phones", _count_rows(_in_a_process("count", number))))
