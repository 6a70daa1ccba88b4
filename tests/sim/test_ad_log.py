"""Logs of shown ads: random entries of each user, and the counters of all phones."""

import time
from collections import Counter as Tally
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.privacy import Counter, Query
from reticent.randomness import seeded
from reticent.rates import click_counter, counter_prefix, node_counter, view_counter
from reticent_sim import ad_log
from reticent_sim.ad_log import AdLog
from reticent_sim.local_counts import LocalCounts
from tests.analyst.rates.logs import hierarchy, log_of, rates_of
from tests.parties.queries import bits

PLACES = hierarchy()
PREFIX = counter_prefix(PLACES)


def query(names: list[str], users: int) -> Query:
    counters = [Counter(name, 0, 9) for name in names]
    return bits(counters=counters, population=users, min_contributions=users, liars=0, l1=9, l2_squared=81)


@given(st.integers(0, 2**32))
def test_each_phone_counts_its_own_entries(seed: int) -> None:
    """By the definition, entry by entry: nodes, clicks, and views without a click, of all levels in one query."""
    rng = seeded(seed, "counters")
    log = log_of(PLACES, users=12, size=int(rng.integers(0, 40)), ads=3, rng=rng)
    nodes = rng.choice(len(PLACES.nodes), 5, replace=False).tolist()
    names = [
        *(node_counter(PREFIX, node) for node in nodes),
        *(click_counter(PREFIX, node, f"ad{ad}") for node in nodes for ad in range(3)),
        *(view_counter(PREFIX, node, f"ad{ad}") for node in nodes for ad in range(3)),
    ]
    rng.shuffle(names)
    expected = np.zeros((12, len(names)))
    for user, context, ad, clicked in zip(log.user, log.context, log.ad, log.clicked, strict=True):
        for node in nodes:
            if context in range(*PLACES.leaves_below(node).indices(99)):
                kind = click_counter if clicked else view_counter
                expected[user, names.index(node_counter(PREFIX, node))] += 1
                expected[user, names.index(kind(PREFIX, node, f"ad{ad}"))] += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ad_log, "BLOCK", 5)
        blocks = list(log.counters(query(names, 12)))
    assert [len(block) for block in blocks] == [5, 5, 2]
    np.testing.assert_array_equal(np.concatenate([block.dense(len(names)) for block in blocks]), expected)


@pytest.mark.parametrize(
    "name",
    ["visits", node_counter("0" * 16, 0), node_counter(PREFIX, 999), click_counter(PREFIX, 0, "unknown")],
)
def test_any_other_counter_is_0(name: str) -> None:
    log = log_of(PLACES, users=12, size=40, ads=3, rng=seeded(1))
    [block] = log.counters(query([node_counter(PREFIX, 0), name], 12))
    assert block.dense(2)[:, 0].sum() == 40
    assert block.dense(2)[:, 1].tolist() == [0] * 12


def test_a_sample_has_random_entries_of_each_user() -> None:
    """All of a user with few; otherwise each with the same probability."""
    user = np.array([0] * 5 + [1] * 2 + [3] * 4)
    log = AdLog(
        hierarchy=PLACES, ads=("x",), users=4, user=user, context=np.array([*range(5), 0, 1, *range(4)]),
        ad=np.zeros(11, dtype=int), clicked=np.arange(11) % 2 == 0,
    )  # fmt: skip
    times: Tally[tuple[int, int, bool]] = Tally()
    rng = seeded(3, "sample")
    for _ in range(1000):
        sample = log.sample(2, rng)
        assert np.bincount(sample.user, minlength=4).tolist() == [2, 2, 0, 2]
        times.update(zip(sample.user.tolist(), sample.context.tolist(), sample.clicked.tolist(), strict=True))
    entries = set(zip(log.user.tolist(), log.context.tolist(), log.clicked.tolist(), strict=True))
    assert times.keys() == entries
    for (who, *_), number in times.items():
        share = {0: 2 / 5, 1: 1.0, 3: 2 / 4}[who]
        assert abs(number - 1000 * share) <= 5 * np.sqrt(1000 * share * (1 - share))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"user": np.array([0, 4])}, "the user of an entry lies from 0 to 3: got 0 to 4"),
        ({"context": np.array([-1, 0])}, "the context of an entry lies from 0 to 5: got -1 to 0"),
        ({"ad": np.array([0, 1])}, "the ad of an entry lies from 0 to 0: got 0 to 1"),
        ({"clicked": np.array([True])}, "each entry of a log has a user, a context, an ad and whether it was clicked"),
    ],
    ids=str,
)
def test_entries_of_nothing_are_refused(changes: dict[str, Any], said: str) -> None:
    zeros = np.zeros(2, dtype=int)
    parts = {"user": zeros, "context": zeros, "ad": zeros, "clicked": zeros > 0, **changes}
    with pytest.raises(ValueError, match=said):
        AdLog(hierarchy=PLACES, ads=("x",), users=4, **parts)
    with pytest.raises(ValueError, match="entries must be at least 1: got 0"):
        log_of(PLACES, users=4, size=4, ads=1, rng=seeded(1)).sample(0, seeded(1))


@pytest.mark.slow
def test_an_estimate_over_a_hundred_thousand_users_takes_seconds() -> None:
    rng = seeded(5, "large")
    log = log_of(PLACES, users=100_000, size=600_000, ads=200, rng=rng).sample(4, rng)
    begun = time.process_time()
    table = rates_of(LocalCounts(rng, absent=0.3), log, absent=0.33, min_support=None)
    assert time.process_time() - begun < 10
    assert len(table.rate) > 1000
