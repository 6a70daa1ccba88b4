"""What the tests of a mask share: all checks, a policy by hand, and a commute."""

from typing import Any

import numpy as np
import pytest

from reticent_client import MarkovChain
from reticent_client.mask.policy import VectorPolicy
from reticent_client.mask.provenance import Provenance
from tests.client.checks import PRIVATE

checks = pytest.mark.parametrize("check", PRIVATE)


def vector(chain: MarkovChain, table: Any = None) -> VectorPolicy:
    """A policy that suppresses by a table: nothing at all unless given."""
    zeros = np.zeros((chain.horizon, len(chain.contexts)))
    origin = Provenance("by hand", chain, zeros + 0.5, (), 0.0)
    return VectorPolicy(origin, zeros if table is None else np.asarray(table, float))


def commute() -> MarkovChain:
    """Home, then by bus or bike to work; nobody goes back."""
    labels = ["home", "bus", "bike", "work"]
    away = [[0, 0.5, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 0.5, 0.5], [0, 0, 0, 1.0]]
    return MarkovChain(labels, [1, 0, 0, 0], [away] * 4)
