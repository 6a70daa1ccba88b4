"""The oracle is tested itself: it knows small answers by hand, and catches what it must."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reticent_client import MarkovChain
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, SLOW

# Two tosses of example 2's coin, a day of two steps that know nothing of each other.
TWO_COINS = chains.layered(chains.uniform("s", "x"), {"s": chains.uniform("s", "x"), "x": chains.uniform("s", "x")})
TIGHT = oracle.Vector(np.array([[1.0, 1 / 3], [1.0, 1 / 3]]))
LIMITS = oracle.limits(TWO_COINS, {"s"}, 1 / 4)


@dataclass(frozen=True)
class Echo:
    """Releases the first step, and the second only if it differs from the first."""

    def begin(self) -> int | None:
        """No context was seen."""
        return None

    def suppression(self, step: int, memory: int | None) -> oracle.Array:
        """One for the context that is remembered."""
        del step
        return np.array([float(memory == i) for i in range(2)])

    def advance(self, step: int, memory: int | None, index: int, released: bool) -> int:
        """Remember the context."""
        del step, memory, released
        return index


def masked(chain: MarkovChain, *labels: str) -> oracle.Vector:
    """The mask that suppresses the labels and nothing else."""
    row = [float(label in labels) for label in chain.contexts]
    return oracle.Vector(np.tile(row, (chain.horizon, 1)))


def test_days_and_their_probabilities() -> None:
    """Days of probability zero do not occur, the others are products along their edges."""
    assert oracle.days(chains.two_paths()) == pytest.approx(
        {(0, 2, 5): 0.45, (0, 3, 6): 0.45, (1, 2, 5): 0.02, (1, 4, 5): 0.08}
    )


def test_priors() -> None:
    """The prior of a context is the mass of the days that pass through it."""
    prior = oracle.priors(chains.two_paths())
    assert prior[1] == pytest.approx([0, 0, 0.47, 0.45, 0.08, 0, 0])
    assert prior[2] == pytest.approx([0, 0, 0, 0, 0, 0.55, 0.45])


def test_limits_of_labels_states_and_mappings() -> None:
    """A label stands for all its steps, a state for itself, a mapping brings its own deltas."""
    assert oracle.limits(TWO_COINS, {"s"}, 0.1) == [(0, 0, 0.1), (1, 0, 0.1)]
    assert oracle.limits(TWO_COINS, {(1, "x")}, 0.1) == [(1, 1, 0.1)]
    assert oracle.limits(TWO_COINS, {"s": 0.2, (0, "x"): 0.3}) == [
        (0, 0, 0.2),
        (1, 0, 0.2),
        (0, 1, 0.3),
    ]


def test_joint_of_a_policy_with_a_memory() -> None:
    """Every pair of a day and its output has its probability; a memory is followed."""
    assert oracle.joint(Echo(), TWO_COINS) == {
        (0, None): {(0, 0): 0.25},
        (0, 1): {(0, 1): 0.25},
        (1, None): {(1, 1): 0.25},
        (1, 0): {(1, 0): 0.25},
    }
    assert oracle.utility(Echo(), TWO_COINS) == 1.5


def test_joint_of_coins() -> None:
    """A suppression by chance splits the day's mass."""
    found = oracle.joint(TIGHT, chains.coin())
    assert set(found) == {(None,), (1,)}
    assert found[None,] == pytest.approx({(0,): 1 / 2, (1,): 1 / 6})
    assert found[1,] == pytest.approx({(1,): 1 / 3})
    assert oracle.utility(TIGHT, chains.coin()) == pytest.approx(1 / 3)
    assert oracle.utility(TIGHT, TWO_COINS) == pytest.approx(2 / 3)


def test_beliefs_of_outputs_and_of_their_beginnings() -> None:
    """What follows a suppressed step changes what it is believed to have been."""
    chain = chains.two_paths()
    after = oracle.beliefs(masked(chain, "s"), chain)
    assert after[0, None, 5][1, 2] == 1.0
    before = oracle.prefix_beliefs(masked(chain, "s"), chain)
    assert before[()] == pytest.approx(oracle.priors(chain))
    assert before[0,][1, 2] == pytest.approx(0.5)
    assert before[1,][1, 2] == pytest.approx(0.2)
    silent = oracle.Vector(np.ones((chain.horizon, len(chain.contexts))))
    assert oracle.beliefs(silent, chain)[None, None, None] == pytest.approx(oracle.priors(chain))


