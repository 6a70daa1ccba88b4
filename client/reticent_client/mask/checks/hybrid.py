"""The hybrid check: the better of the simulatable and the probabilistic one."""

from __future__ import annotations

from collections.abc import Sequence

from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.limits import Deadline, rounds_of
from reticent_client.mask.planning.release_times import release_times
from reticent_client.mask.planning.vectors import thorough_vector, vector_utility
from reticent_client.mask.policy import Policy, ReleaseTimes, VectorPolicy
from reticent_client.mask.problem import Problem, Sensitive, Weights
from reticent_client.mask.provenance import Provenance


def hybrid(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    effort: int = 1,
    time_limit: float | None = None,
    against: Sequence[MarkovChain] | None = None,
    weights: Weights | None = None,
) -> Policy:
    """Choose the better of simulatable and probabilistic for this user, by their exact utilities (section 3.6)."""
    rounds, deadline = rounds_of(effort), Deadline(time_limit)
    problem = Problem.of(chain, sensitive, delta, against, weights)
    table = thorough_vector(problem, rounds, deadline)
    times, simulatable_utility = release_times(problem, "greedy")
    utility = vector_utility(problem, table)
    complete = not deadline.expired
    if utility > simulatable_utility:
        return VectorPolicy(Provenance.of(problem, "hybrid", utility, complete=complete), table)
    return ReleaseTimes(Provenance.of(problem, "hybrid", simulatable_utility, complete=complete), times)
