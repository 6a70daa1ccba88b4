"""The rivals do what the thesis's listings say: every verdict is checked by enumeration."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from reticent_sim.rivals.thesis import ThesisProbabilistic, ThesisSimulatable

Array = npt.NDArray[np.float64]
Output = tuple[int | None, ...]
ROUNDING = 1e-9


def random_chain(seed: int, horizon: int, contexts: int) -> tuple[Array, Array]:
    """Draw a chain in which about a third of the transitions are impossible."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(contexts), size=(horizon, contexts))
    rows[rng.random(rows.shape) < 1 / 3] = 0.0
    rows[..., -1] += 1e-3
    rows /= rows.sum(axis=-1, keepdims=True)
    return rows[0, 0], rows[1:]


def days(initial: Array, transitions: Array) -> dict[tuple[int, ...], float]:
    """List every day that can happen, with its probability."""
    horizon, contexts = len(transitions) + 1, len(initial)
    found = {
        day: float(initial[day[0]]) * float(np.prod([transitions[t, day[t], day[t + 1]] for t in range(horizon - 1)]))
        for day in itertools.product(range(contexts), repeat=horizon)
    }
    return {day: probability for day, probability in found.items() if probability > 0.0}


def worst_gain(joint: dict[tuple[tuple[int, ...], Output], float], sensitive: set[int]) -> float:
    """Return the largest rise of a sensitive belief, from the joint law of days and outputs."""
    total: dict[Output, float] = {}
    prior: dict[tuple[int, int], float] = {}
    hits: dict[tuple[Output, int, int], float] = {}
    for (day, output), probability in joint.items():
        total[output] = total.get(output, 0.0) + probability
        for t, context in enumerate(day):
            if context in sensitive:
                prior[t, context] = prior.get((t, context), 0.0) + probability
                key = (output, t, context)
                hits[key] = hits.get(key, 0.0) + probability
    gains = [p / total[output] - prior[t, s] for (output, t, s), p in hits.items()]
    return max(gains, default=0.0)


def probabilistic_gain(initial: Array, transitions: Array, suppression: Array, sensitive: set[int]) -> float:
    """Enumerate what a vector of suppression probabilities can output."""
    joint: dict[tuple[tuple[int, ...], Output], float] = {}
    for day, probability in days(initial, transitions).items():
        for shown in itertools.product([True, False], repeat=len(day)):
            chances = [
                1.0 - suppression[t, c] if show else suppression[t, c]
                for t, (c, show) in enumerate(zip(day, shown, strict=True))
            ]
            if np.prod(chances) > 0.0:
                output = tuple(c if show else None for c, show in zip(day, shown, strict=True))
                joint[day, output] = probability * float(np.prod(chances))
    return worst_gain(joint, sensitive)


def released_days(
    rival: ThesisSimulatable, initial: Array, transitions: Array
) -> dict[tuple[tuple[int, ...], Output], float]:
    """Let the simulatable rival filter every day."""
    joint: dict[tuple[tuple[int, ...], Output], float] = {}
    for day, probability in days(initial, transitions).items():
        outputs: list[int | None] = []
        for step, context in enumerate(day):
            okay = rival.okay_to_release(step, outputs)
            outputs.append(context if okay else None)
        joint[day, tuple(outputs)] = probability
    return joint


def layered(edges: dict[str, list[str]], firsts: list[str], horizon: int) -> tuple[Array, Array]:
    """Build a uniform chain from who follows whom; contexts are numbered in order of `edges`."""
    number = {name: i for i, name in enumerate(edges)}
    initial = np.zeros(len(edges))
    initial[[number[name] for name in firsts]] = 1.0 / len(firsts)
    step = np.eye(len(edges))
    for name, following in edges.items():
        if following:
            step[number[name]] = 0.0
            step[number[name], [number[f] for f in following]] = 1.0 / len(following)
    return initial, np.repeat(step[np.newaxis], horizon - 1, axis=0)


def test_example_2_suppresses_x_at_the_next_point_of_the_grid() -> None:
    """Example 2 needs p_s = 1 and p_x = 1/3, which is 0.4 on the grid of tenths."""
    rival = ThesisProbabilistic(np.array([0.5, 0.5]), np.zeros((0, 2, 2)), {0}, 0.25)
    suppression = rival.initialize()
    assert suppression == pytest.approx(np.array([[1.0, 0.4]]))
    assert rival.utility(suppression) == pytest.approx(0.3)
    assert rival.is_private(np.array([[1.0, 1 / 3]]))
    assert not rival.is_private(np.array([[1.0, 0.33]]))
    assert not rival.is_private(np.array([[0.9, 1.0]]))


