"""The rule by which an adversary learns."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_client import (
    FileError,
    LearningAdversary,
    MarkovChain,
    Policy,
    daily,
    hybrid,
    mask_sensitive,
)
from reticent_client.mask.policy import Automaton
from reticent_client.mask.provenance import Provenance
from tests.client.habits.histories import (
    ERRAND,
    LINKED,
    TRIPLE,
    checks,
    labels,
    same,
    vector,
)
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, Problem

# The rule


def totals(adversary: LearningAdversary) -> list[float]:
    """How many days were counted at step 0, and of the moves at each step."""
    data = adversary.to_json()
    return [sum(data["first"]), *(float(np.sum(moves)) for moves in data["moves"])]


@checks
@FAST
@given(problem=chains.problems(), strength=st.sampled_from([0.01, 1.0, 1.5, 28.0]), seed=st.integers(0, 2**32))
def test_each_day_adds_one_to_the_counts_of_every_step(
    check: Callable[..., Policy], problem: Problem, strength: float, seed: int
) -> None:
    """And the prior of a morning is the average of what was believed, the start counting as `strength` days.

    As it is kept as text, the adversary goes on as before, bit for bit.
    """
    adversary = LearningAdversary(problem.chain, strength)
    total, believed = strength * problem.chain.prior, 0
    days = [problem.chain.sample(seeded(seed, k)) for k in range(3)]
    for day in daily(adversary, lambda chain: check(chain, **problem.arguments), days, seeded(seed)):
        assert day.beliefs is not None  # whoever follows the chain does nothing that it rules out
        total, believed = total + day.beliefs, believed + 1
        assert adversary.days == believed
        assert totals(adversary) == pytest.approx([believed] * problem.chain.horizon, abs=1e-9)
        assert adversary.chain.prior == pytest.approx(total / (strength + believed), abs=1e-9)
        assert adversary.chain.transitions.sum(axis=2) == pytest.approx(1.0, abs=1e-9)
    assert (adversary.days, adversary.ignored) == (3, 0)
    again = LearningAdversary.from_json(json.loads(json.dumps(adversary.to_json())))
    assert again.to_json() == adversary.to_json()
    assert again.chain.to_json() == adversary.chain.to_json()
    assert (again.days, again.ignored, again.strength) == (3, 0, strength)


@FAST
@given(chain=chains.chains(), strength=st.sampled_from([0.5, 3.0]), seed=st.integers(0, 2**32))
def test_days_that_are_released_in_full_are_counted(chain: MarkovChain, strength: float, seed: int) -> None:
    """Learning from them is what `fit` does, beside the starting chain."""
    adversary = LearningAdversary(chain, strength)
    days = [chain.sample(seeded(seed, k)) for k in range(4)]
    for day in days:
        adversary.learn(vector(chain, np.zeros((chain.horizon, chain.size))), day)
    fitted = MarkovChain.fit(days, contexts=chain.contexts)
    for t in range(chain.horizon - 1):
        for i in range(chain.size):
            begun, seen = strength * chain.prior[t, i], 4 * fitted.prior[t, i]
            if seen > 0:
                expected = (begun * chain.transitions[t, i] + seen * fitted.transitions[t, i]) / (begun + seen)
                assert adversary.chain.transitions[t, i] == pytest.approx(expected, abs=1e-9)
            else:
                assert adversary.chain.transitions[t, i].tolist() == chain.transitions[t, i].tolist()
    expected = (strength * chain.initial + 4 * fitted.initial) / (strength + 4)
    assert adversary.chain.initial == pytest.approx(expected, abs=1e-9)


@FAST
@given(chain=chains.chains())
def test_days_on_which_all_is_suppressed_whatever_it_is_teach_nothing(chain: MarkovChain) -> None:
    """The chain stays, and is held with more certainty."""
    adversary = LearningAdversary(chain, 1)
    for _ in range(3):
        adversary.learn(vector(chain, np.ones((chain.horizon, chain.size))), [None] * chain.horizon)
    assert adversary.days == 3
    assert same(adversary.chain, chain)


def test_silence_teaches_where_it_tells() -> None:
    """A mask's silence is the clinic: one day of a strength of one makes a tenth more than a half."""
    chain = MarkovChain(["clinic", "home"], [0.1, 0.9], [])
    adversary = LearningAdversary(chain, 1)
    adversary.learn(mask_sensitive(chain, sensitive={"clinic"}), [None])
    assert adversary.chain.initial.tolist() == pytest.approx([0.55, 0.45])
    assert adversary.starting.initial.tolist() == [0.1, 0.9]


@checks
@FAST
@given(problem=chains.problems(shapes=[(2, 3), (3, 2), (1, 3)]), seed=st.integers(0, 2**32), data=st.data())
def test_the_order_of_labels_does_not_matter(
    check: Callable[..., Policy], problem: Problem, seed: int, data: st.DataObject
) -> None:
    """With contexts named in another order the same is learned from the same day and policy."""
    chain = problem.chain
    policy = check(chain, **problem.arguments)
    outputs = data.draw(st.sampled_from(sorted(oracle.joint(policy, chain), key=str)))
    order = seeded(seed).permutation(chain.size)
    turned = MarkovChain(
        [chain.contexts[i] for i in order], chain.initial[order], chain.transitions[:, order][:, :, order]
    )
    renamed = Renamed(policy, turned, order)
    one, other = LearningAdversary(chain, 1), LearningAdversary(turned, 1)
    one.learn(policy, labels(chain, outputs))
    other.learn(renamed, labels(chain, outputs))
    assert other.chain.initial == pytest.approx(one.chain.initial[order], abs=1e-12)
    assert other.chain.transitions == pytest.approx(one.chain.transitions[:, order][:, :, order], abs=1e-9)


