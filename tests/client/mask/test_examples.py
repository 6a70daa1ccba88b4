"""The chapter's examples with their numbers, and the adversary's known answers.

Source: chapter 3 of Goetz's thesis, sections 3.3 to 3.6.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import reticent_client
from reticent_client import (
    Adversary,
    MarkovChain,
    Policy,
    adaptive,
    ceiling,
    hybrid,
    mask_sensitive,
    optimal,
    probabilistic,
    simulatable,
)
from tests.client.checks import PRIVATE
from tests.client.mask import chains, oracle


@dataclass(frozen=True)
class Written:
    """What a policy that is written by hand needs besides its three methods."""

    chain: MarkovChain
    sensitive: frozenset[str]

    @property
    def contexts(self) -> tuple[str, ...]:
        """The labels of the chain."""
        return self.chain.contexts

    @property
    def horizon(self) -> int:
        """The steps of the chain."""
        return self.chain.horizon

    def index(self, label: str) -> int:
        """The place of a label."""
        return self.chain.contexts.index(label)


@dataclass(frozen=True)
class Suppressing(Written):
    """Suppresses the given states, and no others."""

    states: frozenset[tuple[int, str]]

    @cached_property
    def vector(self) -> oracle.Vector:
        """The same as suppression probabilities."""
        probabilities = np.zeros((self.horizon, len(self.contexts)))
        for step, label in self.states:
            probabilities[step, self.index(label)] = 1.0
        return oracle.Vector(probabilities)

    def begin(self) -> None:
        """Nothing is remembered."""

    def suppression(self, step: int, memory: None) -> oracle.Array:
        """One for the given states."""
        return self.vector.suppression(step, memory)

    def advance(self, step: int, memory: None, index: int, released: bool) -> None:
        """Nothing is remembered."""


@dataclass(frozen=True)
class Once(Written):
    """Releases a at step 0, or else j at step 2; suppresses a with the given probability."""

    hesitation: float

    def begin(self) -> bool:
        """Nothing was released."""
        return False

    def suppression(self, step: int, memory: bool) -> oracle.Array:
        """One for everything but a at the start and, after nothing else, j at the end."""
        found = np.ones(len(self.contexts))
        if step == 0:
            found[self.index("a")] = self.hesitation
        if step == 2 and not memory:
            found[self.index("j")] = 0.0
        return found

    def advance(self, step: int, memory: bool, index: int, released: bool) -> bool:
        """Whether anything was released so far."""
        del step, index
        return memory or released


def everywhere(chain: MarkovChain, *labels: str) -> Suppressing:
    """The policy that suppresses the labels at every step."""
    states = frozenset((step, label) for step in range(chain.horizon) for label in labels)
    return Suppressing(chain, frozenset(labels), states)


def released(chain: MarkovChain, policy: oracle.Policy) -> set[tuple[str, ...]]:
    """The outputs that can occur, '-' for a suppressed step."""
    return {tuple("-" if i is None else chain.contexts[i] for i in output) for output in oracle.joint(policy, chain)}


def test_example_1_suppressing_only_the_phone_call_tells_it() -> None:
    """After the mask of the call alone, a coffee break gives the call away with certainty."""
    chain = chains.phone_call()
    policy = mask_sensitive(chain, sensitive={"phone call"})
    beliefs = Adversary(policy).beliefs([None, "coffee break"])
    assert beliefs[0, policy.index("phone call")] == pytest.approx(1.0)
    limits = oracle.limits(chain, {"phone call"}, 0.0)
    assert oracle.worst_gain(policy, chain, limits) == pytest.approx(1 / 2)


def test_example_1_suppressing_three_contexts_gains_a_sixth() -> None:
    """The prior of the call is 1/2, and after suppressing what surrounds it the belief is 2/3."""
    chain = chains.phone_call()
    policy = everywhere(chain, "phone call", "meeting", "coffee break")
    call = policy.index("phone call")
    assert chain.prior[0, call] == pytest.approx(1 / 2)
    adversary = Adversary(policy)
    assert adversary.beliefs([None, None])[0, call] == pytest.approx(2 / 3)
    assert adversary.beliefs([None, "email"])[0, call] == 0.0
    limits = oracle.limits(chain, {"phone call"}, 0.0)
    assert oracle.worst_gain(policy, chain, limits) == pytest.approx(1 / 6)


def test_example_1_the_best_policy_releases_at_least_as_much() -> None:
    """What the example suppresses is private at delta 1/6, so the optimum is not below it."""
    chain = chains.phone_call()
    policy = optimal(chain, sensitive={"phone call"}, delta=1 / 6)
    example = everywhere(chain, "phone call", "meeting", "coffee break")
    assert policy.utility >= oracle.utility(example, chain) - 1e-7


@pytest.mark.parametrize("check", [probabilistic, hybrid, adaptive])
def test_example_2_the_other_context_is_suppressed_a_third_of_the_time(
    check: Callable[..., Policy],
) -> None:
    """At delta 1/4 the sensitive s is always suppressed and x with probability 1/3."""
    chain = chains.coin()
    policy = check(chain, sensitive={"s"}, delta=1 / 4)
    suppression = policy.suppression(0, policy.begin())
    assert suppression == pytest.approx([1.0, 1 / 3], abs=1e-9)
    assert policy.utility == pytest.approx(1 / 3, abs=1e-9)
    assert Adversary(policy).beliefs([None])[0] == pytest.approx([3 / 4, 1 / 4], abs=1e-9)


def test_example_2_nothing_is_better() -> None:
    """The optimum and the ceiling are the third that the example finds."""
    chain = chains.coin()
    assert optimal(chain, sensitive={"s"}, delta=1 / 4).utility == pytest.approx(1 / 3, abs=1e-6)
    assert ceiling(chain, sensitive={"s"}, delta=1 / 4) == pytest.approx(1 / 3, abs=1e-6)


def test_example_4_probabilistic_beats_simulatable() -> None:
    """Looking at the context, only the sensitive ones are suppressed; not looking, all are."""
    chain = chains.four_ways()
    sensitive = {"s1", "s2"}
    blind = simulatable(chain, sensitive=sensitive, delta=1 / 4)
    seeing = probabilistic(chain, sensitive=sensitive, delta=1 / 4)
    assert blind.utility == 0.0
    assert blind.suppression(0, blind.begin()) == pytest.approx(np.ones(4))
    assert seeing.utility == pytest.approx(1 / 2, abs=1e-9)
    assert seeing.suppression(0, seeing.begin()) == pytest.approx([1, 1, 0, 0], abs=1e-9)
    assert Adversary(seeing).beliefs([None])[0] == pytest.approx([0.5, 0.5, 0, 0], abs=1e-9)
    assert hybrid(chain, sensitive=sensitive, delta=1 / 4).utility == seeing.utility


def test_example_5_simulatable_has_eight_outputs() -> None:
    """The outer roads fall silent after their second step, the middle one is told to its end."""
    chain = chains.three_roads()
    policy = simulatable(chain, sensitive={"s1", "s2"}, delta=1 / 3)
    assert released(chain, policy) == {
        ("w1", "x1", "-", "-"),
        ("w2", "x1", "-", "-"),
        ("w3", "x2", "y2", "z1"),
        ("w3", "x2", "y2", "z2"),
        ("w4", "x2", "y2", "z1"),
        ("w4", "x2", "y2", "z2"),
        ("w5", "x3", "-", "-"),
        ("w6", "x3", "-", "-"),
    }


def test_example_5_simulatable_beats_probabilistic() -> None:
    """The outputs so far are worth 8/3 releases, the current context alone at most 7/3."""
    chain = chains.three_roads()
    sensitive = {"s1", "s2"}
    blind = simulatable(chain, sensitive=sensitive, delta=1 / 3)
    seeing = probabilistic(chain, sensitive=sensitive, delta=1 / 3)
    assert blind.utility == pytest.approx(8 / 3, abs=1e-9)
    assert seeing.utility <= 7 / 3 + 1e-9
    assert oracle.worst_excess(seeing, chain, oracle.limits(chain, sensitive, 1 / 3)) <= 1e-9
    assert hybrid(chain, sensitive=sensitive, delta=1 / 3).utility == blind.utility
    assert adaptive(chain, sensitive=sensitive, delta=1 / 3).utility >= blind.utility


@pytest.mark.parametrize(
    ("chances", "delta"),
    [((0.1,), 0.3), ((0.1, 0.1), 0.3), ((1 / 3, 1 / 2, 0.3), 0.3), ((1 / 2,) * 4, 0.01)],
)
def test_independent_steps_have_a_closed_form(chances: tuple[float, ...], delta: float) -> None:
    """At each step silence may be s with belief prior + delta, which fixes the suppression of x."""
    chain = chains.independent(*chances)
    policy = probabilistic(chain, sensitive={"s"}, delta=delta)
    memory = policy.begin()
    for step, prior in enumerate(chances):
        least = prior * (1 - prior - delta) / (prior + delta) / (1 - prior)
        assert policy.suppression(step, memory) == pytest.approx([1.0, least], abs=1e-7)
        memory = policy.advance(step, memory, 0, False)


def test_a_limit_that_reaches_one_binds_nothing() -> None:
    """Where prior + delta is 1 up to rounding, s may be told: the last step is always released."""
    chain = chains.common()
    arguments: dict[str, Any] = {"sensitive": {"s"}, "delta": 1 / 6}
    most = oracle.causal_optimum(chain, oracle.limits(chain, {"s"}, 1 / 6))
    assert simulatable(chain, **arguments).utility == pytest.approx(1.0, abs=1e-9)
    assert simulatable(chain, plan="best", **arguments).utility == pytest.approx(1.0, abs=1e-9)
    assert optimal(chain, **arguments).utility == pytest.approx(most, abs=1e-6)
    assert ceiling(chain, **arguments) >= most - 1e-6


def test_optimal_on_strong_habits() -> None:
    """Transitions of 1e-5 do not keep the optimal check from what any policy can reach."""
    chain = chains.habits()
    policy = optimal(chain, sensitive={"s"}, delta=0.05)
    most = oracle.causal_optimum(chain, oracle.limits(chain, {"s"}, 0.05))
    assert policy.utility == pytest.approx(most, abs=1e-6)


@pytest.mark.parametrize("name", [check.__name__ for check in PRIVATE])
def test_a_check_is_still_a_function_after_it_ran(name: str) -> None:
    """Whatever a check imports when it is first called, its public name stays its own."""
    for _ in range(2):
        check = getattr(reticent_client, name)
        assert check(chains.coin(), sensitive={"s"}, delta=1 / 4).check == name


@pytest.mark.parametrize("delta", [0.01, 0.05])
@pytest.mark.parametrize("check", PRIVATE)
def test_faint_outputs_are_private(check: Callable[..., Policy], delta: float) -> None:
    """An output of mass 1e-11 can occur, and is held to the same tolerance as any other."""
    chain = chains.faint()
    for label in chain.contexts:
        policy = check(chain, sensitive={label}, delta=delta)
        limits = oracle.limits(chain, {label}, delta)
        assert oracle.worst_excess(policy, chain, limits) <= oracle.TOLERANCE


@pytest.mark.parametrize("grid", [1, 2])
def test_a_grid_rounds_no_faint_output_away(grid: int) -> None:
    """A suppression of 1e-11 that privacy needs becomes the next value of the grid, not zero."""
    chain = chains.layered(
        {"x": 1.0, "s": 0.0},
        {"x": {"s": 1e-6, "x": 1 - 1e-6}},
        {"s": {"s": 1e-6, "x": 1 - 1e-6}},
    )
    policy = probabilistic(chain, sensitive={"s"}, delta=0.01, search="exact", grid=grid)
    limits = oracle.limits(chain, {"s"}, 0.01)
    assert oracle.worst_excess(policy, chain, limits) <= oracle.TOLERANCE


def test_waiting_can_be_worth_more_than_releasing_at_once() -> None:
    """Greedy releases a and then mostly falls silent; the best plan waits and releases six."""
    chain = chains.patient()
    greedy = simulatable(chain, sensitive={"s"}, delta=1 / 4)
    best = simulatable(chain, sensitive={"s"}, delta=1 / 4, plan="best")
    assert greedy.utility == pytest.approx(4.5, abs=1e-9)
    assert best.utility == pytest.approx(6.0, abs=1e-9)
    for policy in (greedy, best):
        assert oracle.utility(policy, chain) == pytest.approx(policy.utility, abs=1e-9)
        limits = oracle.limits(chain, {"s"}, 1 / 4)
        assert oracle.worst_excess(policy, chain, limits) <= oracle.TOLERANCE


@pytest.mark.parametrize(
    ("hesitation", "outputs", "belief"),
    [
        (0.0, ["a", None, None], 0.5),
        (0.0, [None, None, "j"], 0.2),
        (0.5, ["a", None, None], 0.5),
        (0.5, [None, None, "j"], 0.245 / 0.325),
        (0.5, [None, None, None], 0.0),
    ],
)
def test_suppressing_more_can_tell_more(hesitation: float, outputs: list[str | None], belief: float) -> None:
    """A policy with a memory gains .03; dropping a release half of the time, it gains .28."""
    chain = chains.two_paths()
    policy = Once(chain, frozenset({"s"}), hesitation)
    s = policy.index("s")
    assert chain.prior[1, s] == pytest.approx(0.47)
    assert Adversary(policy, chain).beliefs(outputs)[1, s] == pytest.approx(belief, abs=1e-12)


@pytest.mark.parametrize(("hesitation", "gain"), [(0.0, 0.03), (0.5, 0.245 / 0.325 - 0.47)])
def test_suppressing_more_can_breach(hesitation: float, gain: float) -> None:
    """The known answers above are the worst over all outputs, on either side of delta .1."""
    chain = chains.two_paths()
    policy = Once(chain, frozenset({"s"}), hesitation)
    limits = oracle.limits(chain, {"s"}, 0.1)
    assert oracle.worst_gain(policy, chain, limits) == pytest.approx(gain, abs=1e-12)


def test_a_window_gains_more_than_its_steps() -> None:
    """No step of the window gains more than .0176, and "s at step 1 or 2" gains .1437."""
    chain = chains.window()
    states = frozenset((step, label) for step in (1, 2) for label in chain.contexts)
    policy = Suppressing(chain, frozenset({"s"}), states)
    limits = oracle.limits(chain, {(1, "s"), (2, "s")}, 0.0)
    assert oracle.worst_gain(policy, chain, limits) == pytest.approx(0.0175949447, abs=1e-9)

    adversary = Adversary(policy, chain)
    prior = sum(p for day, p in oracle.days(chain).items() if 0 in day[1:3])
    found = oracle.some(policy, chain, 0, [1, 2])
    assert max(found.values()) - prior == pytest.approx(0.1437394197, abs=1e-9)
    for output, belief in found.items():
        labels = [None if i is None else chain.contexts[i] for i in output]
        assert adversary.some(labels, "s", [1, 2]) == pytest.approx(belief, abs=1e-12)
