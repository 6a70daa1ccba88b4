"""The noise of click-through rates against corollary 2 as printed and a flat histogram; a phone's bytes and CPU time.

The dissertation's phone sends roughly 1 MB for a full estimate. The users' contexts are 3,000 combinations of a place,
an interest and a query, with Zipf's frequencies, in the hierarchy of its section 4.4.1. The flat histogram counts the
entries of the lowest level's nodes at the whole cost; the counts of its other levels are sums of these.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.measure import Row, seconds, table
from reticent.hierarchy import Attribute, Decimals, Hierarchy, Tree
from reticent.paillier import KEY_BITS
from reticent.privacy import Counter, Query
from reticent.protocol import plaintext_count
from reticent.protocol.layout import contribution_bytes
from reticent.randomness import seeded
from reticent.rates import RateTable
from reticent_analyst.question import Question
from reticent_analyst.rates import LevelProgress, OnLevel, estimate, noise_report
from reticent_analyst.resource_estimate import encryption_seconds
from reticent_sim.ad_log import AdLog
from reticent_sim.local_counts import LocalCounts

USERS = 100_000
ENTRIES = 4
CONTEXTS = 3000
ADS = 50
SEARCHES = 6  # of each user, on average
EPSILON, DELTA = 1.0, 1e-6
ABSENT = 0.3
TARGETS = {0.02: "about 0.60", 1e-6: "about 0.73"}
PHONE_BYTES = 1_000_000
DEPTHS = (1, 3, None)


def run() -> Iterator[str]:
    """The noise, the phone's part, and the errors and the time of whole estimates."""
    yield table("Standard error of one count, beside corollary 2 (epsilon 1)", list(_beside_corollary()))
    log = make_log(USERS)
    for depth in DEPTHS:
        yield from _estimated(log, depth)


def make_log(users: int) -> AdLog:
    """Random searches, each with an ad."""
    rng = seeded(13, "benchmarks", "rates")
    interests = {f"interest {n}": f"kind of interest {n % 5}" for n in range(20)}
    queries = {f"query {n}": f"kind of query {n % 8}" for n in range(40)}
    places = [f"40.{7000 + north},-73.{9000 + east}" for north, east in rng.integers(0, 200, (CONTEXTS, 2)).tolist()]
    contexts = [(place, f"interest {rng.integers(20)}", f"query {rng.integers(40)}") for place in places]
    contexts = sorted(set(contexts))
    attributes: list[Attribute] = [Decimals("location"), Tree("interest", 3, interests), Tree("query", 3, queries)]
    hierarchy = Hierarchy(attributes, contexts)
    frequency = 1 / np.arange(1.0, len(contexts) + 1)
    size, ads = users * SEARCHES, rng.random(ADS) / 5
    ad = rng.integers(0, ADS, size)
    log = AdLog(
        hierarchy=hierarchy,
        ads=tuple(f"ad {number}" for number in range(ADS)),
        users=users,
        user=rng.integers(0, users, size),
        context=rng.permutation(len(contexts))[rng.choice(len(contexts), size, p=frequency / frequency.sum())],
        ad=ad,
        clicked=rng.random(size) < ads[ad],
    )
    return log.sample(ENTRIES, rng)


def _beside_corollary() -> Iterator[Row]:
    tree = Tree("street", 2, {"a1": "a", "a2": "a"})
    hierarchy = Hierarchy([tree], [("a1",), ("a2",)], [(0,), (1,)])
    for delta, target in TARGETS.items():
        report = noise_report(hierarchy, epsilon=1.0, delta=delta, entries=ENTRIES)
        assert report.corollary2 is not None
        printed = f"{report.corollary2:.1f}"
        for what, ours, goal in (
            ("exact, fixed queries", report.fixed, f"; {target}"),
            ("Skellam, adaptive levels", report.skellam, ""),
            ("Gaussian, adaptive levels", report.gaussian, ""),
        ):
            ratio = f"{ours / report.corollary2:.3f} of it{goal}"
            yield Row(f"delta {delta:g}: {what}", f"{ours:.1f}", printed, target=ratio)