def test_belief_in_some_step() -> None:
    """Steps do not exclude each other: two tosses show s somewhere in three of four days."""
    silent = oracle.Vector(np.ones((2, 2)))
    assert oracle.some(silent, TWO_COINS, 0, [0, 1])[None, None] == 0.75
    assert oracle.some(silent, TWO_COINS, 0, [1])[None, None] == 0.5


def test_a_tight_vector_is_private() -> None:
    """Example 2's vector meets its limit exactly, on one toss and on two."""
    assert oracle.worst_excess(TIGHT, TWO_COINS, LIMITS) == pytest.approx(0.0, abs=1e-15)
    assert oracle.worst_gain(TIGHT, TWO_COINS, LIMITS) == pytest.approx(1 / 4)


@pytest.mark.parametrize(("step", "index"), list(itertools.product(range(2), range(2))))
def test_one_suppression_lowered_by_a_hundredth_is_caught(step: int, index: int) -> None:
    """Whichever suppression it is."""
    lowered = TIGHT.lowered(step, index, 0.99)
    assert oracle.worst_excess(lowered, TWO_COINS, LIMITS) > 1e-4


def test_masking_the_sensitive_context_alone_is_caught() -> None:
    """A silent step is then the sensitive one, with certainty."""
    chain = chains.phone_call()
    limits = oracle.limits(chain, {"phone call"}, 1 / 6)
    excess = oracle.worst_excess(masked(chain, "phone call"), chain, limits)
    assert excess == pytest.approx(1 / 2 - 1 / 6)
    three = masked(chain, "phone call", "meeting", "coffee break")
    assert oracle.worst_excess(three, chain, limits) == pytest.approx(0.0, abs=1e-15)


def test_another_adversary_learns_other_things() -> None:
    """An adversary who expects s nine times in ten gains less from silence, and never 1/4."""
    other = MarkovChain(["s", "x"], np.array([0.9, 0.1]), np.zeros((0, 2, 2)))
    limits = oracle.limits(other, {"s"}, 1 / 4)
    silence = 0.9 / (0.9 + 0.1 / 3)
    assert oracle.worst_gain(TIGHT, other, limits) == pytest.approx(silence - 0.9)


def test_an_output_that_is_impossible_constrains_nothing() -> None:
    """An adversary who is certain of x has no belief after s."""
    certain = MarkovChain(["s", "x"], np.array([0.0, 1.0]), np.zeros((0, 2, 2)))
    open_book = oracle.Vector(np.zeros((1, 2)))
    assert set(oracle.beliefs(open_book, certain)) == {(1,)}
    assert oracle.worst_gain(open_book, certain, oracle.limits(certain, {"s"}, 0.1)) == 0.0


def test_each_limit_has_its_own_delta() -> None:
    """What is private for one delta is not for a smaller one."""
    bounds = oracle.limits(chains.coin(), {"s": 1 / 4, "x": 0.1})
    assert oracle.worst_excess(TIGHT, chains.coin(), bounds[:1]) == pytest.approx(0, abs=1e-15)
    assert oracle.worst_excess(TIGHT, chains.coin(), bounds) == pytest.approx(0.5 - 0.1)


def test_algorithm_4_on_example_5() -> None:
    """The literal algorithm puts out the eight listed sequences, 8/3 releases in the mean."""
    chain = chains.three_roads()
    policy = oracle.Algorithm4(chain, oracle.limits(chain, {"s1", "s2"}, 1 / 3))
    names = {
        " ".join("-" if i is None else chain.contexts[i] for i in output) for output in oracle.joint(policy, chain)
    }
    assert names == {
        *("w1 x1 - -", "w2 x1 - -", "w5 x3 - -", "w6 x3 - -"),
        *("w3 x2 y2 z1", "w3 x2 y2 z2", "w4 x2 y2 z1", "w4 x2 y2 z2"),
    }
    assert oracle.utility(policy, chain) == pytest.approx(8 / 3)
    assert oracle.worst_gain(policy, chain, policy.bounds) == pytest.approx(1 / 3)


