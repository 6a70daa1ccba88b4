"""Estimates of click-through rates over simulated phones: what is counted, with which noise and which errors."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.hierarchy import Hierarchy, Node
from reticent.privacy import Contributions, Query, Release, sequence_sigma, skellam_variance
from reticent.randomness import seeded
from reticent.rates import RateTable, parse_counter
from reticent_analyst.rates.consistency import Estimates
from reticent_sim.ad_log import AdLog
from reticent_sim.local_counts import LocalCounts
from tests.analyst.rates.logs import ExactCounts, hierarchy, log_of, rates_of, released, rows_of

PLACES = hierarchy()
SEEDS = st.integers(0, 2**32)


def candidates(query: Query) -> set[int]:
    """The nodes whose entries a query counts."""
    names = [parse_counter(counter.name) for counter in query.counters]
    return {name.node for name in names if name is not None and name.kind == "node"}


def pairs(table: RateTable) -> dict[tuple[str, int], tuple[float, float]]:
    """The rate and the views of each ad and node."""
    entries = zip(table.ad.tolist(), table.node.tolist(), table.rate.tolist(), table.views.tolist(), strict=True)
    return {(table.ads[ad], node): (rate, views) for ad, node, rate, views in entries}


# What is counted


@given(SEEDS, st.floats(0, 30), st.none() | st.integers(0, 3))
def test_without_noise_the_estimate_is_that_of_the_log(seed: int, min_support: float, depth: int | None) -> None:
    """Exact counts below nodes with more entries than the support, and no others, down to the depth."""
    rng = seeded(seed, "exact")
    log = log_of(PLACES, users=40, size=int(rng.integers(1, 80)), ads=3, rng=rng).sample(4, rng)
    counts = ExactCounts()
    table = rates_of(counts, log, min_support=min_support, depth=depth)
    exact = log.rates("exact")
    support = exact.frequency * len(log)
    lowest = PLACES.height - 1 if depth is None else depth
    depths = np.array([PLACES.depth_of(level) for level in PLACES.node_levels.tolist()])
    above = [PLACES.parents[node] for node in range(len(PLACES.nodes))]
    asked = {0}
    for node in range(1, len(PLACES.nodes)):
        if above[node] in asked and support[above[node]] > min_support and depths[node] <= lowest:
            asked.add(node)
    assert [candidates(query) for query in counts.queries] == [
        {node for node in asked if depths[node] == number} for number in range(max(depths[sorted(asked)]) + 1)
    ]
    np.testing.assert_allclose(table.frequency[sorted(asked)], exact.frequency[sorted(asked)], atol=1e-9)
    assert np.isnan(np.delete(table.frequency, sorted(asked))).all()
    known = pairs(exact)
    expected = {
        (ad, node): value
        for (ad, node), value in known.items()
        if node in asked and (node == 0 or known[ad, above[node]][1] > min_support)
    }
    assert pairs(table) == {key: pytest.approx(value, abs=1e-6) for key, value in expected.items()}
    assert (table.high - table.low).max(initial=0) < 1e-4


@given(st.lists(st.sets(st.sampled_from(PLACES.nodes), max_size=3), min_size=1, max_size=4))
def test_an_ad_is_counted_where_it_bids_on_a_context(bids: list[set[Node]]) -> None:
    ads = {f"ad{number}": sorted(nodes) for number, nodes in enumerate(bids)}
    counts = AnyReleases(None)
    log = log_of(PLACES, users=40, size=200, ads=5, rng=seeded(1, "bids"))
    rates_of(counts, log, ads=ads)
    leaves = {node: {*range(*PLACES.leaves_below(PLACES.index(node)).indices(99))} for node in PLACES.nodes}
    expected = {
        (ad, PLACES.index(node))
        for (ad, nodes), node in itertools.product(ads.items(), PLACES.nodes)
        if not nodes or leaves[node] & set().union(*(leaves[each] for each in nodes))
    }
    names = [parse_counter(counter.name) for query in counts.queries for counter in query.counters]
    for kind in ("click", "view"):
        assert {(name.ad, name.node) for name in names if name is not None and name.kind == kind} == {
            (ad, node) for ad, node in expected if any(node in candidates(query) for query in counts.queries)
        }


def test_by_default_children_are_counted_below_nodes_above_the_noise() -> None:
    log = log_of(PLACES, users=3000, size=4000, ads=1, rng=seeded(2, "support")).sample(1, seeded(3))
    counts = Recorded(seeded(4, "support"))
    rates_of(counts, log, min_support=None, entries=1)
    support = log.rates("exact").frequency * len(log)
    deviation = math.sqrt(counts.queries[0].variance)
    for above, below in itertools.pairwise(counts.queries):
        survivors = set(PLACES.parents[sorted(candidates(below))].tolist())
        for node in candidates(above):
            assert node in survivors or support[node] < 6 * deviation
            assert node not in survivors or support[node] > 0


class Recorded(LocalCounts):
    """Keeps all queries, releases, and the contributions of all phones."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.queries: list[Query] = []
        self.releases: list[Release] = []

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        self.queries.append(query)
        self.releases.append(super().count(query, counters))
        return self.releases[-1]


