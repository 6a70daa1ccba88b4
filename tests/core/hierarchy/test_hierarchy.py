"""Contexts generalise along the sequence, and numbers of nodes and contexts agree with what they stand for."""

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.hierarchy import DEFAULT_SEQUENCE, Decimals, Hierarchy, Node, Tree
from tests.core.hierarchy.hierarchies import ATTRIBUTES, CONTEXTS, hierarchies


@given(hierarchy=hierarchies(8))
def test_numbers_agree_with_the_nodes_that_they_stand_for(hierarchy: Hierarchy) -> None:
    assert hierarchy.nodes[0] == Node(len(hierarchy.sequence), ())
    for leaf, context in enumerate(hierarchy.contexts):
        path = [int(hierarchy.leaves[leaf])]
        while path[-1]:
            path.append(int(hierarchy.parents[path[-1]]))
        assert tuple(hierarchy.nodes[index] for index in path) == hierarchy.ancestors(context)
        assert path == [hierarchy.at_level(level)[leaf] for level in range(hierarchy.height)]
        assert hierarchy.leaf(context) == leaf
    values = np.arange(1.0, 1 + len(hierarchy.contexts)) ** 2
    for index, node in enumerate(hierarchy.nodes):
        assert hierarchy.index(node) == index
        assert Node.parse(str(node)) == node
        assert hierarchy.node_levels[index] == node.level
        assert index in range(len(hierarchy.nodes))[hierarchy.nodes_at(node.level)]
        assert list(hierarchy.children(index)) == list(np.flatnonzero(hierarchy.parents == index))
        below = np.flatnonzero(hierarchy.at_level(node.level) == index)
        assert list(below) == list(range(len(hierarchy.contexts))[hierarchy.leaves_below(index)])
        assert hierarchy.leaf_counts[index] == len(below)
        assert hierarchy.sums(values)[index] == values[below].sum()


@given(hierarchy=hierarchies(8), data=st.data())
def test_the_order_of_contexts_is_no_part_of_a_hierarchy(hierarchy: Hierarchy, data: st.DataObject) -> None:
    contexts = data.draw(st.permutations(hierarchy.contexts))
    again = Hierarchy.from_text(Hierarchy(hierarchy.attributes, contexts, hierarchy.sequence).to_text())
    assert again == hierarchy
    assert again.fingerprint == hierarchy.fingerprint
    assert again.nodes == hierarchy.nodes
    assert hash(again) == hash(hierarchy)


def test_each_part_of_a_hierarchy_changes_its_fingerprint() -> None:
    location, interest, query = ATTRIBUTES
    others = [
        Hierarchy(ATTRIBUTES, CONTEXTS),
        Hierarchy(ATTRIBUTES, CONTEXTS[1:]),
        Hierarchy(ATTRIBUTES, CONTEXTS, DEFAULT_SEQUENCE[:-1]),
        Hierarchy([Decimals("location", (None, 4, 3, 2, 1)), interest, query], CONTEXTS),
        Hierarchy([location, interest, Tree("query", 4, query.parents)], CONTEXTS),
        Hierarchy([location, interest, Tree("query", 3, {**query.parents, "beer": "drinks"})], CONTEXTS),
        Hierarchy([location, interest, Tree("words", 3, query.parents)], CONTEXTS),
    ]
    assert len({each.fingerprint for each in others}) == len(others) == len(set(others))


def test_the_generalisation_sequence_of_the_thesis() -> None:
    path = Hierarchy(ATTRIBUTES, CONTEXTS).ancestors(("40.72713,-73.99102", "wine+jazz", "merlot"))
    assert [str(node) for node in path] == [
        "0|40.72713,-73.99102|jazz+wine|merlot",
        "1|40.72713,-73.99102|jazz+wine|wine",
        "2|40.72713,-73.99102|drinks+music|wine",
        "3|40.7271,-73.9910|drinks+music|wine",
        "4|40.7271,-73.9910|leisure|wine",
        "5|40.727,-73.991|leisure|wine",
        "6|40.72,-73.99|leisure|wine",
        "7|40.72,-73.99|leisure|drinks",
        "8|40.7,-73.9|leisure|drinks",
        "9",
    ]
    hierarchy = Hierarchy(ATTRIBUTES, CONTEXTS)
    assert hierarchy.height == 10
    assert [hierarchy.depth_of(level) for level in (9, 8, 0)] == [0, 1, 9]


