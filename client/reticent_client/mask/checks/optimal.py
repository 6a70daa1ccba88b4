"""The optimal check, and the upper bound on what any private policy can release. Both need scipy, a phone does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reticent.errors import MissingExtra
from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.limits import Deadline, rounds_of
from reticent_client.mask.planning.automata import build
from reticent_client.mask.planning.vectors import thorough_vector
from reticent_client.mask.policy import Policy
from reticent_client.mask.problem import Problem, Sensitive, Weights
from reticent_client.mask.provenance import Provenance

if TYPE_CHECKING:
    from reticent_client.mask.planning.planner import OptimalResult


def optimal(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    effort: int = 1,
    time_limit: float | None = None,
    gap: float = 0.0,
    progress: Callable[[float, float], None] | None = None,
    weights: Weights | None = None,
) -> Policy:
    """Find the best private policy there is or, if the chain is too large for the effort, the best one found.

    `policy.ceiling` is an upper bound for every policy, and `policy.gap` the part of it that the policy may miss;
    `policy.complete` means that it misses at most 1e-6 releases. The search stops as soon as the gap is at most `gap`.
    `progress` is called with the utility and the ceiling so far. An interrupt (ctrl-C) ends the search, which keeps
    what it found. Computing the policy needs scipy (the extra "plan"); running it does not.
    """
    if not 0 <= gap < 1:
        raise ValueError(f"gap must lie in [0, 1): got {gap}")
    problem = Problem.of(chain, sensitive, delta, weights=weights)
    plan = _plan(problem, effort, time_limit, gap=gap, progress=progress)
    origin = Provenance.of(problem, "optimal", plan.value, complete=plan.complete, ceiling=plan.ceiling)
    return build(origin, plan.nodes)


def ceiling(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    effort: int = 1,
    time_limit: float | None = None,
    weights: Weights | None = None,
) -> float:
    """An upper bound on the expected releases of any policy that is private on this chain.

    With `effort=0` it is the expected number of states that may be released at all, which needs no solver.
    """
    problem = Problem.of(chain, sensitive, delta, weights=weights)
    simple = float(problem.gains[problem.releasable].sum())
    if rounds_of(effort) == 0:
        return simple
    return min(simple, _plan(problem, effort, time_limit).ceiling)


def _plan(
    problem: Problem,
    effort: int,
    time_limit: float | None,
    *,
    gap: float = 0.0,
    progress: Callable[[float, float], None] | None = None,
) -> OptimalResult:
    try:
        from reticent_client.mask.planning.planner import Planner  # noqa: PLC0415  # a phone has no scipy: it only runs policies
    except ImportError as error:
        raise MissingExtra("the optimal check", "plan", "scipy") from error
    rounds, deadline = rounds_of(effort), Deadline(time_limit)
    vector = thorough_vector(problem, rounds, deadline)
    return Planner(problem, vector, rounds, deadline, gap=gap, progress=progress).run()
