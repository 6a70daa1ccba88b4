"""MaskSensitive: the baseline that the private checks are compared with."""

from __future__ import annotations

import numpy as np

from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.policy import VectorPolicy
from reticent_client.mask.problem import Sensitive, Weights, delta_table, weight_row
from reticent_client.mask.provenance import Provenance


def mask_sensitive(chain: MarkovChain, *, sensitive: Sensitive, weights: Weights | None = None) -> VectorPolicy:
    """Suppress every sensitive context and release everything else. It leaks: use it for comparison only."""
    deltas = delta_table(chain, sensitive, 0.5)
    deltas[~np.isnan(deltas)] = np.inf
    table = np.where(np.isnan(deltas), 0.0, 1.0)
    row = weight_row(chain, weights)
    utility = float((chain.prior * row * (1 - table)).sum())
    return VectorPolicy(Provenance("mask_sensitive", chain, deltas, (), utility, weights=row), table)
