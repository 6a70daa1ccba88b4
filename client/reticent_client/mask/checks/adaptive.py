"""The adaptive check: the last release and the current context decide together."""

from __future__ import annotations

from collections.abc import Sequence

from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.limits import Deadline, rounds_of
from reticent_client.mask.planning.adaptation import plan_windows
from reticent_client.mask.planning.automata import build
from reticent_client.mask.planning.vectors import thorough_vector
from reticent_client.mask.policy import Policy
from reticent_client.mask.problem import Problem, Sensitive, Weights
from reticent_client.mask.provenance import Provenance


def adaptive(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    effort: int = 1,
    time_limit: float | None = None,
    against: Sequence[MarkovChain] | None = None,
    weights: Weights | None = None,
) -> Policy:
    """Decide by the last release and the current context together; never worse than `hybrid` on any chain."""
    rounds, deadline = rounds_of(effort), Deadline(time_limit)
    problem = Problem.of(chain, sensitive, delta, against, weights)
    plan = plan_windows(problem, thorough_vector(problem, rounds, deadline), rounds=rounds, deadline=deadline)
    return build(Provenance.of(problem, "adaptive", plan.value, complete=not deadline.expired), plan.nodes)
