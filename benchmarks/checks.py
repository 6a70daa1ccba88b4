"""Time to compute each policy and to decide on a step, against algorithms 3 and 5 of Götz's dissertation as listed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median

from benchmarks.chains import dense, learned, visited
from benchmarks.measure import Row, best_of, in_fresh_process, seconds, table
from reticent.randomness import seeded
from reticent_client import MarkovChain, MaskIt, Policy, adaptive, hybrid, optimal, probabilistic, simulatable
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.rivals.thesis import ThesisProbabilistic, ThesisSimulatable

DELTA = 0.1
RIVAL_ORDERS = (("in the order of the states", False), ("likely states first", True))
"""The text leaves the order open. The first releases little and is soon done; the second releases as much as ours."""


def run() -> Iterator[str]:
    """All tables, one after the other."""
    yield table("Computing the probabilistic check: T = 12, n = 8, one sensitive context", _probabilistic())
    yield table("One decision of the simulatable check: T = 48, n = 19", _simulatable())
    yield table("One decision of every policy: T = 96, n = 19", _decisions())
    yield table("Computing the larger checks, on one core", _larger())


def _probabilistic() -> list[Row]:
    chains = {f"learned chain {seed}": learned(12, 8, 30, seed) for seed in range(5)}
    chains |= {f"dense chain, sensitive one rare, {seed}": dense(12, 8, seed, rare=0.02) for seed in range(2)}
    rows = []
    for name, chain in chains.items():
        sensitive = {chain.contexts[0]} if name.startswith("dense") else visited(chain, 1)

        def ours(chain: MarkovChain = chain, sensitive: set[str] = sensitive) -> Policy:
            return probabilistic(chain, sensitive=sensitive, delta=DELTA)

        hidden = {chain.index(label) for label in sensitive}
        our_time, utility = best_of(5, ours), ours().utility
        for title, largest_first in RIVAL_ORDERS:
            rival = ThesisProbabilistic(chain.initial, chain.transitions, hidden, DELTA, largest_first=largest_first)
            begin = time.perf_counter()
            vector = rival.initialize()
            rival_time = time.perf_counter() - begin
            released = float((chain.prior * (1 - vector)).sum())
            rows.append(
                Row(
                    f"{name}, rival {title}",
                    f"{seconds(our_time)}, releases {utility:.2f}",
                    f"{seconds(rival_time)}, releases {released:.2f}",
                    rival_time / our_time,
                    ">= 200 x",
                )
            )
    for title, _ in RIVAL_ORDERS:
        ratios = [row.ratio for row in rows if row.ratio is not None and row.what.endswith(title)]
        rows.append(Row(f"median, rival {title}", "", "", median(ratios), ">= 200 x"))
    return rows


def _simulatable() -> list[Row]:
    chain = learned(48, 19, 60, 4)
    sensitive = visited(chain, 1)
    begin = time.perf_counter()
    policy = simulatable(chain, sensitive=sensitive, delta=DELTA)
    once = time.perf_counter() - begin
    day = chain.sample(seeded(0, "day"))
    mask = MaskIt(policy, rng=seeded(0, "coins"))
    ours = best_of(20, lambda: mask.filter_day(day)) / len(day)
    outputs = mask.filter_day(day)
    rival = ThesisSimulatable(chain.initial, chain.transitions, {chain.index(label) for label in sensitive}, DELTA)
    indices = [None if label is None else chain.index(label) for label in outputs]
    timed_steps = range(0, len(day), 3)
    begin = time.perf_counter()
    for t in timed_steps:
        rival.okay_to_release(t, indices[:t])
    rival_time = (time.perf_counter() - begin) / len(timed_steps)
    return [
        Row(
            f"a decision, {sum(label is not None for label in outputs)} of 48 released",
            seconds(ours),
            seconds(rival_time),
            rival_time / ours,
            ">= 100 x",
        ),
        Row("the table that it is looked up in, once", seconds(once)),
    ]


def _decisions() -> list[Row]:
    chain = learned(96, 19, 60, 1)
    few = visited(chain, 1)
    day = chain.sample(seeded(1, "day"))
    rows = []
    for name, check in CHECKS.items():
        limited = {"time_limit": 20} if "time_limit" in check.options else {}
        mask = MaskIt(check.policy(chain, few, DELTA, **limited))
        time_of_day = best_of(20, lambda mask=mask: mask.filter_day(day))  # type: ignore[misc]  # bound at once
        rows.append(Row(name, seconds(time_of_day / len(day)), target="< 20 µs"))
    return rows


def _larger() -> list[Row]:
    rows = []
    for what, function, target in (
        ("hybrid, T = 96, n = 19, three sensitive contexts, learned chain", "hybrid_96", "10 s, 500 MB"),
        ("hybrid, the same on a dense chain", "hybrid_96_dense", ""),
        ("adaptive, T = 48, n = 11, learned chain", "adaptive_48", "60 s"),
        (
            "optimal, T = 24, n = 11, a learned chain far less sparse than people's",
            "optimal_24",
            "5 s for most of the traces",
        ),
    ):
        found = in_fresh_process(f"benchmarks.checks:{function}")
        detail = f"{seconds(found['seconds'])}, {found['memory']:.0f} MB, releases {found['released']:.0%}"
        rows.append(Row(what, detail, target=target))
    return rows


def hybrid_96() -> dict[str, float]:
    """Measured in a process of its own."""
    return _timed(hybrid, learned(96, 19, 60, 2), 3)


def hybrid_96_dense() -> dict[str, float]:
    """Measured in a process of its own."""
    return _timed(hybrid, dense(96, 19, 2), 3)


def adaptive_48() -> dict[str, float]:
    """Measured in a process of its own."""
    return _timed(adaptive, learned(48, 11, 60, 3), 1)


def optimal_24() -> dict[str, float]:
    """Measured in a process of its own."""
    return _timed(optimal, learned(24, 11, 60, 4), 1)


def _timed(check: Callable[..., Policy], chain: MarkovChain, count: int) -> dict[str, float]:
    sensitive = visited(chain, count)
    begin = time.perf_counter()
    policy = check(chain, sensitive=sensitive, delta=DELTA)
    return {"seconds": time.perf_counter() - begin, "released": policy.utility / chain.horizon}
