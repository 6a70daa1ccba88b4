"""The probabilistic check of section 3.4 of Götz's dissertation: each coordinate once, in the order of the vector.

It is algorithm 3 on a grid, computed with the library's closed form; `thesis` has the listing itself. The library's own
`probabilistic` tries several orders and keeps the best. The order changes the utility considerably.
"""

from __future__ import annotations

import math

from reticent_client import MarkovChain
from reticent_client.mask.planning.vectors import Lowering, vector_utility
from reticent_client.mask.policy import VectorPolicy
from reticent_client.mask.problem import STEPS_COUNT, Problem, Sensitive
from reticent_client.mask.provenance import Provenance

GRID = 10
"""The granularity d of section 3.7."""
ROUNDING = 1e-9
"""A floor this close above a point of the grid is that point."""


def listed_probabilistic(chain: MarkovChain, sensitive: Sensitive, delta: float) -> VectorPolicy:
    """Lower each suppression probability to the least on the grid that is private, by time and then by context.

    >>> chain = MarkovChain(["s", "x"], [0.5, 0.5], [])
    >>> listed_probabilistic(chain, {"s"}, 0.25).table.tolist()  # a third, but for the grid
    [[1.0, 0.4]]
    """
    problem = Problem.of(chain, sensitive, delta, weights=STEPS_COUNT)
    lowering = Lowering(problem)
    for t in range(chain.horizon):
        for i in range(chain.size):
            value = min(1.0, math.ceil(lowering.floor(t, i) * GRID - ROUNDING) / GRID)
            if value < 1:
                lowering.set(t, i, value)
        lowering.settle(t)
    utility = vector_utility(problem, lowering.table)
    return VectorPolicy(Provenance.of(problem, "probabilistic", utility), lowering.table)