def test_an_unknown_context_has_the_known_nodes_above_it() -> None:
    hierarchy = Hierarchy(ATTRIBUTES, CONTEXTS)
    elsewhere = hierarchy.ancestors(("40.7279,-73.9919", "music", "wine"))
    assert [str(node) for node in elsewhere] == [
        "7|40.72,-73.99|leisure|drinks",
        "8|40.7,-73.9|leisure|drinks",
        "9",
    ]
    assert hierarchy.ancestors(("1,1", "jazz", "trumpet")) == hierarchy.nodes[:1]
    assert hierarchy.ancestors((CONTEXTS[0][0], "jazz", "something else")) == hierarchy.nodes[:1]
    with pytest.raises(ValueError, match="the hierarchy has no context"):
        hierarchy.leaf(("1,1", "jazz", "trumpet"))
    with pytest.raises(ValueError, match=re.escape("the hierarchy has no node '8|1.0,1.0|leisure|music'")):
        hierarchy.index(Node(8, ("1.0,1.0", "leisure", "music")))


@pytest.mark.parametrize(
    "context",
    [
        ("1,1", "jazz"),
        ("1,1", "jazz", "", "x"),
        "1,1",
        None,
        ("1,1", "jazz", 3),
        ("1", "jazz", "jazz"),
        ("1", "unknown", "jazz"),
    ],
)
def test_a_malformed_context_has_no_ancestors(context: Any) -> None:
    with pytest.raises(ValueError, match=r"the context must have a text for each|'location' needs a latitude"):
        Hierarchy(ATTRIBUTES, CONTEXTS).ancestors(context)


@pytest.mark.parametrize("text", ["", "x", "-1|a", "01|a", "1|", "1||a", "1|a\n", "9999999", "|a"])
def test_a_text_that_is_no_node_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a node"):
        Node.parse(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attributes": []}, "needs attributes with different names"),
        ({"attributes": ATTRIBUTES[:1] * 3}, "needs attributes with different names"),
        ({"contexts": []}, "needs at least one context"),
        ({"contexts": "abc"}, "contexts are a list"),
        ({"contexts": [*CONTEXTS, CONTEXTS[1]]}, r"context 5 repeats context 1: \('40.72713"),
        ({"contexts": [*CONTEXTS, ("40.72713,-73.99102", "wine+jazz", "merlot")]}, "context 5 repeats context 1"),
        (
            {"contexts": [CONTEXTS[0], ("1,1", "jazz")]},
            "context 1 must have a text for each of location, interest, query",
        ),
        ({"contexts": [CONTEXTS[0], ("1,1", "jazz", None)]}, "context 1 must have a text"),
        ({"contexts": [CONTEXTS[0], ("1,91e1", "jazz", "jazz")]}, "context 1: 'location' needs a latitude"),
        ({"contexts": [CONTEXTS[0], ("91,1", "jazz", "jazz")]}, "context 1: a latitude lies in"),
        ({"contexts": [CONTEXTS[0], ("1,1", "jaz", "jazz")]}, "context 1: 'interest' has no category 'jaz'"),
        ({"contexts": [CONTEXTS[0], ("1,1", "jazz", "")]}, "context 1: 'query' must be text that is not empty"),
        ({"sequence": []}, "begins with zeros"),
        ({"sequence": [(0, 0, 1)]}, "begins with zeros"),
        ({"sequence": [(0, 0)]}, "level 0 of the sequence needs a number for each of 3 attributes"),
        ({"sequence": [0]}, "level 0 of the sequence needs a number"),
        ({"sequence": [(0, 0, 0), (0, 0, 1.5)]}, "level 1 of the sequence must be a whole number"),
        ({"sequence": [(0, 0, 0), (6, 0, 0)]}, "level 1 of the sequence: 'location' has levels 0 to 5: got 6"),
        ({"sequence": [(0, 0, 0), (0, 0, -1)]}, "level 1 of the sequence: 'query' has levels 0 to 2: got -1"),
        ({"sequence": [(0, 0, 0), (0, 0, 0)]}, "each step of a sequence raises one attribute: level 1"),
        ({"sequence": [(0, 0, 0), (1, 1, 0)]}, "each step of a sequence raises one attribute"),
        ({"sequence": [(0, 0, 0), (2, 0, 0), (1, 0, 0)]}, "each step of a sequence raises one attribute: level 2"),
    ],
)
def test_bad_parts_are_refused_with_the_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Hierarchy(**{"attributes": ATTRIBUTES, "contexts": CONTEXTS, **change})