@pytest.mark.parametrize("cache_messages", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_is_private_agrees_with_enumeration(seed: int, *, cache_messages: bool) -> None:
    """A verdict turns exactly at the largest gain that enumeration finds."""
    initial, transitions = random_chain(seed, horizon=3, contexts=3)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        suppression = rng.integers(0, 11, size=(3, 3)) / 10
        suppression[:, 0] = 1.0
        sensitive = {0, 1} if seed % 2 else {0}
        gain = probabilistic_gain(initial, transitions, suppression, sensitive)
        for delta in (gain + 1e-6, gain - 1e-6):
            rival = ThesisProbabilistic(initial, transitions, sensitive, delta, cache_messages=cache_messages)
            assert rival.is_private(suppression) == (gain <= delta)


@pytest.mark.parametrize("largest_first", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_initialize_finds_a_minimal_private_vector(seed: int, *, largest_first: bool) -> None:
    """The search with its cache keeps privacy, and no coordinate can fall by one tenth more."""
    initial, transitions = random_chain(seed, horizon=3, contexts=3)
    literal, cached = (
        ThesisProbabilistic(
            initial,
            transitions,
            {0},
            0.2,
            cache_messages=cache_messages,
            largest_first=largest_first,
        )
        for cache_messages in (False, True)
    )
    suppression = literal.initialize()
    assert np.array_equal(suppression, cached.initialize())
    assert probabilistic_gain(initial, transitions, suppression, {0}) <= 0.2 + ROUNDING
    for coordinate in np.argwhere(suppression > 0.0):
        lowered = suppression.copy()
        lowered[tuple(coordinate)] -= 0.1
        assert probabilistic_gain(initial, transitions, lowered, {0}) > 0.2


@pytest.mark.parametrize("seed", range(6))
def test_simulatable_agrees_with_enumeration(seed: int) -> None:
    """Its days keep delta, its utility is the mean of its releases, and no refusal is needless."""
    initial, transitions = random_chain(seed, horizon=4, contexts=3)
    delta = 0.3
    rival = ThesisSimulatable(initial, transitions, {0}, delta)
    joint = released_days(rival, initial, transitions)
    assert worst_gain(joint, {0}) <= delta + ROUNDING
    releases = sum(p * sum(o is not None for o in out) for (_, out), p in joint.items())
    assert rival.utility() == pytest.approx(releases)
    for output in {out for _, out in joint}:
        for step in range(len(output)):
            shown = {
                (day, (*out[:step], day[step])): p for (day, out), p in joint.items() if out[:step] == output[:step]
            }
            prior_kept = worst_rise_given(shown, joint, sensitive=0)
            assert rival.okay_to_release(step, list(output[:step])) == (prior_kept <= delta + ROUNDING)


def worst_rise_given(
    shown: dict[tuple[tuple[int, ...], Output], float],
    joint: dict[tuple[tuple[int, ...], Output], float],
    sensitive: int,
) -> float:
    """Return the largest rise over the prior in `joint` after any of the outputs `shown`."""
    rises = []
    horizon = len(next(iter(joint))[0])
    for output in {out for _, out in shown}:
        total = sum(p for (_, out), p in shown.items() if out == output)
        for t in range(horizon):
            prior = sum(p for (day, _), p in joint.items() if day[t] == sensitive)
            hit = sum(p for (day, out), p in shown.items() if out == output and day[t] == sensitive)
            rises.append(hit / total - prior)
    return max(rises)


def test_example_5_releases_eight_thirds_of_a_context() -> None:
    """The chain of figure 3.4(b) gives the eight outputs of the text and 8/3 releases."""
    edges = {
        "w1": ["x1"], "w2": ["x1"], "w3": ["x2"], "w4": ["x2"], "w5": ["x3"], "w6": ["x3"],
        "x1": ["s1", "y1"], "x2": ["y2"], "x3": ["s2", "y3"],
        "s1": ["z1"], "y1": ["z2"], "y2": ["z1", "z2"], "s2": ["z2"], "y3": ["z1"],
        "z1": [], "z2": [],
    }  # fmt: skip
    names = list(edges)
    initial, transitions = layered(edges, [f"w{k}" for k in range(1, 7)], horizon=4)
    rival = ThesisSimulatable(initial, transitions, {names.index("s1"), names.index("s2")}, 1 / 3)
    joint = released_days(rival, initial, transitions)
    outputs = {" ".join("-" if o is None else names[o] for o in out) for _, out in joint}
    assert outputs == {
        "w1 x1 - -", "w2 x1 - -", "w5 x3 - -", "w6 x3 - -",
        "w3 x2 y2 z1", "w3 x2 y2 z2", "w4 x2 y2 z1", "w4 x2 y2 z2",
    }  # fmt: skip
    assert rival.utility() == pytest.approx(8 / 3)
