"""The lowest cut keeps every belief within its bound, and no other cut that does is lower anywhere."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.hierarchy import Context, Cut, Hierarchy, Node, level_cut, lowest_cut
from tests.core.hierarchy.hierarchies import ATTRIBUTES, CONTEXTS, hierarchies

Event = Context | Node


def all_cuts(hierarchy: Hierarchy, index: int = 0) -> Iterator[list[int]]:
    """The nodes of every cut of what is below a node."""
    yield [index]
    if index < hierarchy.leaves[0]:
        parts = [list(all_cuts(hierarchy, int(child))) for child in hierarchy.children(index)]
        yield from (list(itertools.chain.from_iterable(each)) for each in itertools.product(*parts))


def members(hierarchy: Hierarchy, event: Event) -> set[int]:
    """The contexts of an event."""
    node = event if isinstance(event, Node) else Node(0, event)
    return {leaf for leaf, context in enumerate(hierarchy.contexts) if node in hierarchy.ancestors(context)}


def rise(hierarchy: Hierarchy, prior: list[float], event: Event, node: int) -> float:
    """The increase of the belief in an event given a node; 1 if the prior rules out a node with a context of it."""
    inside = members(hierarchy, event)
    below = members(hierarchy, hierarchy.nodes[node])
    if not (mass := sum(prior[leaf] for leaf in below)):
        return 1.0 if inside & below else 0.0
    return sum(prior[leaf] for leaf in inside & below) / mass - sum(prior[leaf] for leaf in inside) / sum(prior)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Hierarchy, list[float] | None, dict[Event, float]]:
    """A hierarchy, a prior, and events with their deltas; some are the rise at a node, where rounding decides."""
    hierarchy = draw(hierarchies(5))
    size = len(hierarchy.contexts)
    numbers = draw(st.lists(st.integers(0, 4), min_size=size, max_size=size).filter(any))
    prior = None if draw(st.booleans()) else [number / sum(numbers) for number in numbers]
    known: list[Event] = [*hierarchy.contexts, *hierarchy.nodes]
    events = draw(st.lists(st.sampled_from(known), max_size=3, unique=True))
    rises = [rise(hierarchy, prior or [1 / size] * size, e, n) for e in events for n in range(len(hierarchy.nodes))]
    deltas = st.sampled_from([0.01, 0.3, 0.9, *(each for each in rises if 0.001 < each < 1)])
    return hierarchy, prior, {event: draw(deltas) for event in events}


@settings(max_examples=40)
@given(problem=problems())
def test_of_all_cuts_that_keep_every_belief_in_bounds_one_is_lowest(
    problem: tuple[Hierarchy, list[float] | None, dict[Event, float]],
) -> None:
    hierarchy, prior, deltas = problem
    weights = prior or [1 / len(hierarchy.contexts)] * len(hierarchy.contexts)
    allowed = [
        all(rise(hierarchy, weights, event, node) <= delta + 1e-9 for event, delta in deltas.items())
        for node in range(len(hierarchy.nodes))
    ]
    cut = lowest_cut(hierarchy, deltas, prior=prior)
    nodes = set(cut.indices.tolist())
    valid = [each for each in all_cuts(hierarchy) if all(allowed[node] for node in each)]
    assert nodes in map(set, valid)
    for other in valid:
        assert (
            hierarchy.node_levels[Cut(hierarchy, [hierarchy.nodes[n] for n in other]).node_of]
            >= hierarchy.node_levels[cut.node_of]
        ).all()


@given(problem=problems(), data=st.data())
def test_a_cut_discloses_its_largest_increase_of_a_belief(
    problem: tuple[Hierarchy, list[float] | None, dict[Event, float]], data: st.DataObject
) -> None:
    hierarchy, prior, deltas = problem
    nodes = data.draw(st.sampled_from(list(all_cuts(hierarchy))))
    cut = Cut(hierarchy, [hierarchy.nodes[node] for node in nodes])
    weights = prior or [1 / len(hierarchy.contexts)] * len(hierarchy.contexts)
    expected = {event: max(rise(hierarchy, weights, event, node) for node in nodes) for event in deltas}
    assert cut.disclosure(deltas, prior) == pytest.approx(expected, abs=1e-12)
    for leaf, context in enumerate(hierarchy.contexts):
        assert cut.generalise(context) == hierarchy.nodes[cut.node_of[leaf]]
        assert cut.node_of[leaf] in nodes


@pytest.mark.parametrize(("least", "level"), [(1, 0), (2, 3), (3, 9), (5, 9)])
def test_theorem_2(least: int, level: int) -> None:
    """If every cut node above a sensitive context has l of n contexts, a belief rises by at most 1/l - 1/n."""
    hierarchy = Hierarchy(ATTRIBUTES, CONTEXTS)
    sensitive = CONTEXTS[0]
    bound = 1 / least - 1 / len(CONTEXTS)
    cut = lowest_cut(hierarchy, [sensitive], max(bound, 1e-9))
    assert cut.generalise(sensitive).level == level
    assert cut.disclosure([sensitive])[sensitive] <= bound
    assert all(cut.generalise(other).level == 0 for other in CONTEXTS[3:]) or level == 9


@pytest.mark.parametrize("delta", [0.5, 1 - 1e-12])
def test_no_node_of_an_event_is_on_the_cut_if_the_prior_rules_it_out(delta: float) -> None:
    """The adversary's belief after an output that it deems impossible has no bound."""
    hierarchy = Hierarchy(ATTRIBUTES, CONTEXTS)
    prior = [float(hierarchy.leaf(CONTEXTS[2]) == leaf) for leaf in range(len(CONTEXTS))]
    events = CONTEXTS[0], Node(6, ("40.72,-73.99", "leisure", "jazz")), Node(8, ("40.7,-73.9", "leisure", "music"))
    for event in events:
        cut = lowest_cut(hierarchy, [event], delta, prior)
        assert cut.generalise(CONTEXTS[0]) == Node(3, ("40.7271,-73.9910", "music", "jazz"))
        assert cut.disclosure([event], prior) == {event: 0.0}
        assert level_cut(hierarchy, 0).disclosure([event], prior) == {event: 1.0}


