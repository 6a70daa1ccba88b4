"""The noise of click-through rates against corollary 2 as printed and a flat histogram; a phone's bytes and CPU time.

The users are those of the simulated city, with the hierarchy of section 4.4.1 of the dissertation, whose phones send
roughly 1 MB for a full estimate. The flat histogram counts the entries and the ads of the lowest level's nodes at the
whole cost; the counts of its other levels are sums of these.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from benchmarks.measure import Row, seconds, table
from reticent.hierarchy import Hierarchy, Node, Tree
from reticent.paillier import KEY_BITS
from reticent.privacy import Query
from reticent.protocol import plaintext_count
from reticent.protocol.layout import contribution_bytes
from reticent.randomness import seeded
from reticent.rates import RateTable
from reticent_analyst.question import Question
from reticent_analyst.rates import LevelProgress, OnLevel, estimate, noise_report
from reticent_analyst.resource_estimate import encryption_seconds
from reticent_sim.ad_log import AdLog
from reticent_sim.local_counts import LocalCounts
from reticent_sim.world.ads import ad_world

USERS = 100_000
ENTRIES = 4
EPSILON, DELTA = 1.0, 1e-6
ABSENT = 0.3
TARGETS = {0.02: "about 0.60", 1e-6: "about 0.73"}
PHONE_BYTES = 1_000_000
DEPTHS = (1, 3, None)


def run() -> Iterator[str]:
    """The noise, the phone's part, and the errors and the time of whole estimates."""
    yield table("Standard error of one count, beside corollary 2 (epsilon 1)", list(_beside_corollary()))
    data = ad_world(13, people=USERS)
    log = data.training.sample(ENTRIES, seeded(13, "entries"))
    bids = [log.hierarchy.nodes[node] for node in data.bids.tolist()]
    for depth in DEPTHS:
        yield from _estimated(log, dict(zip(log.ads, bids, strict=True)), depth)


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


def _estimated(log: AdLog, bids: Mapping[str, Node], depth: int | None) -> Iterator[str]:
    queries: list[Query] = []

    def on_level(progress: LevelProgress) -> None:
        if progress.release is not None:
            queries.append(progress.query)

    lowest = log.hierarchy.height - 1 if depth is None else depth
    begun = time.process_time()
    real = _estimate(log, bids, LocalCounts(seeded(13, "noise"), absent=ABSENT), depth, on_level)
    elapsed = time.process_time() - begun
    resources = list(_resources(queries, _flat_counters(log.hierarchy, bids, lowest), elapsed))
    yield table(f"An estimate down to level {lowest} (the rival is the dissertation's phone)", resources)
    trusted = _estimate(log, bids, LocalCounts(seeded(13, "noise"), trusted=True), depth)
    title = f"Errors of entries by node, by a trusted server, down to level {lowest} (the rival is a flat histogram)"
    yield table(title, list(_errors(log, trusted, real, lowest)))


def _estimate(
    log: AdLog, bids: Mapping[str, Node], counts: LocalCounts, depth: int | None, on_level: OnLevel | None = None
) -> RateTable:
    return estimate(
        counts,
        log.hierarchy,
        {ad: [node] for ad, node in bids.items()},
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


def _flat_counters(hierarchy: Hierarchy, bids: Mapping[str, Node], lowest: int) -> int:
    """The counters of a histogram of the lowest level: its nodes, and in each the ads that bid on it."""
    starts = hierarchy.leaf_starts[hierarchy.nodes_at(hierarchy.height - 1 - lowest)]
    below = [hierarchy.leaves_below(hierarchy.index(node)) for node in bids.values()]
    ends = np.searchsorted(starts, [[part.start, part.stop] for part in below])
    return int(len(starts) + 2 * np.diff(ends).sum())


def _resources(queries: list[Query], flat: int, elapsed: float) -> Iterator[Row]:
    """The resources of one phone that contributes to all queries, and those of a flat histogram."""
    bits = KEY_BITS[0]
    sent = sum(contribution_bytes(query, bits) for query in queries)
    contents = [query.to_bytes() for query in queries]
    received, compressed = (sum(map(len, each)) for each in (contents, map(zlib.compress, contents)))
    largest = max(queries, key=lambda query: query.size)
    ciphertexts = sum(plaintext_count(query, bits) for query in queries)
    of_flat = flat * contribution_bytes(largest, bits) / largest.size
    yield Row("queries", f"{len(queries)}", "1 (flat)")
    yield Row("counters", f"{sum(query.size for query in queries):,}", f"{flat:,} (flat)")
    yield Row(
        "ciphertexts", f"{ciphertexts:,}", target=f"{plaintext_count(largest, bits)} at one level; 300 by default"
    )
    yield Row("a phone sends", _kilobytes(sent), _kilobytes(PHONE_BYTES), PHONE_BYTES / sent, "well under 1 MB")
    yield Row("a phone sends", _kilobytes(sent), f"{_kilobytes(of_flat)} (flat)", of_flat / sent)
    yield Row("a phone receives", _kilobytes(received), target=f"{_kilobytes(compressed)} if compressed")
    yield Row("CPU time of a phone", seconds(sum(encryption_seconds(query, bits) for query in queries)))
    yield Row(f"CPU time to simulate {USERS:,} users", seconds(elapsed))


def _kilobytes(size: float) -> str:
    return f"{size / 1e3:,.0f} KB"


def _query_of(population: int, question: Question) -> Query:
    return question.to_query(population, "simulated")


def _errors(log: AdLog, trusted: RateTable, real: RateTable, lowest: int) -> Iterator[Row]:
    """Root mean squares over the counted nodes of each level below the root."""
    hierarchy, exact = log.hierarchy, log.rates("exact").frequency
    report = noise_report(hierarchy, epsilon=EPSILON, delta=DELTA, entries=ENTRIES, depth=lowest)
    for each in report.levels[1:]:
        here = hierarchy.nodes_at(hierarchy.height - 1 - each.depth)
        counted = np.isfinite(trusted.frequency[here]) & np.isfinite(real.frequency[here])
        if not counted.any():
            break
        squares = (np.square(table.frequency[here] - exact[here]) for table in (trusted, real))
        ours, absent = (f"{math.sqrt(np.mean(each[counted])) * len(log):,.1f}" for each in squares)
        yield Row(
            f"level {each.depth}: {counted.sum():,} of {each.nodes:,} nodes",
            ours,
            f"{each.flat:,.1f}",
            target=f"with {ABSENT:.0%} absent: {absent}",
        )