@dataclass(frozen=True)
class Renamed:
    """A policy over the same contexts in another order."""

    policy: Policy
    chain: MarkovChain
    order: Any

    def begin(self) -> Any:
        return self.policy.begin()

    def suppression(self, t: int, memory: Any) -> Any:
        return self.policy.suppression(t, memory)[self.order]

    def advance(self, t: int, memory: Any, index: int, released: bool) -> Any:
        return self.policy.advance(t, memory, int(self.order[index]), released)


# Days off the model


def test_a_day_that_cannot_be_teaches_nothing_and_is_counted() -> None:
    """From x nobody gets to y."""
    adversary = LearningAdversary(ERRAND, 2)
    assert adversary.learn(vector(ERRAND, np.zeros((2, 3))), ["x", "y"]) is None
    assert adversary.learn(vector(ERRAND, np.zeros((2, 3))), ["x", None]) is None  # all is released, so no gap comes
    assert (adversary.days, adversary.ignored) == (0, 2)
    assert adversary.chain is ERRAND


def test_a_day_off_the_model_has_no_gain_and_the_next_goes_on() -> None:
    """It is reported as such; what follows is learned as if it had not been."""
    check = partial(hybrid, sensitive={"s"}, delta=0.2)
    chain = MarkovChain(["s", "x", "y"], [0.0, 1.0, 0.0], [[[0, 1, 0], [0, 1, 0], [0, 1, 0]]])
    odd, plain = daily(LearningAdversary(chain, 1), check, [["x", "y"], ["x", "x"]], seeded(1))
    assert (odd.gain, odd.beliefs) == (None, None)
    assert odd.outputs == ("x", None)
    assert plain.outputs == ("x", "x")
    assert plain.gain is not None
    assert plain.gain.day == "day 2"


def test_what_no_path_reaches_keeps_its_row() -> None:
    """Nothing is ever learned about it."""
    rows = [[[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.1, 0.2, 0.7]]]
    adversary = LearningAdversary(MarkovChain(["s", "x", "y"], [0.5, 0.5, 0.0], rows), 1)
    adversary.learn(vector(adversary.chain, np.zeros((2, 3))), ["x", "s"])
    assert adversary.chain.transitions[0, 2].tolist() == rows[0][2]


# Kept as text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "reticent-chain"}, "not a learning adversary"),
        ({"version": 2}, "format version 2: this program reads 1"),
        ({"first": [1.0]}, "damaged"),
        ({"first": [-1.0, 1.0]}, "damaged: a count must be"),
        ({"moves": [[["x"]]]}, "damaged"),
        ({"strength": "much"}, "damaged: strength"),
        ({"strength": 0}, "damaged: strength"),
        ({"chain": {}}, "not a chain"),
        ({"days": None}, "damaged"),
    ],
)
def test_damaged_text_is_refused(change: dict[str, Any], sentence: str) -> None:
    """With one sentence."""
    with pytest.raises(FileError, match=sentence):
        LearningAdversary.from_json(LearningAdversary(LINKED, 1).to_json() | change)
    with pytest.raises(FileError, match="not a learning adversary"):
        LearningAdversary.from_json(None)


@pytest.mark.parametrize("strength", [0, -1, math.nan, math.inf, "28", None])
def test_strength_is_a_number_of_days(strength: Any) -> None:
    with pytest.raises(ValueError, match="strength must be a number of days above 0"):
        LearningAdversary(LINKED, strength)


def test_only_whole_days_are_learned_from() -> None:
    adversary = LearningAdversary(LINKED, 1)
    with pytest.raises(ValueError, match="a day has 2 steps: got 1 outputs"):
        adversary.learn(hybrid(LINKED, sensitive={"s"}, delta=0.1), [None])
    with pytest.raises(ValueError, match="unknown context 'gym'"):
        adversary.learn(hybrid(LINKED, sensitive={"s"}, delta=0.1), [None, "gym"])
    with pytest.raises(ValueError, match="other contexts or another horizon"):
        adversary.learn(hybrid(TRIPLE, sensitive={"s"}, delta=0.1), [None, None])
    assert (adversary.days, adversary.ignored) == (0, 0)


def many_nodes(chain: MarkovChain, per_step: int) -> Automaton:
    """An automaton that scatters over many nodes at each step, as an optimal policy with many sensitive states does."""
    n, count = chain.size, chain.horizon * per_step
    step, place = np.divmod(np.arange(count), per_step)
    onward = np.where(step[:, None] + 1 < chain.horizon, (step[:, None] + 1) * per_step, -1)
    onward = np.where(onward >= 0, onward + (place[:, None] * 7 + np.arange(n)) % per_step, -1)
    roots = np.tile(np.arange(chain.horizon + 1)[:, None] * per_step, (1, n))
    roots[-1] = -1
    rows = seeded(1, "rows").uniform(0.2, 0.9, size=(count, n))
    origin = Provenance("by hand", chain, np.full((chain.horizon, n), 0.5), (), 0.0)
    return Automaton(origin, rows, onward.astype(np.int32), roots.astype(np.int32))


def test_a_day_of_thousands_of_nodes_is_learned() -> None:
    """The counts are whole however many memories the policy may have."""
    rows = seeded(1, "dense").dirichlet(np.ones(11), size=(24, 11))
    chain = MarkovChain([f"place {i}" for i in range(11)], rows[0, 0], rows[1:])
    adversary = LearningAdversary(chain, 28)
    adversary.learn(many_nodes(chain, 300), [None] * 24)
    assert totals(adversary) == pytest.approx([1.0] * 24, abs=1e-9)