def _estimated(log: AdLog, depth: int | None) -> Iterator[str]:
    queries: list[Query] = []

    def on_level(progress: LevelProgress) -> None:
        if progress.release is not None:
            queries.append(progress.query)

    lowest = log.hierarchy.height - 1 if depth is None else depth
    begun = time.process_time()
    real = _estimate(log, LocalCounts(seeded(13, "noise"), absent=ABSENT), depth, on_level)
    resources = list(_resources(log, queries, lowest, time.process_time() - begun))
    yield table(f"An estimate down to level {lowest} (the rival is the dissertation's phone)", resources)
    trusted = _estimate(log, LocalCounts(seeded(13, "noise"), trusted=True), depth)
    title = f"Errors of entries by node, by a trusted server, down to level {lowest} (the rival is a flat histogram)"
    yield table(title, list(_errors(log, trusted, real, lowest)))


def _estimate(log: AdLog, counts: LocalCounts, depth: int | None, on_level: OnLevel | None = None) -> RateTable:
    return estimate(
        counts,
        log.hierarchy,
        dict.fromkeys(log.ads, ()),
        name="ctr",
        epsilon=EPSILON,
        delta=DELTA,
        entries=ENTRIES,
        absent=ABSENT * 1.1,
        depth=depth,
        to_query=partial(_query_of, log.users),
        counters=log.counters,
        on_level=on_level,
    )


def _resources(log: AdLog, queries: list[Query], lowest: int, elapsed: float) -> Iterator[Row]:
    """The resources of one phone, which contributes to all queries, and of a flat histogram."""
    bits = KEY_BITS[0]
    sent = sum(contribution_bytes(query, bits) for query in queries)
    contents = [query.to_bytes() for query in queries]
    received, compressed = (sum(map(len, each)) for each in (contents, map(zlib.compress, contents)))
    leaves = log.hierarchy.nodes_at(log.hierarchy.height - 1 - lowest)
    counters = (leaves.stop - leaves.start) * (1 + 2 * len(log.ads))
    flat = replace(queries[0], counters=[Counter(str(number), 0, ENTRIES) for number in range(counters)])
    largest = max(queries, key=lambda query: query.size)
    yield Row("queries", f"{len(queries)}", "1 (flat)")
    yield Row("counters", f"{sum(query.size for query in queries):,}", f"{counters:,} (flat)")
    yield Row("ciphertexts", f"{sum(plaintext_count(query, bits) for query in queries):,}")
    yield Row("ciphertexts of the largest level", f"{plaintext_count(largest, bits):,}", target="300 by default")
    yield Row("a phone sends", _kilobytes(sent), _kilobytes(PHONE_BYTES), PHONE_BYTES / sent, "well under 1 MB")
    yield Row("a phone with a flat histogram", _kilobytes(sent), _kilobytes(contribution_bytes(flat, bits)))
    yield Row("a phone receives", _kilobytes(received), target=f"{_kilobytes(compressed)} if compressed")
    yield Row("CPU time of a phone", seconds(sum(encryption_seconds(query, bits) for query in queries)))
    yield Row(f"CPU time to simulate {log.users:,} users", seconds(elapsed))


def _kilobytes(size: int) -> str:
    return f"{size / 1e3:,.0f} KB"


def _query_of(population: int, question: Question) -> Query:
    return question.to_query(population, "simulated")


def _errors(log: AdLog, trusted: RateTable, real: RateTable, lowest: int) -> Iterator[Row]:
    """Root mean squares over the counted nodes of each level below the root."""
    hierarchy, exact = log.hierarchy, log.rates("exact").frequency
    report = noise_report(hierarchy, epsilon=EPSILON, delta=DELTA, entries=ENTRIES, depth=lowest)
    for each in report.levels[1:]:
        here = hierarchy.nodes_at(hierarchy.height - 1 - each.depth)
        counted = np.isfinite(trusted.frequency[here])
        squares = (np.square(table.frequency[here] - exact[here]) for table in (trusted, real))
        ours, absent = (math.sqrt(np.nanmean(each)) * len(log) for each in squares)
        yield Row(
            f"level {each.depth}: {counted.sum():,} of {each.nodes:,} nodes",
            f"{ours:,.1f}",
            f"{each.flat:,.1f}",
            target=f"with {ABSENT:.0%} absent: {absent:,.1f}",
        )
