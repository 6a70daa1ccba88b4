"""Chains with days that hardly ever happen: long ones, faint ones, smoothed ones."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.chains import learned
from reticent.randomness import seeded
from reticent_client import (
    TOLERANCE,
    Adversary,
    ImpossibleOutput,
    MarkovChain,
    Policy,
    adaptive,
    hybrid,
    optimal,
    probabilistic,
)
from tests.client.checks import PRIVATE

Check = Callable[..., Policy]
SLOW = pytest.mark.slow
CHECKS = pytest.mark.parametrize("check", PRIVATE)


def lingering(horizon: int, chance: float) -> MarkovChain:
    """From s or d one goes to d with a small chance, step after step, and from anywhere to m."""
    step = np.array([[0, 0, 0, 1], [0, 0, chance, 1 - chance], [0, 0, chance, 1 - chance], [0, 0, 0, 1]])
    return MarkovChain(["a", "s", "d", "m"], [0.6, 0.4, 0, 0], np.tile(step, (horizon - 1, 1, 1)))


def rise_in_silence(policy: Policy, step: int, context: str) -> float:
    """How far the belief in a state rises when nothing is released all day; nothing where that cannot happen."""
    adversary = Adversary(policy)
    index = policy.index(context)
    try:
        belief = adversary.beliefs([None] * policy.horizon)[step, index]
    except ImpossibleOutput:
        return 0.0
    return float(belief - adversary.prior[step, index])


@CHECKS
@pytest.mark.parametrize(("horizon", "chance"), [pytest.param(96, 1e-4, marks=SLOW), (48, 1e-7), (12, 1e-30)])
def test_silence_too_faint_for_float64_tells_no_more_than_delta(check: Check, horizon: int, chance: float) -> None:
    """A day of silence of probability 1e-380 can occur, and then whoever starts in s has lingered."""
    policy = check(lingering(horizon, chance), sensitive={(0, "s"): 0.1})
    assert rise_in_silence(policy, 0, "s") <= 0.1 + TOLERANCE


@CHECKS
@pytest.mark.parametrize("chance", [1e-280, 1e-291, 1e-308, 5e-324])
def test_a_chance_at_the_edge_of_float64_is_not_lost(check: Check, chance: float) -> None:
    """What would be suppressed with such a chance is suppressed, and its belief is bounded or it cannot occur."""
    first = np.array([[0, 0, 0, 1], [0, 0, chance, 1], [0, 0, 1, 0], [0, 0, 0, 1]])
    chain = MarkovChain(["a", "s", "z", "j"], [0.6, 0.4, 0, 0], np.stack([first, np.full((4, 4), 0.25)]))
    policy = check(chain, sensitive={(0, "s"): 0.1})
    assert rise_in_silence(policy, 0, "s") <= 0.1 + TOLERANCE


@SLOW
def test_the_optimal_check_makes_use_of_long_faint_days() -> None:
    """That some lingering is too faint to be judged does not keep the likely days from being released."""
    assert optimal(lingering(96, 1e-4), sensitive={(0, "s"): 0.1}).utility == pytest.approx(95.2, abs=0.01)


@SLOW
@pytest.mark.parametrize(("smoothing", "place"), [(1e-2, 2), (1e-4, 1), (1e-6, 2)])
def test_smoothing_does_not_keep_the_optimal_check_from_its_ceiling(smoothing: float, place: int) -> None:
    """Smoothed chains hold moves of 1e-8, and a solver that neglects such masses has to be led to where they matter."""
    rng = seeded(1, "smoothed")
    habits = learned(8, 5, 30, 1)
    days = [habits.sample(rng) for _ in range(30)]
    chain = MarkovChain.fit(days, contexts=habits.contexts, smoothing=smoothing)
    policy = optimal(chain, sensitive={chain.contexts[place]}, delta=0.1)
    assert policy.ceiling is not None
    assert policy.utility >= policy.ceiling - 1e-4
    assert policy.utility <= policy.ceiling


def test_adaptive_is_no_worse_than_hybrid_where_an_adversary_rules_a_release_out() -> None:
    """What others think impossible after a release may be released then, and what follows it is worth something."""
    half = np.full((3, 2, 2), 0.5)
    elsewhere = half.copy()
    elsewhere[0, 0] = [1, 0]
    own = MarkovChain(["a", "s"], [0.5, 0.5], half)
    other = MarkovChain(["a", "s"], [0.5, 0.5], elsewhere)
    sensitive = {(1, "s"): 0.5}
    assert hybrid(own, sensitive=sensitive, against=[other]).utility == pytest.approx(3.5)
    assert adaptive(own, sensitive=sensitive, against=[other]).utility >= 3.5


@SLOW
def test_no_weight_overflows_where_silence_is_rare_for_most() -> None:
    """Most of the prior is released at every step; who is in s stays there, in silence, all day."""
    stay = np.array([[1 - 1e-9, 1e-9], [0, 1]])
    chain = MarkovChain(["x", "s"], [1 - 1e-9, 1e-9], [stay] * 95)
    for policy in (probabilistic(chain, sensitive={"s"}, delta=0.1), adaptive(chain, sensitive={"s"}, delta=0.1)):
        assert rise_in_silence(policy, 95, "s") <= 0.1 + TOLERANCE
