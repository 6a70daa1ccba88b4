"""The privacy checks of Götz's dissertation: each looks at a chain and returns a policy.

    check(chain, sensitive={"hospital"}, delta=0.1)

`sensitive` holds contexts or (step, context) pairs, or maps each to a delta of its own. `against` names the chains
that an adversary may be certain of, the user's own by default. Whatever a check returns is private: for every output
that can occur, every step and every sensitive context, the adversary's belief rises by at most delta.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from reticent.errors import MissingExtra
from reticent_client.mask.chain import Floats, MarkovChain
from reticent_client.mask.limits import Deadline, rounds_of, whole_number
from reticent_client.mask.planning.adaptation import plan_windows
from reticent_client.mask.planning.automata import build
from reticent_client.mask.planning.release_times import Plan, release_times
from reticent_client.mask.planning.vectors import best_vector, exact_vector, vector_utility
from reticent_client.mask.policy import Policy, Provenance, ReleaseTimes, VectorPolicy
from reticent_client.mask.problem import Problem, Sensitive, delta_table

if TYPE_CHECKING:
    from reticent_client.mask.planning.planner import OptimalPlan

DEFAULT_GRID = 10
VECTOR_ROUNDS = 4  # rounds of orders that a check tries which takes its time anyway, for each of its own


def mask_sensitive(chain: MarkovChain, *, sensitive: Sensitive) -> VectorPolicy:
    """Suppress what is sensitive and release everything else. It leaks; it is here to be compared with."""
    deltas = delta_table(chain, sensitive, 0.5)
    deltas[~np.isnan(deltas)] = np.inf
    table = np.where(np.isnan(deltas), 0.0, 1.0)
    utility = float((chain.prior * (1 - table)).sum())
    return VectorPolicy(Provenance("mask_sensitive", chain, deltas, (), utility), table)


def simulatable(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    plan: Plan = "greedy",
    against: Sequence[MarkovChain] | None = None,
) -> ReleaseTimes:
    """Decide by the last release alone, so that the decision itself tells nothing (section 3.5).

    `plan="greedy"` releases at the first safe step, as published; `plan="best"` at the steps that release most.
    """
    if plan not in ("greedy", "best"):
        raise ValueError(f'plan must be "greedy" or "best": got {plan!r}')
    problem = Problem.of(chain, sensitive, delta, against)
    times, utility = release_times(problem, plan)
    return ReleaseTimes(provenance(problem, "simulatable", utility), times)


def probabilistic(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    search: Literal["greedy", "exact"] = "greedy",
    grid: int | None = None,
    against: Sequence[MarkovChain] | None = None,
) -> VectorPolicy:
    """Suppress each state with a probability of its own (section 3.4).

    `search="greedy"` lowers one coordinate after the other in closed form, in several orders, and keeps the best
    vector; with `grid=d` on the grid {0, 1/d, ..., 1}. `search="exact"` finds the best vector on the grid (10 by
    default) and is for small chains.
    """
    if grid is not None and whole_number(grid, "grid must be a whole number of at least 1") < 1:
        raise ValueError(f"grid must be at least 1: got {grid}")
    problem = Problem.of(chain, sensitive, delta, against)
    if search == "exact":
        table = exact_vector(problem, DEFAULT_GRID if grid is None else grid)
    elif search == "greedy":
        table = _vector(problem, rounds=1, grid=grid, deadline=Deadline())
    else:
        raise ValueError(f'search must be "greedy" or "exact": got {search!r}')
    utility = vector_utility(problem, table)
    return VectorPolicy(provenance(problem, "probabilistic", utility), table)


def hybrid(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    effort: int = 1,
    time_limit: float | None = None,
    against: Sequence[MarkovChain] | None = None,
) -> Policy:
    """The better of simulatable and probabilistic for this user, by their exact utilities (section 3.6)."""
    rounds, deadline = rounds_of(effort), Deadline(time_limit)
    problem = Problem.of(chain, sensitive, delta, against)
    table = _vector(problem, rounds=max(1, VECTOR_ROUNDS * rounds), deadline=deadline)
    times, simulatable_utility = release_times(problem, "greedy")
    utility = vector_utility(problem, table)
    complete = not deadline.struck
    if utility > simulatable_utility:
        return VectorPolicy(provenance(problem, "hybrid", utility, complete=complete), table)
    return ReleaseTimes(provenance(problem, "hybrid", simulatable_utility, complete=complete), times)


def adaptive(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    effort: int = 1,
    time_limit: float | None = None,
    against: Sequence[MarkovChain] | None = None,
) -> Policy:
    """Suppress by the last release and the current context together; never worse than `hybrid` on any chain."""
    rounds, deadline = rounds_of(effort), Deadline(time_limit)
    problem = Problem.of(chain, sensitive, delta, against)
    table = _vector(problem, rounds=max(1, VECTOR_ROUNDS * rounds), deadline=deadline)
    plan = plan_windows(problem, table, rounds=rounds, deadline=deadline)
    origin = provenance(problem, "adaptive", plan.value, complete=not deadline.struck)
    return build(origin, plan.nodes)


def optimal(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    effort: int = 1,
    time_limit: float | None = None,
) -> Policy:
    """The best policy there is, or, where the chain is too large for the effort, the best below it that was found.

    `policy.ceiling` says what no policy can exceed. Needs scipy (the extra "plan"); a phone runs what it gets without
    it.
    """
    problem = Problem.of(chain, sensitive, delta)
    plan = _optimal_plan(problem, effort, time_limit)
    origin = provenance(problem, "optimal", plan.value, complete=plan.complete, ceiling=plan.ceiling)
    return build(origin, plan.nodes)


def ceiling(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    effort: int = 1,
    time_limit: float | None = None,
) -> float:
    """An upper bound on the expected releases of any policy that is private on this chain.

    With `effort=0`, simply the expected number of states that may be released at all; that needs no solver.
    """
    problem = Problem.of(chain, sensitive, delta)
    simple = float(chain.prior[problem.releasable].sum())
    if rounds_of(effort) == 0:
        return simple
    return min(simple, _optimal_plan(problem, effort, time_limit).ceiling)


def _optimal_plan(problem: Problem, effort: int, time_limit: float | None) -> OptimalPlan:
    try:
        from reticent_client.mask.planning.planner import Planner  # noqa: PLC0415  # a phone has no scipy: it runs what it is given
    except ImportError as error:
        raise MissingExtra("the optimal check", "plan", "scipy") from error
    rounds, deadline = rounds_of(effort), Deadline(time_limit)
    table = _vector(problem, rounds=max(1, VECTOR_ROUNDS * rounds), deadline=deadline)
    return Planner(problem, table, rounds, deadline).run()


def provenance(
    problem: Problem,
    check: str,
    utility: float,
    *,
    complete: bool = True,
    ceiling: float | None = None,
) -> Provenance:
    """Where a policy for this problem comes from."""
    against = tuple(opponent.chain for opponent in problem.opponents)
    return Provenance(check, problem.chain, problem.deltas, against, utility, complete, ceiling)


def _vector(problem: Problem, *, rounds: int, grid: int | None = None, deadline: Deadline) -> Floats:
    """The best vector of several orders; all ones where there was no time for any."""
    found = best_vector(problem, rounds=rounds, grid=grid, deadline=deadline)
    return np.ones_like(problem.deltas) if found is None else found
