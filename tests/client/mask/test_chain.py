"""What a learner takes, what it makes of it, and what it refuses with one sentence that names the place."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_client import FileError, MarkovChain
from tests.client.mask import chains, oracle

HALVES = [[0.5, 0.5], [0.5, 0.5]]


# Learning


def test_fit_counts_moves() -> None:
    """Each step has moves of its own."""
    days = [["home", "work", "home"], ["home", "home", "home"], ["home", "work", "work"], ["work", "work", "home"]]
    chain = MarkovChain.fit(days)
    assert chain.contexts == ("home", "work")
    assert chain.initial.tolist() == [3 / 4, 1 / 4]
    assert chain.transitions[0].tolist() == [[1 / 3, 2 / 3], [0, 1]]
    assert chain.transitions[1].tolist() == [[1, 0], [2 / 3, 1 / 3]]


def test_smoothing_is_added_to_every_count() -> None:
    """What was never seen becomes possible."""
    chain = MarkovChain.fit([["a", "a"], ["a", "b"], ["a", "b"]], contexts=["a", "b"], smoothing=0.5)
    assert chain.initial.tolist() == [3.5 / 4, 0.5 / 4]
    assert chain.transitions[0].tolist() == [[1.5 / 4, 2.5 / 4], [0.5, 0.5]]


def test_the_row_of_a_context_that_was_never_seen() -> None:
    """It is the frequency of the contexts at the next step, and nobody gets there."""
    chain = MarkovChain.fit([["a", "a"], ["a", "b"], ["a", "b"]], contexts=["a", "b", "c"])
    assert chain.transitions[0][2] == pytest.approx([1 / 3, 2 / 3, 0])
    assert not chain.reachable[0, 2]
    assert chain.prior[1] == pytest.approx([1 / 3, 2 / 3, 0])


def test_a_gap_is_the_context_unknown() -> None:
    """Learned like any other, and last in order."""
    chain = MarkovChain.fit([["z", None], ["a", "z"]])
    assert chain.contexts == ("a", "z", "unknown")
    assert chain.transitions[0].tolist() == [[0, 1, 0], [0, 0, 1], pytest.approx([0, 0.5, 0.5])]


def test_a_gap_where_unknown_is_not_among_the_contexts() -> None:
    """It is refused like any other unknown context."""
    with pytest.raises(ValueError, match=r"^day 1, step 0: unknown context 'unknown'$"):
        MarkovChain.fit([["a", "a"], [None, "a"]], contexts=["a"])


def test_contexts_may_be_given_in_any_order() -> None:
    """And the order stands."""
    assert MarkovChain.fit([["a", "b"]], contexts=["b", "c", "a"]).contexts == ("b", "c", "a")


def test_days_may_be_read_once() -> None:
    """They need not be a list."""
    chain = MarkovChain.fit((["a", "b"] for _ in range(3)), horizon=2)
    assert chain.transitions.tolist() == [[[0, 1], [0, 1]]]


def test_a_day_of_one_step() -> None:
    """It has no transitions."""
    chain = MarkovChain.fit([["a"], ["b"]])
    assert chain.transitions.shape == (0, 2, 2)
    assert chain.prior.tolist() == [[0.5, 0.5]]


@given(
    days=st.integers(1, 3).flatmap(
        lambda n: st.lists(st.lists(st.sampled_from("abc"), min_size=n, max_size=n), min_size=1)
    )
)
def test_learned_days_are_possible(days: list[list[str]]) -> None:
    """The chain gives every day it was learned from a chance, and the frequencies of the days as prior."""
    chain = MarkovChain.fit(days)
    for t in range(chain.horizon):
        for i, label in enumerate(chain.contexts):
            assert chain.prior[t, i] == pytest.approx(sum(day[t] == label for day in days) / len(days))
    possible = oracle.days(chain)
    assert all(tuple(map(chain.index, day)) in possible for day in days)


@pytest.mark.parametrize(
    ("days", "options", "sentence"),
    [
        ([], {}, "fit needs at least one day: got none"),
        ([["a", "b"], ["a"]], {}, "day 1 has 1 steps where 2 were expected"),
        ([["a", "b"]], {"horizon": 3}, "day 0 has 2 steps where 3 were expected"),
        ([[]], {}, "a day must have at least one step: got 0"),
        ([["a"]], {"horizon": 0}, "a day must have at least one step: got 0"),
        ([["a", "b"], ["a", "c"]], {"contexts": ["a", "b"]}, "day 1, step 1: unknown context 'c'"),
        ([["a", "a"], [1, "a"]], {}, "day 1, step 0: a context is a string, or None for a gap: got 1"),
        (["ab", "cd"], {}, "day 0 must be a list of contexts: got 'ab'"),
        ([["a"], 5], {}, "day 1 must be a list of contexts: got 5"),
        ([["a"]], {"horizon": 1.5}, "a day must have a whole number of steps: got 1.5"),
        ([["a"]], {"contexts": ["a", "b", "a"]}, "the context 'a' is named twice"),
        ([["a"]], {"contexts": "a"}, "contexts must be a list of labels: got the one string 'a'"),
        ([["a"]], {"contexts": []}, "a chain needs at least one context: got none"),
        ([["a"]], {"contexts": ["a", 3]}, "a context is a string: got 3"),
        ([["a"]], {"smoothing": -0.1}, "smoothing must be a number of at least 0: got -0.1"),
        ([["a"]], {"smoothing": float("nan")}, "smoothing must be a number of at least 0: got nan"),
        ([["a"]], {"smoothing": float("inf")}, "smoothing must be a number of at least 0: got inf"),
    ],
)
def test_what_cannot_be_learned_from(days: Any, options: dict[str, Any], sentence: str) -> None:
    """One sentence, which names the place."""
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole message is compared
        MarkovChain.fit(days, **options)
    assert str(error.value) == sentence


# Chains by hand


@pytest.mark.parametrize(
    ("contexts", "initial", "transitions", "sentence"),
    [
        (["a", "b"], [0.5, 0.6], [HALVES], "initial: probabilities must sum to 1, these sum to 1.1"),
        (["a", "b"], [1.5, -0.5], [HALVES], "initial[1] ('b'): a probability cannot be -0.5"),
        (["a", "b"], [float("nan"), 1], [HALVES], "initial[0] ('a'): a probability cannot be nan"),
        (["a", "b"], [1], [HALVES], "initial must hold one probability for each of the 2 contexts: got shape (1,)"),
        (
            ["a", "b"],
            [1, 0],
            [HALVES, [[0.5, 0.5], [0.5, 0.4]]],
            "transitions[1][1] (step 1, from 'b'): probabilities must sum to 1, these sum to 0.9",
        ),
        (
            ["a", "b"],
            [1, 0],
            [[[0.5, 0.5], [float("inf"), 0]]],
            "transitions[0][1][0] (step 0, from 'b'): a probability cannot be inf",
        ),
        (["a", "b"], [1, 0], HALVES, "transitions must have shape (T - 1, 2, 2): got (2, 2)"),
        (["a", "b"], [1, 0], [[[1.0]]], "transitions must have shape (T - 1, 2, 2): got (1, 1, 1)"),
        (["a", "a"], [1, 0], [HALVES], "the context 'a' is named twice"),
        ([], [], [], "a chain needs at least one context: got none"),
        ([None], [1], [], "a context is a string: got None"),
    ],
)
def test_what_is_no_chain(contexts: Any, initial: Any, transitions: Any, sentence: str) -> None:
    """One sentence, which names the place."""
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole message is compared
        MarkovChain(contexts, initial, transitions)
    assert str(error.value) == sentence


@pytest.mark.parametrize("values", [["x", "y"], [[1], [1, 2]], [{}]])
def test_what_is_no_array(values: Any) -> None:
    """Text and ragged lists are no numbers."""
    with pytest.raises(ValueError, match=r"^initial must be a regular array of numbers: "):
        MarkovChain(["a", "b"], values, [HALVES])


def test_small_errors_of_rounding_are_mended() -> None:
    """What somebody rounded to seven digits sums to 1 again."""
    chain = MarkovChain(["a", "b", "c"], [0.3333333, 0.3333333, 0.3333333], np.empty((0, 3, 3)))
    assert chain.initial.sum() == pytest.approx(1, abs=1e-15)


def test_chains_do_not_change() -> None:
    """Not through the arrays they were made of, nor through those they give away."""
    initial = np.array([0.5, 0.5])
    chain = MarkovChain(["a", "b"], initial, [HALVES])
    initial[0] = 0
    assert chain.initial.tolist() == [0.5, 0.5]
    for array in (chain.initial, chain.transitions, chain.prior, chain.reachable):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_labels_and_indices() -> None:
    """An unknown label is named, with those that are known."""
    chain = MarkovChain(["a", "b"], [0.5, 0.5], [HALVES])
    assert [chain.index("a"), chain.index("b")] == [0, 1]
    assert (chain.find("a"), chain.find("c")) == (0, None)
    with pytest.raises(ValueError, match="unknown context 'c': this chain has 'a', 'b'"):
        chain.index("c")


# What a chain says


@given(chain=chains.chains())
def test_the_prior_is_that_of_the_enumeration(chain: MarkovChain) -> None:
    """The probability of each context at each step, over all days."""
    expected = oracle.priors(chain)
    assert chain.prior == pytest.approx(expected, abs=1e-12)
    assert ((chain.prior > 0) == (expected > 0)).all()
    assert (chain.reachable == (expected > 0)).all()


def test_what_underflows_is_still_reachable() -> None:
    """Four steps of 1e-100 have a chance that no float can say."""
    rare = [[1 - 1e-100, 1e-100, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    chain = MarkovChain(["a", "b", "c"], [1, 0, 0], [[[1.0, 1e-200, 0.0], [1.0, 1e-200, 0.0], [1.0, 0.0, 0.0]]] * 3)
    assert chain.prior[3, 1] <= 1e-200
    assert chain.reachable[1:, 1].all()
    assert MarkovChain(["a", "b", "c"], [1, 0, 0], [rare] * 3).reachable[2].all()


def test_samples_follow_the_chain() -> None:
    """The frequencies of 20,000 days lie within five standard deviations of their chances."""
    chain = MarkovChain(["s", "x", "y"], [0.2, 0.5, 0.3], [[[0.6, 0.4, 0.0], [0.1, 0.6, 0.3], [0.0, 0.3, 0.7]]] * 2)
    rng, days = seeded(1), 20_000
    counts: dict[tuple[str, ...], int] = {}
    for _ in range(days):
        day = tuple(chain.sample(rng))
        counts[day] = counts.get(day, 0) + 1
    chances = {tuple(chain.contexts[i] for i in day): mass for day, mass in oracle.days(chain).items()}
    assert counts.keys() <= chances.keys()
    for day, chance in chances.items():
        assert abs(counts.get(day, 0) / days - chance) <= 5 * np.sqrt(chance * (1 - chance) / days)


def test_nobody_samples_the_impossible() -> None:
    """Not even when the coin comes to lie on its edge."""

    class Edge:
        value = 0.0

        def random(self) -> float:
            return self.value

    rng: Any = Edge()
    chain = MarkovChain(["never", "a", "b", "nor"], [0, 0.5, 0.5, 0], np.empty((0, 4, 4)))
    for value, label in ((0.0, "a"), (0.5, "b"), (np.nextafter(1, 0), "b"), (np.nextafter(0.5, 0), "a")):
        rng.value = float(value)
        assert chain.sample(rng) == [label]


def test_frequencies_forget_the_moves() -> None:
    """The same prior, and every step independent of the one before."""
    chain = chains.two_paths()
    memoryless = chain.frequencies()
    assert memoryless.prior == pytest.approx(chain.prior)
    for step in memoryless.transitions:
        assert (step == step[0]).all()


@pytest.mark.parametrize(
    ("contexts", "horizon", "sentence"),
    [
        ([], 2, "a chain needs at least one context: got none"),
        (["a"], 0, "a day must have at least one step: got 0"),
        (["a"], 1.5, "a day must have a whole number of steps: got 1.5"),
    ],
)
def test_what_is_no_uniform_chain(contexts: list[str], horizon: Any, sentence: str) -> None:
    """One sentence, which names the place."""
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        MarkovChain.uniform(contexts, horizon)


def test_a_uniform_chain() -> None:
    """Everything is as likely as everything else."""
    chain = MarkovChain.uniform(["a", "b", "c", "d"], 3)
    assert chain.prior.tolist() == [[0.25] * 4] * 3
    assert chain.transitions.shape == (2, 4, 4)


# Files


@given(chain=chains.chains())
def test_a_chain_survives_as_plain_data(chain: MarkovChain) -> None:
    """Bit for bit, through JSON."""
    again = MarkovChain.from_json(json.loads(json.dumps(chain.to_json())))
    assert again.contexts == chain.contexts
    assert again.initial.tobytes() == chain.initial.tobytes()
    assert again.transitions.tobytes() == chain.transitions.tobytes()
    assert again.transitions.shape == chain.transitions.shape


def test_a_chain_survives_in_a_file(tmp_path: Path) -> None:
    """With labels of any script."""
    path = tmp_path / "chain.json"
    MarkovChain(["café", "\u2603"], [0.1, 0.9], [HALVES]).save(path)
    assert MarkovChain.load(path).contexts == ("café", "\u2603")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 2}, "the chain has format version 2: this program reads 1"),
        ({"format": "other"}, "this is not a chain written by Reticent"),
        ({"initial": [0.5, 0.6]}, "the chain is damaged: initial: probabilities must sum to 1, these sum to 1.1"),
        ({"initial": None}, "the chain is damaged: initial must hold one probability"),
        ({"transitions": "x"}, "the chain is damaged: transitions must be a regular array"),
        ({"contexts": 3}, "the chain is damaged: "),
    ],
)
def test_a_file_that_is_no_chain(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    """One sentence, which names the file."""
    path = tmp_path / "chain.json"
    path.write_text(json.dumps(MarkovChain(["a", "b"], [0.5, 0.5], [HALVES]).to_json() | change))
    with pytest.raises(FileError) as error:
        MarkovChain.load(path)
    assert str(error.value).startswith(f"{path}: {sentence}")


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"{", b"null"])
def test_a_file_that_is_nothing(tmp_path: Path, content: bytes) -> None:
    """Nor one that is not there."""
    path = tmp_path / "chain.json"
    with pytest.raises(FileError, match=r"cannot read .*chain\.json: No such file"):
        MarkovChain.load(path)
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"chain\.json: this is not a chain written by Reticent"):
        MarkovChain.load(path)
