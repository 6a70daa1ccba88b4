"""Share of the steps that each check releases, against the most that a private check can release."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.chains import from_traces, learned
from benchmarks.measure import Row, table
from reticent_client import MarkovChain, optimal
from reticent_client.mask.chain import UNKNOWN
from reticent_client.mask.checks.registry import CHECKS
from reticent_client.mask.problem import STEPS_COUNT

DELTA = 0.1
SETTING = f"8 steps, every choice of one sensitive place, delta {DELTA}"
CLOSE = 1e-7  # utilities are sums of float64, and the optimal check's come from a solver
PROTOTYPE = {
    "mask_sensitive": 0.85,
    "simulatable": 0.45,
    "probabilistic": 0.41,
    "hybrid": 0.48,
    "adaptive": 0.59,
    "optimal": 0.68,
}


def run(traces: Path | None) -> Iterator[str]:
    """The tables of released shares, and of the time of `optimal`; of simulated habits without traces."""
    if traces is None:
        simulated = [learned(8, 7, 30, seed) for seed in range(10)]
        yield table(f"Released: 10 simulated users, {SETTING}", _shares(simulated, prototype=False))
        return
    chains = from_traces(traces, horizon=8, top=5)
    yield table(f"Released: {len(chains)} users of {traces.name}, {SETTING}", _shares(chains.values(), prototype=True))
    yield table("The optimal check, 24 steps, 10 places and other, the most visited sensitive", _hours(traces))


def _shares(chains: Iterable[MarkovChain], *, prototype: bool) -> list[Row]:
    """The mean share that each check releases, over all users and all choices of one sensitive place."""
    released = {name: [] for name in (*CHECKS, "ceiling")}  # type: dict[str, list[float]]
    for chain in chains:
        for place in _places(chain):
            for name, value in _released(chain, place).items():
                released[name].append(value)
    return [
        Row(name, f"{np.mean(values):.1%}", target=_target(name) if prototype else "")
        for name, values in released.items()
    ]


def _hours(traces: Path) -> list[Row]:
    chains = from_traces(traces, horizon=24, top=10)
    taken: dict[str, tuple[float, float, float]] = {}
    for user, chain in chains.items():
        overall = chain.prior.sum(axis=0)
        place = max(_places(chain), key=lambda label: overall[chain.index(label)])
        begin = time.perf_counter()
        policy = optimal(chain, sensitive={place}, delta=DELTA, weights=STEPS_COUNT)
        ceiling = policy.ceiling or policy.utility
        taken[user] = (time.perf_counter() - begin, policy.utility / 24, ceiling / 24)
    rows = [
        Row(user, f"{spent:.2f} s, releases {got:.1%}", target="" if most - got < CLOSE else f"ceiling {most:.1%}")
        for user, (spent, got, most) in taken.items()
    ]
    quick = sum(spent < 5 for spent, _, _ in taken.values())
    exact = sum(most - got < CLOSE for _, got, most in taken.values())
    rows.append(Row("all", f"{quick} of {len(taken)} within 5 s, {exact} solved to the ceiling", target="most in 5 s"))
    return rows


def _released(chain: MarkovChain, place: str) -> dict[str, float]:
    """The share that each check releases for one choice of the sensitive place; their order is verified."""
    policies = {name: check.policy(chain, {place}, DELTA, weights=STEPS_COUNT) for name, check in CHECKS.items()}
    values = {name: policy.utility for name, policy in policies.items()}
    best = policies["optimal"]
    values["ceiling"] = best.utility if best.ceiling is None else best.ceiling
    assert max(values["simulatable"], values["probabilistic"]) <= values["hybrid"] + CLOSE, (chain, place)
    ordered = [values[name] for name in ("hybrid", "adaptive", "optimal", "ceiling")]
    assert all(low <= high + CLOSE for low, high in itertools.pairwise(ordered)), (chain, place)
    return {name: value / chain.horizon for name, value in values.items()}


def _places(chain: MarkovChain) -> list[str]:
    return [label for label in chain.contexts if label != UNKNOWN]


def _target(name: str) -> str:
    return f"prototype, one random choice each: {PROTOTYPE[name]:.0%}" if name in PROTOTYPE else ""
