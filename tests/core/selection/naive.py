"""Algorithm 6 as listed, vectorised: each round computes the gain of every ad anew."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reticent.selection import Rates


def naive(
    rates: Rates, weights: NDArray[np.float64], bids: NDArray[np.float64], k: int, alpha: float = 0.0
) -> tuple[list[int], list[float]]:
    """The ads and their gains."""
    starts = np.flatnonzero(np.diff(rates.ads, prepend=-1))
    terms = weights[rates.contexts] * (bids[rates.ads] * rates.values)  # (entries,)
    covered = np.zeros(rates.shape[1])
    ads: list[int] = []
    gains: list[float] = []
    while len(starts) and len(ads) < k:
        left = covered.take(rates.contexts)
        np.subtract(terms, left, out=left)
        np.maximum(left, 0, out=left)
        gain = np.add.reduceat(left, starts)  # (ads with entries,)
        row = int(gain.argmax())
        if gain[row] <= alpha:
            break
        ads.append(int(rates.ads[starts[row]]))
        gains.append(float(gain[row]))
        own = slice(starts[row], starts[row + 1] if row + 1 < len(starts) else None)
        covered[rates.contexts[own]] = np.maximum(covered[rates.contexts[own]], terms[own])
    return ads, gains