@pytest.mark.parametrize("level", [-1, 10, 1.5, True])
def test_a_level_that_does_not_exist_is_refused(level: Any) -> None:
    with pytest.raises(ValueError, match="level"):
        Hierarchy(ATTRIBUTES, CONTEXTS).at_level(level)


@pytest.mark.slow
def test_a_hundred_thousand_contexts_take_seconds() -> None:
    places = [f"{40 + number // 317 / 1000:.5f},{number % 317 / 1000 - 74:.5f}" for number in range(100_000)]
    contexts = [(place, "jazz", "trumpet" if number % 3 else "carmen") for number, place in enumerate(places)]
    start = time.process_time()
    hierarchy = Hierarchy(ATTRIBUTES, contexts)
    built = time.process_time() - start
    assert hierarchy.index(hierarchy.nodes[-1]) == len(hierarchy.nodes) - 1
    assert Hierarchy.from_text(hierarchy.to_text()) == hierarchy
    assert built < 3


def test_a_hierarchy_survives_its_file(tmp_path: Path) -> None:
    hierarchy = Hierarchy(ATTRIBUTES, CONTEXTS)
    hierarchy.save(tmp_path / "hierarchy.json")
    assert Hierarchy.load(tmp_path / "hierarchy.json") == hierarchy
    assert json.loads((tmp_path / "hierarchy.json").read_text())["format"] == "reticent-hierarchy"


def edited(**change: Any) -> str:
    """The text of a hierarchy with some entries replaced."""
    return json.dumps(json.loads(Hierarchy(ATTRIBUTES, CONTEXTS).to_text()) | change)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not a hierarchy written by Reticent"),
        ("[" * 100_000, "this is not a hierarchy written by Reticent"),
        ("\udcff", "this is not a hierarchy written by Reticent"),
        (edited(format="reticent-chain"), "this is not a hierarchy written by Reticent"),
        (edited(version=2), "the hierarchy has format version 2: this program reads 1"),
        (edited(contexts=None), 'a hierarchy has the lists "attributes", "sequence" and "contexts", and nothing else'),
        (edited(prior=[]), "and nothing else"),
        (edited(attributes=[{"kind": "grid", "name": "x"}]), "this is not an attribute: {'kind': 'grid'"),
        (edited(attributes=[3]), "this is not an attribute: 3"),
        (edited(attributes=[{"kind": "tree", "name": "x", "levels": 1, "parents": {}, "y": 1}]), "not an attribute"),
        (edited(contexts=[["1,1", "jazz", 3]]), "context 0 must have a text"),
        (edited(sequence=[[0, 0, 0], [0, 0, "1"]]), "level 1 of the sequence must be a whole number"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "hierarchy.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=message) as error:
        Hierarchy.load(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
