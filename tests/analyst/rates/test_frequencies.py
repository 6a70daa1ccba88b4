"""Frequencies from counts: the nearest to them that are not negative, and that sum to those of the parents."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reticent.hierarchy import Hierarchy, Tree
from reticent.randomness import seeded
from reticent_analyst.rates.candidates import Candidates
from reticent_analyst.rates.consistency import Floats, consistent
from reticent_analyst.rates.table import CountedLevel, ScaledCounts, frequencies
from tests.analyst.rates.logs import hierarchy

PLACES = hierarchy()
NONE = np.zeros(0, dtype=np.int32)
NOTHING = ScaledCounts(*np.zeros((3, 0)))


def counted(places: Hierarchy, value: Floats, variance: Floats) -> list[CountedLevel]:
    """Counts of all nodes, at all levels."""
    levels = []
    for depth in range(places.height):
        here = places.nodes_at(places.height - 1 - depth)
        nodes = np.arange(here.start, here.stop, dtype=np.int32)
        entries = ScaledCounts(value[here], variance[here], 0 * variance[here])
        levels.append(CountedLevel(Candidates(depth, nodes, NONE, NONE), entries, NOTHING, NOTHING, seeded=True))
    return levels


@given(st.integers(0, 2**32), st.floats(-1, 300))
def test_no_other_frequencies_are_nearer_to_the_counts(seed: int, mean: float) -> None:
    """By the conditions of the optimum: siblings lose as many variances, or end at 0 although they lose fewer."""
    rng = np.random.default_rng(seed)
    size = len(PLACES.nodes)
    value, variance = rng.normal(mean, 100, size), rng.uniform(1, 99, size)
    found = frequencies(counted(PLACES, value, variance), PLACES)
    depth = PLACES.height - 1 - PLACES.node_levels
    counts = consistent(value, variance, PLACES.parents.astype(np.intp), depth.astype(np.intp))
    parts = found * max(1.0, counts.value[0])
    assert found.min() >= 0
    assert found.max() == found[0] == 1.0
    for node in range(int(PLACES.leaves[0])):
        children = PLACES.children(node)
        np.testing.assert_allclose(parts[children].sum(), parts[node], atol=1e-12 * np.abs(counts.value).max())
        lost = (counts.value[children] - parts[children]) / counts.variance[children]
        some = lost[parts[children] > 1e-9]
        np.testing.assert_allclose(some, some.max(initial=-np.inf), atol=1e-6)
        assert (lost <= some.min(initial=np.inf) + 1e-6).all()


def test_the_noise_of_empty_contexts_takes_little_from_the_others() -> None:
    """One of 200 contexts has all entries: parts of the positive counts would leave it less than a half."""
    leaves = [f"a{number}" for number in range(200)]
    tree = Tree("place", 2, dict.fromkeys(leaves, "a"))
    places = Hierarchy([tree], [(leaf,) for leaf in leaves], [(0,), (1,)])
    truth = places.sums(np.eye(200)[0] * 1000)
    noise = seeded(1, "empty").normal(0, 20, len(truth))
    found = frequencies(counted(places, truth + noise, np.full(len(truth), 400.0)), places)
    assert found[places.leaves[0]] > 0.9
