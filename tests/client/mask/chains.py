"""Chains with known answers, and hypothesis strategies for all the others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reticent_client import MarkovChain
from tests.client.mask import oracle

# The profile in force says how thorough to be; slow tests are twice as thorough.
FAST = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
SLOW = settings(FAST, max_examples=2 * FAST.max_examples)

Layer = Mapping[str, Mapping[str, float]]


def layered(start: Mapping[str, float], *layers: Layer) -> MarkovChain:
    """A chain from its edges, layer by layer; contexts that a layer does not mention stay put."""
    contexts = list(start)
    for layer in layers:
        for label, row in layer.items():
            contexts += [name for name in (label, *row) if name not in contexts]
    initial = np.array([start.get(name, 0.0) for name in contexts])
    transitions = np.array(
        [[[layer.get(a, {a: 1.0}).get(b, 0.0) for b in contexts] for a in contexts] for layer in layers]
    ).reshape(len(layers), len(contexts), len(contexts))
    return MarkovChain(contexts, initial, transitions)


def uniform(*names: str) -> dict[str, float]:
    """Equal chances for all names."""
    return dict.fromkeys(names, 1 / len(names))


def phone_call() -> MarkovChain:
    """Example 1: a phone call leads to a coffee break; a meeting goes on, or ends in an email."""
    return layered(
        uniform("phone call", "meeting"),
        {"phone call": uniform("coffee break"), "meeting": uniform("meeting", "email")},
    )


def coin() -> MarkovChain:
    """Example 2: one step, s or x with equal chances."""
    return layered(uniform("s", "x"))


def four_ways() -> MarkovChain:
    """Example 4: one step, two sensitive contexts and two harmless ones, a quarter each."""
    return layered(uniform("s1", "s2", "x", "y"))


def three_roads() -> MarkovChain:
    """Example 5: six starts, three roads, of which the outer two pass through s1 or s2."""
    return layered(
        uniform("w1", "w2", "w3", "w4", "w5", "w6"),
        {
            "w1": uniform("x1"),
            "w2": uniform("x1"),
            "w3": uniform("x2"),
            "w4": uniform("x2"),
            "w5": uniform("x3"),
            "w6": uniform("x3"),
        },
        {"x1": uniform("s1", "y1"), "x2": uniform("y2"), "x3": uniform("s2", "y3")},
        {
            "s1": uniform("z1"),
            "y1": uniform("z2"),
            "y2": uniform("z1", "z2"),
            "s2": uniform("z2"),
            "y3": uniform("z1"),
        },
    )


def two_paths() -> MarkovChain:
    """From a the user may pass through s, from b never; what follows tells s from x."""
    return layered(
        {"a": 0.9, "b": 0.1},
        {"a": uniform("s", "z"), "b": {"s": 0.2, "w": 0.8}},
        {"s": uniform("j"), "w": uniform("j"), "z": uniform("k")},
    )


def patient() -> MarkovChain:
    """Eight steps on which releasing early costs everything that comes later."""
    return layered(
        uniform("a", "b"),
        {"a": {"s": 0.3, "x": 0.7}, "b": uniform("y")},
        {"s": uniform("k1"), "y": uniform("k1"), "x": uniform("k2")},
        *[{}] * 5,
    )


def window() -> MarkovChain:
    """Four steps on which the belief in s at one of two steps outruns the belief at each."""
    transitions = np.array(
        [
            [[0.609, 0.008, 0.383], [0.264, 0.68, 0.056], [0, 0, 1]],
            [[0.329, 0.608, 0.063], [0.269, 0.731, 0], [0.177, 0.75, 0.073]],
            [[0.032, 0.968, 0], [0.003, 0.997, 0], [0.977, 0.023, 0]],
        ]
    )
    return MarkovChain(["s", "u", "v"], np.array([0.991, 0.009, 0]), transitions)


def faint() -> MarkovChain:
    """Four steps of which the third is almost never b: an output of mass 1e-11 can occur."""
    rare = {"a": 1 - 1e-6, "b": 1e-6}
    return layered({"b": 1.0, "a": 0.0}, {"b": rare}, {"b": rare}, {"a": {"b": 1.0}})


def independent(*chances: float) -> MarkovChain:
    """At each step s with its own chance, else x, whatever came before."""
    rows = [{"s": chance, "x": 1 - chance} for chance in chances]
    return layered(rows[0], *[{"s": row, "x": row} for row in rows[1:]])


def common() -> MarkovChain:
    """Three steps of which the last is s five times in six, whatever came before."""
    often = {"s": 5 / 6, "x": 1 / 6}
    return layered(
        uniform("s", "x"),
        {"s": uniform("s", "x"), "x": {"s": 1 / 3, "x": 2 / 3}},
        {"s": often, "x": often},
    )


def habits() -> MarkovChain:
    """Four steps of strong habits: some transitions happen once in a hundred thousand days."""
    return layered(
        {"x": 100 / 101, "s": 1 / 101},
        {"x": uniform("x", "s"), "s": uniform("x", "s")},
        {"x": {"x": 10 / 11, "s": 1 / 11}, "s": {"x": 1 - 1e-5, "s": 1e-5}},
        {"x": {"x": 1 - 1e-5, "s": 1e-5}, "s": {"x": 1 / 101, "s": 100 / 101}},
    )


@dataclass(frozen=True)
class Problem:
    """A chain and what its user asks for."""

    chain: MarkovChain
    sensitive: Any
    delta: float | None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a check."""
        own = isinstance(self.sensitive, Mapping)
        return {"sensitive": self.sensitive} | ({} if own else {"delta": self.delta})

    @property
    def limits(self) -> list[oracle.Limit]:
        """The oracle's reading of the same."""
        return oracle.limits(self.chain, self.sensitive, self.delta)