def test_a_cut_through_a_level() -> None:
    hierarchy = Hierarchy(ATTRIBUTES, CONTEXTS)
    for level in range(hierarchy.height):
        cut = level_cut(hierarchy, level)
        assert [cut.generalise(context) for context in CONTEXTS] == [
            hierarchy.ancestors(context)[level] for context in CONTEXTS
        ]


def test_an_unknown_context_generalises_to_a_known_node() -> None:
    hierarchy = Hierarchy(ATTRIBUTES, CONTEXTS)
    near = ("40.7279,-73.9919", "music", "wine")
    assert level_cut(hierarchy, 8).generalise(near).level == 8
    assert level_cut(hierarchy, 3).generalise(near).level == 7
    assert level_cut(hierarchy, 3).generalise(("1,1", "jazz", "jazz")) == hierarchy.nodes[0]


@pytest.mark.parametrize(
    ("level", "change", "message"),
    [
        (0, slice(1, None), "the cut has no node at or above the context"),
        (0, slice(0, -1), "the cut has no node at or above the context"),
        (0, slice(0, 0), "the cut has no node at or above the context"),
        (9, [Node(9, ())] * 2, "the cut has several nodes at or above the context"),
        (1, [Node(9, ()), Node(8, ("-40.8,-73.9", "leisure", "music"))], "the cut has several nodes"),
        (1, [Node(1, ("x",))], "the hierarchy has no node"),
    ],
)
def test_nodes_that_are_no_cut_are_refused(level: int, change: Any, message: str) -> None:
    hierarchy = Hierarchy(ATTRIBUTES, CONTEXTS)
    nodes = level_cut(hierarchy, level).nodes[change] if isinstance(change, slice) else change
    with pytest.raises(ValueError, match=message):
        Cut(hierarchy, nodes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sensitive": [CONTEXTS[0]]}, "delta must lie in"),
        ({"sensitive": [CONTEXTS[0]], "delta": 1.0}, "delta must lie in"),
        ({"sensitive": {CONTEXTS[0]: 0.1}, "delta": 0.1}, "give one of the two"),
        ({"sensitive": {CONTEXTS[0]: 0.0}}, "delta must lie in"),
        ({"sensitive": CONTEXTS[0], "delta": 0.1}, "must have a text for each"),
        ({"sensitive": [("1,1", "jazz", "jazz")], "delta": 0.1}, "the hierarchy has no context"),
        ({"sensitive": [Node(9, ("x",))], "delta": 0.1}, "the hierarchy has no node"),
        ({"sensitive": [], "delta": 0.1, "prior": [0.2] * 4 + [0.3]}, "sum to 1"),
        ({"sensitive": [], "delta": 0.1, "prior": [-0.2, 0.2, 0.2, 0.2, 0.6]}, "at least 0"),
        ({"sensitive": [], "delta": 0.1, "prior": [np.nan] * 5}, "at least 0"),
        ({"sensitive": [], "delta": 0.1, "prior": [0.5] * 2}, "one value for each of the 5 contexts"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lowest_cut(Hierarchy(ATTRIBUTES, CONTEXTS), **arguments)
