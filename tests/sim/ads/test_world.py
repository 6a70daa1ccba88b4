"""The simulated world of ads: everything follows from the seed, popularity follows power laws, contexts are sparse."""

import numpy as np
import pytest

from reticent_sim.world.ads import AdData, ad_world
from reticent_sim.world.businesses import CATEGORIES, PARENTS

PEOPLE, ADS = 1_000, 200


@pytest.fixture(scope="module")
def world() -> AdData:
    return ad_world(1, PEOPLE, ADS)


def test_everything_follows_from_the_seed(world: AdData) -> None:
    same, other = ad_world(1, PEOPLE, ADS), ad_world("1", PEOPLE, ADS)
    log = world.training
    assert same.training.hierarchy == log.hierarchy != other.training.hierarchy
    for name in ("user", "context", "ad", "clicked"):
        assert np.array_equal(getattr(same.training, name), getattr(log, name))
    assert np.array_equal(same.tests, world.tests)
    assert np.array_equal(same.payments, world.payments)
    tests, ads = np.arange(5), np.arange(5)
    assert np.array_equal(same.clicks(tests, ads), world.clicks(tests, ads))


def test_the_first_nine_tenths_of_the_searches_are_for_training(world: AdData) -> None:
    log = world.training
    assert len(log) / (len(log) + len(world.tests)) == pytest.approx(0.9, abs=0.001)
    assert log.users == PEOPLE
    assert len(np.unique(log.user)) > 0.95 * PEOPLE
    assert len(log) / PEOPLE == pytest.approx(0.9 * 10, rel=0.35)  # a heavy tail of searches


def test_a_context_is_a_place_interests_and_a_query_below_a_category(world: AdData) -> None:
    hierarchy = world.training.hierarchy
    for place, interests, query in hierarchy.contexts[::97]:
        north, west = place.split(",")
        assert 40.5 <= float(north) < 40.7
        assert -74.1 < float(west) <= -73.8
        assert len(north) == len("40.71234")
        assert set(interests.split("+")) < set(PARENTS)
        category = query.rpartition(" ")[0]
        assert any(category in leaves for leaves in CATEGORIES.values())
    generals = {node.values[2] for node in hierarchy.nodes[hierarchy.nodes_at(8)]}
    assert generals <= set(CATEGORIES)
    assert {node.values[1] for node in hierarchy.nodes[hierarchy.nodes_at(8)]} == {"business"}


def test_few_queries_are_frequent_and_most_contexts_occur_once(world: AdData) -> None:
    """As figure 4.3: a power law of queries, and far fewer that occur once after generalisation."""
    log = world.training
    contexts, counts = np.unique(log.context, return_counts=True)
    assert (counts == 1).mean() > 0.8
    queries = [log.hierarchy.contexts[context][2] for context in log.context]
    frequencies = -np.sort(-np.unique(queries, return_counts=True)[1])
    assert frequencies[0] > 20 * np.median(frequencies)
    singles = {level: (np.bincount(log.hierarchy.at_level(level)[log.context]) == 1).sum() for level in (0, 1, 6)}
    assert singles[0] > singles[1] > 5 * singles[6] > 0
    ranks = np.arange(1, 31)
    slope = np.polyfit(np.log(ranks), np.log(frequencies[:30]), 1)[0]
    assert -1.6 < slope < -0.4
    assert len(contexts) > 0


def test_ads_are_shown_and_clicked_as_the_model_says(world: AdData) -> None:
    """Each ad bids on all contexts in which it was shown."""
    log, hierarchy = world.training, world.training.hierarchy
    starts, ends = hierarchy.leaf_starts[world.bids], hierarchy.leaf_ends[world.bids]
    assert (starts[log.ad] <= log.context).all()
    assert (log.context < ends[log.ad]).all()
    assert (hierarchy.node_levels[world.bids[np.unique(log.ad)]] == 8).all()
    assert 0.05 < log.clicked.mean() < 0.4
    assert ((world.payments > 0) & (world.payments < 20)).all()


def test_clicks_have_structure_at_several_levels(world: AdData) -> None:
    """The expected clicks grow from any ad to those of the general category, the category, and nearby."""
    log, hierarchy, rng = world.training, world.training.hierarchy, np.random.default_rng(1)
    tests = rng.integers(len(world.tests), size=4_000)
    anywhere = rng.integers(ADS, size=len(tests))
    per_node = {int(node): np.flatnonzero(world.bids == node) for node in np.unique(world.bids)}
    nodes = hierarchy.at_level(8)[world.tests[tests]]
    same = np.array([rng.choice(per_node.get(int(node), anywhere[:1])) for node in nodes])
    best = np.array([world.clicks(np.full(ADS, test), np.arange(ADS)).max() for test in tests[:200]])
    means = world.clicks(tests, anywhere).mean(), world.clicks(tests, same).mean(), best.mean()
    assert 0 < means[0] < 0.02 < means[1] < 0.5 * means[2]
    assert best.max() <= 1
    assert log.clicked.mean() > means[1]  # near ads of the category are shown more often


@pytest.mark.parametrize("people", [1, 5])
def test_a_world_can_be_tiny(people: int) -> None:
    world = ad_world(3, people, 40)
    assert len(world.training) + len(world.tests) <= people * 120
    assert len(world.bids) == 40