Shape = tuple[int, int]  # (T, n)

# A policy makes at most (2n)^T pairs of a day and an output.
SMALL: Sequence[Shape] = [(1, 3), (2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (3, 3), (4, 2), (5, 2)]
LARGE: Sequence[Shape] = [*SMALL, (3, 4), (4, 3), (4, 4), (5, 3)]
GRID: Sequence[Shape] = [(1, 2), (1, 4), (2, 2), (3, 2), (2, 3)]
PROGRAM: Sequence[Shape] = [(1, 3), (2, 2), (2, 3), (3, 2), (3, 3), (4, 2)]

EVEN = [1.0, 2.0, 3.0, 5.0]
FLAVOURS = {
    "even": EVEN,
    "sparse": [0.0, 0.0, 0.0, *EVEN],
    "nearly deterministic": [1e-3, 1e-2, 1.0, 100.0],
    "tiny": [0.0, 1e-6, 1e-6, 1.0, 3.0],
}
MODERATE = ("even", "sparse")
EXTREME = ("nearly deterministic", "tiny")

DELTAS = st.sampled_from([0.01, 0.05, 0.1, 1 / 6, 0.25, 1 / 3, 0.5, 0.9]) | st.floats(0.01, 0.95)


@st.composite
def chains(
    draw: st.DrawFn,
    shapes: Sequence[Shape] = SMALL,
    flavours: Sequence[str] = tuple(FLAVOURS),
) -> MarkovChain:
    """Chains of all flavours; what no path reaches has well-defined rows all the same."""
    horizon, n = draw(st.sampled_from(shapes))
    weights = st.sampled_from(FLAVOURS[draw(st.sampled_from(flavours))])
    row = st.lists(weights, min_size=n, max_size=n).filter(any)
    rows = draw(st.lists(row, min_size=1 + (horizon - 1) * n, max_size=1 + (horizon - 1) * n))
    return _normalised(np.array(rows), horizon, n)


@st.composite
def beliefs_about(draw: st.DrawFn, chain: MarkovChain) -> MarkovChain:
    """Another chain over the same contexts and steps, as another adversary may believe it."""
    shape = (chain.horizon, len(chain.contexts))
    return draw(chains(shapes=[shape]))


@st.composite
def sensitive_sets(draw: st.DrawFn, chain: MarkovChain) -> Any:
    """Labels, states or both, as a set or with a delta of their own."""
    labels = st.sampled_from(list(chain.contexts))
    states = st.tuples(st.integers(0, chain.horizon - 1), labels)
    keys = draw(st.sampled_from([labels, states, labels | states]))
    if draw(st.booleans()):
        return draw(st.dictionaries(keys, DELTAS, min_size=1, max_size=2))
    return draw(st.frozensets(keys, min_size=1, max_size=2))


@st.composite
def problems(
    draw: st.DrawFn,
    shapes: Sequence[Shape] = SMALL,
    flavours: Sequence[str] = tuple(FLAVOURS),
) -> Problem:
    """A chain, what is sensitive on it, and by how much a belief may rise."""
    chain = draw(chains(shapes, flavours))
    return Problem(chain, draw(sensitive_sets(chain)), draw(DELTAS))


def _normalised(rows: NDArray[np.float64], horizon: int, n: int) -> MarkovChain:
    rows = rows / rows.sum(axis=1, keepdims=True)
    contexts = [f"c{i}" for i in range(n)]
    return MarkovChain(contexts, rows[0], rows[1:].reshape(horizon - 1, n, n))


def close(value: float, expected: float, tolerance: float = 1e-9) -> bool:
    """Equal up to rounding; never true of a NaN."""
    return math.isfinite(value) and abs(value - expected) <= tolerance
