"""The probabilistic check as the text lists it: the coordinates in their order, once, on a grid.

Section 3.4 of Götz's dissertation, algorithm 3. The library's own `probabilistic` tries several orders, puts off what
can only fall a little, and keeps the best; which order is taken changes much of what the check is worth.
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


def probabilistic(chain: MarkovChain, sensitive: Sensitive, delta: float) -> VectorPolicy:
    """Lower each suppression probability to the least on the grid that is private, by time and then by context.

    >>> chain = MarkovChain(["s", "x"], [0.5, 0.5], [])
    >>> probabilistic(chain, {"s"}, 0.25).table.tolist()  # a third, but for the grid
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
