"""Utility is about contexts: gaps count nothing, and each context what it is worth to the user."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_client import MarkovChain, Policy, adaptive, ceiling, hybrid, mask_sensitive, optimal
from reticent_client.mask.occupancy import release_probabilities
from reticent_client.mask.problem import STEPS_COUNT
from tests.client.checks import PRIVATE, QUICK
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, Problem

GAPS = MarkovChain.fit([["s", None, "x"], ["x", None, None], ["x", "x", "x"], [None, "x", "x"]])


@pytest.mark.parametrize("check", QUICK)
@FAST
@given(problem=chains.problems(), data=st.data())
def test_utility_is_the_weight_of_what_is_released(
    check: Callable[..., Policy], problem: Problem, data: st.DataObject
) -> None:
    """Under any weights a policy is private, and its utility is exact."""
    weights = {label: data.draw(st.sampled_from([0, 0.2, 1])) for label in problem.chain.contexts}
    policy = check(problem.chain, **problem.arguments, weights=weights)
    assert policy.weights == weights
    row = list(weights.values())
    assert policy.utility == pytest.approx(float((release_probabilities(policy) @ row).sum()), abs=1e-7)
    assert policy.readings == pytest.approx(float((problem.chain.prior @ row).sum()))
    assert oracle.worst_excess(policy, problem.chain, problem.limits) <= 1e-9
    assert policy.utility <= ceiling(problem.chain, **problem.arguments, weights=weights) + 1e-6


@FAST
@given(problem=chains.problems(), data=st.data())
def test_the_optimum_is_of_what_the_user_cares_for(problem: Problem, data: st.DataObject) -> None:
    """No policy that was made for other weights is worth more."""
    weights = {label: data.draw(st.sampled_from([0, 0.2, 1])) for label in problem.chain.contexts}
    best = optimal(problem.chain, **problem.arguments, weights=weights)
    for other in (optimal, adaptive, hybrid):
        released = release_probabilities(other(problem.chain, **problem.arguments))
        assert float((released @ list(weights.values())).sum()) <= best.utility + 1e-6


@pytest.mark.parametrize("check", PRIVATE)
def test_gaps_are_no_contexts(check: Callable[..., Policy]) -> None:
    policy = check(GAPS, sensitive={"s"}, delta=0.3)
    released = release_probabilities(policy)
    gap = GAPS.index("unknown")
    assert policy.weights == {"s": 1, "x": 1, "unknown": 0}
    assert policy.utility == pytest.approx(released.sum() - released[:, gap].sum())
    assert policy.readings == pytest.approx(2.0)
    counted = check(GAPS, sensitive={"s"}, delta=0.3, weights=STEPS_COUNT)
    assert counted.utility == pytest.approx(release_probabilities(counted).sum())
    assert counted.readings == pytest.approx(3.0)


def test_the_published_measure_is_for_chains_without_gaps_too() -> None:
    chain = chains.two_paths()
    policy = adaptive(chain, sensitive={"s"}, delta=0.1, weights=STEPS_COUNT)
    assert policy.fingerprint() == adaptive(chain, sensitive={"s"}, delta=0.1).fingerprint()


def test_weights_are_kept_in_the_file(tmp_path: Path) -> None:
    policy = mask_sensitive(GAPS, sensitive={"s"}, weights={"x": 0.25})
    policy.save(tmp_path / "p.npz")
    loaded = Policy.load(tmp_path / "p.npz")
    assert loaded.weights == {"s": 1, "x": 0.25, "unknown": 0}
    assert loaded.readings == policy.readings
    assert loaded.fingerprint() != mask_sensitive(GAPS, sensitive={"s"}).fingerprint()


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), "1"])
def test_a_weight_lies_between_0_and_1(weight: float) -> None:
    with pytest.raises(ValueError, match="the weight of 'x' must lie between 0 and 1: got"):
        hybrid(GAPS, sensitive={"s"}, delta=0.1, weights={"x": weight})