# Sensitivity


class AnyReleases:
    """Releases random numbers, so that any nodes survive, and keeps the contributions of each phone."""

    def __init__(self, rng: np.random.Generator | None) -> None:
        self.rng = rng
        self.contributions: list[np.ndarray] = []
        self.queries: list[Query] = []

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        self.queries.append(query)
        self.contributions.append(rows_of(query, counters))
        numbers = np.ones(query.size) if self.rng is None else self.rng.normal(0, 1, query.size)
        return released(query, numbers, variance=(1.0,) * query.size)


def all_logs(places: Hierarchy, entries: int) -> AdLog:
    """A user for each possible log of at most so many entries, of two ads."""
    possible = list(itertools.product(range(len(places.contexts)), range(2), (False, True)))
    logs = [log for size in range(entries + 1) for log in itertools.combinations_with_replacement(possible, size)]
    rows = np.array([(user, *entry) for user, log in enumerate(logs) for entry in log])
    user, context, ad, clicked = rows.T
    return AdLog(
        hierarchy=places, ads=("x", "y"), users=len(logs), user=user, context=context, ad=ad, clicked=clicked > 0
    )


@pytest.mark.parametrize(("entries", "depth", "scale"), [(1, 3, 1), (2, 3, 1), (2, 1, 1), (3, 2, 1), (2, 1, 3)])
def test_no_neighbour_changes_a_sequence_by_more_than_its_bounds(entries: int, depth: int, scale: int) -> None:
    """Neighbours add or remove one user: all logs that a user can have, whichever nodes survive at each level."""
    places = hierarchy(("a1", "a2", "b1"))
    log = all_logs(places, entries)
    largest = np.zeros(2)
    for rng in [None, *(seeded(number, "survivors") for number in range(12))]:
        counts = AnyReleases(rng)
        ads = {"x": (), "y": places.nodes[2:4]}
        rates_of(counts, log, entries=entries, depth=depth, lowest_scale=scale, ads=ads)
        norms = np.zeros((2, log.users))
        for rows in counts.contributions:
            norms += np.abs(rows).sum(axis=1), np.square(rows).sum(axis=1)
        for query in counts.queries:
            assert (norms <= [[query.l1], [query.l2_squared]]).all()
        largest = np.maximum(largest, np.max(norms, axis=1))
    assert largest.tolist() == [2 * (depth + scale) * entries, 2 * (depth + scale**2) * entries**2]


def test_a_user_changes_sums_by_its_own_contribution() -> None:
    """Removing each user in turn: the sums over the others are without its row, whatever the levels."""
    log = all_logs(hierarchy(("a1", "b1")), 1)
    counts = AnyReleases(None)
    rates_of(counts, log)
    for query, rows in zip(counts.queries, counts.contributions, strict=True):
        assert np.array_equal(rows, np.concatenate([block.dense(query.size) for block in log.counters(query)]))
        for user in range(log.users):
            kept = log.user != user
            parts = {name: getattr(log, name)[kept] for name in ("user", "context", "ad", "clicked")}
            others = AdLog(hierarchy=log.hierarchy, ads=log.ads, users=log.users, **parts)
            assert np.array_equal(rows.sum(axis=0) - rows[user], rows_of(query, others.counters(query)).sum(axis=0))


# Noise and errors


@pytest.mark.parametrize("noise", ["skellam", "gaussian"])
def test_the_released_noise_has_the_promised_variance(noise: Any) -> None:
    """Of all levels of an empty log. Noise 30 % off in either direction would be found."""
    places = hierarchy()
    nobody = np.zeros(0, dtype=int)
    ads = tuple(f"ad{number}" for number in range(600))
    log = AdLog(hierarchy=places, ads=ads, users=2000, user=nobody, context=nobody, ad=nobody, clicked=nobody > 0)
    counts = Recorded(seeded(5, "noise"), absent=0.2)
    rates_of(counts, log, absent=0.25, entries=3, depth=2, noise=noise)
    bounds = math.sqrt(2 * 3) * 3, 2.0 * 3 * 3
    skellam, gaussian = skellam_variance(1.0, 1e-6, bounds[0], l1=bounds[1]), sequence_sigma(1.0, 1e-6, bounds[0]) ** 2
    wanted = skellam if noise == "skellam" else gaussian
    values = np.concatenate([release.value for release in counts.releases])
    promised = np.concatenate([release.variance for release in counts.releases])
    assert len(values) > 1000
    assert (promised >= wanted).all()
    assert (promised <= wanted * 1.35).all()  # more phones contribute than the fewest
    found = np.mean(values**2 / promised)
    assert 0.7 + 5 * math.sqrt(2 / len(values)) < found < 1.3 - 5 * math.sqrt(2 / len(values))
    assert abs(found - 1) < 5 * math.sqrt(2 / len(values))


