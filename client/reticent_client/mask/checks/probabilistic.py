"""The probabilistic check: each state is suppressed with a probability of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.limits import Deadline, whole_number
from reticent_client.mask.planning.vectors import best_vector, exact_vector, vector_utility
from reticent_client.mask.policy import VectorPolicy
from reticent_client.mask.problem import Problem, Sensitive, Weights
from reticent_client.mask.provenance import Provenance

DEFAULT_GRID = 10


def probabilistic(
    chain: MarkovChain,
    *,
    sensitive: Sensitive,
    delta: float | None = None,
    search: Literal["greedy", "exact"] = "greedy",
    grid: int | None = None,
    against: Sequence[MarkovChain] | None = None,
    weights: Weights | None = None,
) -> VectorPolicy:
    """Suppress each state with a probability of its own (section 3.4).

    `search="greedy"` lowers one probability after the other in closed form, in several orders, and keeps the best
    result; `grid=d` restricts it to {0, 1/d, ..., 1}. `search="exact"` finds the best vector on the grid (10 by
    default); it is for small chains.
    """
    if grid is not None and whole_number(grid, "grid must be a whole number of at least 1") < 1:
        raise ValueError(f"grid must be at least 1: got {grid}")
    problem = Problem.of(chain, sensitive, delta, against, weights)
    if search == "exact":
        table = exact_vector(problem, DEFAULT_GRID if grid is None else grid)
    elif search == "greedy":
        table = best_vector(problem, rounds=1, grid=grid, deadline=Deadline())
    else:
        raise ValueError(f'search must be "greedy" or "exact": got {search!r}')
    return VectorPolicy(Provenance.of(problem, "probabilistic", vector_utility(problem, table)), table)