def test_algorithm_4_releases_too_early() -> None:
    """On the chain that rewards patience it releases four and a half of eight."""
    chain = chains.patient()
    policy = oracle.Algorithm4(chain, oracle.limits(chain, {"s"}, 1 / 4))
    assert oracle.utility(policy, chain) == pytest.approx(4.5)


def test_decisions_of_a_policy_with_a_memory() -> None:
    """Each output so far and each context that may follow has its suppression."""
    assert oracle.decisions(Echo(), TWO_COINS) == {
        ((), 0): {0.0},
        ((), 1): {0.0},
        ((0,), 0): {1.0},
        ((0,), 1): {0.0},
        ((1,), 0): {0.0},
        ((1,), 1): {1.0},
    }


@pytest.mark.parametrize(("parts", "best"), [(1, 0.0), (2, 1 / 4), (3, 1 / 3), (4, 1 / 4)])
def test_the_grid_on_a_coin(parts: int, best: float) -> None:
    """The smallest multiple of 1/parts that is not below 1/3 is the suppression of x."""
    chain = chains.coin()
    limits = oracle.limits(chain, {"s"}, 1 / 4)
    assert oracle.grid_optimum(chain, limits, parts, oracle.TOLERANCE) == pytest.approx(best)


def test_the_program_knows_small_answers() -> None:
    """A coin gives 1/3 at delta 1/4, two give twice that, four ways one half."""
    coin, four = chains.coin(), chains.four_ways()
    program = oracle.causal_optimum
    assert program(coin, oracle.limits(coin, {"s"}, 1 / 4)) == pytest.approx(1 / 3)
    assert program(TWO_COINS, LIMITS) == pytest.approx(2 / 3)
    assert program(four, oracle.limits(four, {"s1", "s2"}, 1 / 4)) == pytest.approx(1 / 2)


def test_the_program_releases_all_where_nothing_is_at_stake() -> None:
    """A sensitive state that is almost certain anyway, or never occurs, costs nothing."""
    chain = chains.two_paths()
    assert oracle.causal_optimum(chain, oracle.limits(chain, {"s"}, 0.6)) == pytest.approx(3.0)
    assert oracle.causal_optimum(chain, oracle.limits(chain, {(0, "s")}, 0.01)) == pytest.approx(3)


def test_the_program_does_not_see_the_future() -> None:
    """A release of b alone would make s too likely, whatever comes next: b is never released.

    By hand: a mass m of x is told at both steps, and a silent day may be s with belief .35, so
    that .25 / .35 of the mass is silent and m is at most 2/7; what is left of x is told at step 1.
    Whoever knew at step 0 what comes next could also release b, mostly before z.
    """
    chain = chains.layered(chains.uniform("b", "x"), {"b": chains.uniform("s", "z")})
    limits = oracle.limits(chain, {"s"}, 0.1)
    assert oracle.causal_optimum(chain, limits) == pytest.approx(4 / 7)


@FAST
@given(data=st.data())
def test_the_program_bounds_every_private_vector(data: st.DataObject) -> None:
    """No vector that the oracle finds private releases more than the program says."""
    bounded_by_the_program(data)


@pytest.mark.slow
@SLOW
@given(data=st.data())
def test_the_program_bounds_many_private_vectors(data: st.DataObject) -> None:
    """The same on many chains."""
    bounded_by_the_program(data)


def bounded_by_the_program(data: st.DataObject) -> None:
    """Draw a vector of zeros, halves and ones; keep it if it is private."""
    problem = data.draw(chains.problems(chains.PROGRAM, chains.MODERATE))
    shape = (problem.chain.horizon, len(problem.chain.contexts))
    size = shape[0] * shape[1]
    values = st.lists(st.sampled_from([1.0, 1.0, 0.5, 0.0]), min_size=size, max_size=size)
    vector = oracle.Vector(np.array(data.draw(values)).reshape(shape))
    assume(oracle.worst_excess(vector, problem.chain, problem.limits) <= 0)
    best = oracle.causal_optimum(problem.chain, problem.limits)
    assert oracle.utility(vector, problem.chain) <= best + 1e-7