def test_all_queries_of_an_estimate_share_one_budget() -> None:
    counts = ExactCounts()
    log = log_of(PLACES, users=40, size=200, ads=2, rng=seeded(1, "budget"))
    rates_of(counts, log, depth=2, entries=4)
    assert [query.id for query in counts.queries] == ["ctr-level-0", "ctr-level-1", "ctr-level-2"]
    assert {(query.sequence, query.terms[:4]) for query in counts.queries} == {("ctr", (1.0, 1e-6, 96, 24))}
    assert {counter[1:] for query in counts.queries for counter in query.counters} == {(0, 4, 1)}


def test_the_lowest_level_has_more_of_the_budget_with_a_larger_scale_and_a_smaller_bound() -> None:
    """The few contributions above the bound are scaled down, and the noise is as small as the bound allows."""
    log = log_of(PLACES, users=400, size=2000, ads=4, rng=seeded(2, "scales")).sample(4, seeded(2, "entries"))
    plain, focused = (Recorded(seeded(2, "noise")) for _ in range(2))
    rates_of(plain, log, depth=1, epsilon=8.0)
    table = rates_of(focused, log, depth=1, epsilon=8.0, lowest_scale=3, l2_squared=240)
    above, below = (release.variance[0] for release in focused.releases)
    assert above == pytest.approx(9 * below, rel=0.05)
    assert above == pytest.approx(plain.releases[0].variance[0] * 240 / 64, rel=0.1)
    norms = focused._used[focused.queries[0].account][1]
    assert norms.max() <= 240
    assert 0 < np.mean(norms > 235) < 0.1
    exact = pairs(log.rates("exact"))
    errors = [rate - exact[key][0] for key, (rate, views) in pairs(table).items() if views > 100]
    assert len(errors) > 5
    assert np.abs(errors).max() < 0.1


@pytest.mark.parametrize("epsilon", [1.0, 50.0])
def test_intervals_contain_the_rates_of_the_log_when_phones_are_absent(epsilon: float) -> None:
    """A third is absent, others at each level: counts are scaled, and intervals allow for it, not for noise only."""
    covered = []
    for number in range(6):
        rng = seeded(number, "coverage")
        log = log_of(PLACES, users=3000, size=20_000, ads=4, rng=rng).sample(2, rng)
        counts = LocalCounts(rng, absent=1 / 3)
        table = rates_of(counts, log, epsilon=epsilon, entries=2, absent=0.4, min_support=None, level=0.9)
        exact = pairs(log.rates("exact"))
        own = zip(pairs(table), table.low.tolist(), table.high.tolist(), strict=True)
        covered += [low <= exact[key][0] <= high for key, low, high in own if key in exact]
        views = [(value[1], exact[key][1]) for key, value in pairs(table).items() if key in exact]
        assert abs(math.log(sum(ours for ours, _ in views) / sum(true for _, true in views))) < 0.1
        assert np.nanmax(np.abs(table.frequency - log.rates("exact").frequency)) < 0.05
        assert table.seeded
    assert len(covered) > 100
    assert np.mean(covered) > 0.9 - 0.05


def test_consistent_counts_add_up_and_have_smaller_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = seeded(6, "consistency")
    log = log_of(PLACES, users=3000, size=9000, ads=2, rng=rng).sample(3, rng)
    exact = pairs(log.rates("exact"))

    def errors() -> list[float]:
        tables = [rates_of(LocalCounts(seeded(number, "errors")), log, entries=3) for number in range(12)]
        for table, node in itertools.product(tables, range(len(PLACES.nodes))):
            children = PLACES.children(node)
            if len(children) and not np.isnan(table.frequency[children[0]]):
                assert table.frequency[children].sum() == pytest.approx(table.frequency[node])
        wanted = [key for key in exact if PLACES.node_levels[key[1]] > 0 and exact[key][1] > 500]
        return [(pairs(table)[key][1] - exact[key][1]) ** 2 for table in tables for key in wanted]

    consistent = errors()
    assert len(consistent) > 50
    monkeypatch.setattr(
        "reticent_analyst.rates.table.consistent", lambda value, variance, *_: Estimates(value, variance)
    )
    assert np.mean(consistent) < 0.8 * np.mean(errors())
