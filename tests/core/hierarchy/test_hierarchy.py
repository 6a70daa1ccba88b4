"""Contexts generalise along the sequence, and numbers of nodes and contexts agree with what they stand for."""

import numpy as np

from reticent.hierarchy import Decimals, Hierarchy, Node, Tree, level_cut, lowest_cut

INTERESTS = {"jazz": "music", "opera": "music", "wine": "drinks", "music": "leisure", "drinks": "leisure"}
QUERIES = {"trumpet": "jazz", "carmen": "opera", "merlot": "wine", "jazz": "music", "opera": "music", "wine": "drinks"}
ATTRIBUTES = (Decimals("location"), Tree("interest", 3, INTERESTS), Tree("query", 3, QUERIES))
CONTEXTS = [
    ("40.72713,-73.99102", "jazz", "trumpet"),
    ("40.72713,-73.99102", "jazz+wine", "merlot"),
    ("40.72714,-73.99102", "jazz", "trumpet"),
    ("40.80000,-73.99102", "opera", "carmen"),
    ("-40.8,-73.99102", "opera", "carmen"),
]


def test_numbers_agree_with_the_nodes_that_they_stand_for() -> None:
    hierarchy = Hierarchy(ATTRIBUTES, CONTEXTS)
    assert sorted(hierarchy.contexts) == sorted(CONTEXTS)
    assert hierarchy.nodes[0] == Node(9, ())
    for leaf, context in enumerate(hierarchy.contexts):
        path = [int(hierarchy.leaves[leaf])]
        while path[-1]:
            path.append(int(hierarchy.parents[path[-1]]))
        assert tuple(hierarchy.nodes[index] for index in path) == hierarchy.ancestors(context)
        assert path == [hierarchy.at_level(level)[leaf] for level in range(hierarchy.height)]
        assert hierarchy.leaf(context) == leaf
    for index, node in enumerate(hierarchy.nodes):
        assert hierarchy.index(node) == index
        assert Node.parse(str(node)) == node
        assert hierarchy.node_levels[index] == node.level
        assert list(hierarchy.children(index)) == list(np.flatnonzero(hierarchy.parents == index))
        below = {int(leaf) for leaf in np.flatnonzero(hierarchy.at_level(node.level) == index)}
        assert below == set(range(len(CONTEXTS))[hierarchy.leaves_below(index)])


def test_order_is_no_part_of_a_hierarchy() -> None:
    hierarchy = Hierarchy(ATTRIBUTES, CONTEXTS)
    again = Hierarchy.from_text(Hierarchy(ATTRIBUTES, CONTEXTS[::-1]).to_text())
    assert again == hierarchy
    assert again.fingerprint == hierarchy.fingerprint
    assert again.nodes == hierarchy.nodes


def test_theorem_2() -> None:
    hierarchy = Hierarchy(ATTRIBUTES, CONTEXTS)
    cut = lowest_cut(hierarchy, [CONTEXTS[0]], 1 / 3 - 1 / 5)
    assert cut.generalise(CONTEXTS[0]) == Node(9, ())
    cut = lowest_cut(hierarchy, [CONTEXTS[0]], 1 / 2 - 1 / 5)
    assert cut.generalise(CONTEXTS[0]) == Node(3, ("40.7271,-73.9910", "music", "jazz"))
    assert level_cut(hierarchy, 0).disclosure([CONTEXTS[0]]) == {CONTEXTS[0]: 0.8}
