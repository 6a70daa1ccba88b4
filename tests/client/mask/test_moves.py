"""What an adversary believes of two steps in a row, against enumeration."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_client import (
    Adversary,
    ImpossibleOutput,
    MarkovChain,
    Policy,
    adaptive,
)
from tests.client.habits.histories import ERRAND, checks, labels, vector
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, Problem


def pairs_by_enumeration(policy: Policy, chain: MarkovChain) -> dict[oracle.Output, oracle.Array]:
    """After every output and every beginning of one: the probability of each move at each step."""
    behind: dict[oracle.Output, dict[oracle.Day, float]] = {}
    for output, masses in oracle.joint(policy, chain).items():
        for length in range(chain.horizon + 1):
            collected = behind.setdefault(output[:length], {})
            for day, mass in masses.items():
                collected[day] = collected.get(day, 0.0) + mass
    found = {}
    for output, masses in behind.items():
        moves = np.zeros((chain.horizon - 1, chain.size, chain.size))
        for day, mass in masses.items():
            for t, (i, j) in enumerate(pairwise(day)):
                moves[t, i, j] += mass
        found[output] = moves / sum(masses.values())
    return found


def assert_moves_are_exact(policy: Policy, chain: MarkovChain) -> None:
    adversary = Adversary(policy, chain)
    for output, expected in pairs_by_enumeration(policy, chain).items():
        moves = adversary.moves(labels(chain, output))
        assert moves == pytest.approx(expected, abs=1e-9), labels(chain, output)
        beliefs = adversary.beliefs(labels(chain, output))
        assert moves.sum(axis=2) == pytest.approx(beliefs[:-1], abs=1e-9)
        assert moves.sum(axis=1) == pytest.approx(beliefs[1:], abs=1e-9)


@checks
@FAST
@given(problem=chains.problems())
def test_moves_are_those_of_the_enumeration(check: Callable[..., Policy], problem: Problem) -> None:
    """After every output and every beginning of one, for policies with and without a memory."""
    assert_moves_are_exact(check(problem.chain, **problem.arguments), problem.chain)


@FAST
@given(problem=chains.problems(), data=st.data())
def test_moves_of_an_adversary_with_another_chain(problem: Problem, data: st.DataObject) -> None:
    """They are those of whoever is certain of it."""
    other = data.draw(chains.beliefs_about(problem.chain))
    assert_moves_are_exact(adaptive(problem.chain, **problem.arguments, against=[other]), other)


def test_moves_of_outputs_that_cannot_be() -> None:
    """They have none."""
    with pytest.raises(ImpossibleOutput, match="step 1"):
        Adversary(vector(ERRAND, np.zeros((2, 3)))).moves(["x", "y"])


def test_moves_after_outputs_too_faint_for_float64() -> None:
    """Silence of probability 1e-380 is an output too, and after it the moves are known all but exactly."""
    step = np.array([[0, 0, 0, 1], [0, 0, 1e-4, 1 - 1e-4], [0, 0, 1e-4, 1 - 1e-4], [0, 0, 0, 1]])
    chain = MarkovChain(["a", "s", "d", "m"], [0.6, 0.4, 0, 0], np.tile(step, (95, 1, 1)))
    table = np.zeros((96, 4))
    table[:, [1, 2]] = 1  # m and a are released at once
    moves = Adversary(vector(chain, table)).moves([None] * 96)
    assert moves[0, 1, 2] == pytest.approx(1.0, abs=1e-12)
    assert moves[1:, 2, 2] == pytest.approx(np.ones(94), abs=1e-12)
