"""The simulatable check: the last release alone decides when to release next."""

from __future__ import annotations

from collections.abc import Sequence

from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.planning.release_times import Strategy, release_times
from reticent_client.mask.policy import ReleaseTimes
from reticent_client.mask.problem import Problem, Sensitive, Weights
from reticent_client.mask.provenance import Provenance


def simulatable(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    plan: Strategy = "greedy",
    against: Sequence[MarkovChain] | None = None,
    weights: Weights | None = None,
) -> ReleaseTimes:
    """Decide by the last release alone, so that the decision itself reveals nothing (section 3.5).

    `plan="greedy"` releases at the first safe step, as published. `plan="best"` chooses the safe steps that release
    most.
    """
    if plan not in ("greedy", "best"):
        raise ValueError(f'plan must be "greedy" or "best": got {plan!r}')
    problem = Problem.of(chain, sensitive, delta, against, weights)
    times, utility = release_times(problem, plan)
    return ReleaseTimes(Provenance.of(problem, "simulatable", utility), times)
