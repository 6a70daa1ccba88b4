"""What the phone makes of a policy is what other adversaries see.

A phone suppresses what the user's own chain rules out since the last release. Users who follow their
chain never notice, but somebody who believes in another chain thinks that it happens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_client import MarkovChain, Policy
from tests.client.checks import QUICK
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, Problem

checks = pytest.mark.parametrize("check", QUICK)

Memory = tuple[Any, tuple[bool, ...]]


@dataclass(frozen=True)
class AsRun:
    """A policy as `MaskIt` runs it: its memory, and the contexts that are possible."""

    policy: Policy

    def begin(self) -> Memory:
        """Before the first step."""
        return self.policy.begin(), tuple((self.policy.chain.initial > 0).tolist())

    def suppression(self, step: int, memory: Memory) -> oracle.Array:
        """The policy's, and all of what is impossible."""
        inner, possible = memory
        return np.where(possible, self.policy.suppression(step, inner), 1.0)

    def advance(self, step: int, memory: Memory, index: int, released: bool) -> Memory:
        """After a release its context is all that is possible."""
        inner, possible = memory
        here = np.arange(len(possible)) == index if released else np.array(possible)
        if step + 1 < self.policy.horizon:
            here = (self.policy.chain.transitions[step][here] > 0).any(axis=0)
        return self.policy.advance(step, inner, index, released), tuple(here.tolist())


def worst_excess(policy: Policy, other: MarkovChain, limits: Sequence[oracle.Limit]) -> float:
    """How far a belief of the other chain rises above its limit, after what can come of the user's own."""
    run = AsRun(policy)
    occurring = oracle.joint(run, policy.chain).keys()
    prior = oracle.priors(other)
    return max(
        (
            float(belief[t, s] - prior[t, s]) - delta
            for output, belief in oracle.beliefs(run, other).items()
            if output in occurring
            for t, s, delta in limits
        ),
        default=-1.0,
    )


@checks
@FAST
@given(data=st.data())
def test_private_against_who_believes_in_another_chain(check: Callable[..., Policy], data: st.DataObject) -> None:
    """The user's chain rules out much, the other's little."""
    problem = data.draw(chains.problems(shapes=[(3, 3), (4, 3), (5, 2)], flavours=["sparse"]))
    shape = (problem.chain.horizon, problem.chain.size)
    other = data.draw(chains.chains(shapes=[shape], flavours=["even", "sparse"]))
    policy = check(problem.chain, against=[other], **problem.arguments)
    assert worst_excess(policy, other, problem.limits) <= oracle.TOLERANCE


@checks
def test_a_chain_that_rules_out_what_the_other_expects(check: Callable[..., Policy]) -> None:
    """Counting on a release that the phone never makes would exceed the limit by .09."""
    own = MarkovChain(
        ["a", "b", "s"],
        [2 / 7, 3 / 7, 2 / 7],
        [
            [[3 / 11, 5 / 11, 3 / 11], [0.0, 1 / 2, 1 / 2], [1 / 2, 0.0, 1 / 2]],
            [[0.0, 1.0, 0.0], [1 / 2, 0.0, 1 / 2], [0.0, 0.0, 1.0]],
            [[0.0, 0.0, 1.0], [3 / 8, 3 / 8, 1 / 4], [1 / 11, 5 / 11, 5 / 11]],
        ],
    )
    other = MarkovChain(
        ["a", "b", "s"],
        [1 / 3, 1 / 3, 1 / 3],
        [
            [[1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3], [1 / 4, 1 / 2, 1 / 4]],
            [[1 / 3, 1 / 6, 1 / 2], [1 / 4, 1 / 2, 1 / 4], [1 / 9, 1 / 3, 5 / 9]],
            [[3 / 5, 1 / 5, 1 / 5], [1 / 3, 1 / 3, 1 / 3], [5 / 7, 1 / 7, 1 / 7]],
        ],
    )
    problem = Problem(own, {"s": 0.38257610510440065}, None)
    policy = check(own, against=[other], **problem.arguments)
    assert worst_excess(policy, other, problem.limits) <= oracle.TOLERANCE
