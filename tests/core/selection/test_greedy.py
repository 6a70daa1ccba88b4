"""The greedy selection equals algorithm 6 choice by choice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.selection import Rates, _greedy, greedy
from tests.core.selection.naive import naive

SEEDS = st.integers(0, 2**32 - 1)


@given(seed=SEEDS, pool=st.integers(1, 5), block=st.integers(1, 3), ties=st.booleans())
def test_equals_the_naive_greedy_choice_by_choice(seed: int, pool: int, block: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    ads, contexts = rng.integers(1, 40, 2)
    dense = rng.integers(0, 4, (ads, contexts)) / 3 * (rng.random((ads, contexts)) < rng.random())
    weights = rng.integers(0, 3, contexts) / 7 if ties else rng.random(contexts)
    bids = rng.integers(0, 3, ads) * 1.0 if ties else rng.random(ads)
    alpha = float(rng.choice([0.0, 0.1, 0.5]))
    k = int(rng.integers(1, 12))
    rates = Rates.of(dense)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FIRST_POOL": pool, "FIRST_BLOCK": block, "ROWS": pool}.items():
            patch.setattr(_greedy, name, value)
        selection = greedy(rates, weights, bids, k, alpha=alpha)
    assert (selection.ads.tolist(), selection.gains.tolist()) == naive(rates, weights, bids, k, alpha)
