"""Mixtures of chains, weighted by days.

`pooled` gives the chain of a user who lives some days by one chain and some by another. It completes few days with the
same user's days at other hours, with all days for a chain of weekends, or with the days of other people.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reticent_client.mask.chain import Floats, MarkovChain


def pooled(chains: Sequence[MarkovChain], days: Sequence[float]) -> MarkovChain:
    """The chain of as many days of each as given; its contexts are those of all.

    A row without a day in any chain is that of the last chain, by convention the most general one.

    >>> home, away = (MarkovChain([label], [1], []) for label in ("home", "away"))
    >>> pooled([home, away], [3, 1]).initial.tolist()
    [0.75, 0.25]
    """
    weights = np.asarray(days, dtype=np.float64)
    if len(chains) == 0 or weights.shape != (len(chains),):
        raise ValueError(f"pooled needs chains, and a number of days for each: got {len(chains)} and {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise ValueError(f"numbers of days are at least 0, and not all 0: got {weights.tolist()}")
    horizons = {chain.horizon for chain in chains}
    if len(horizons) > 1:
        raise ValueError(f"chains of different numbers of steps cannot be pooled: got {sorted(horizons)}")
    contexts = _union(chains)
    same = [widened(chain, contexts) for chain in chains]
    visits = np.zeros((same[0].horizon, len(contexts)))
    moves = np.zeros_like(same[0].transitions)
    for chain, weight in zip(same, weights / weights.sum(), strict=True):
        visits += weight * chain.prior
        moves += weight * chain.prior[:-1, :, None] * chain.transitions
    return MarkovChain(contexts, visits[0], _rows(moves, same[-1].transitions))


def widened(chain: MarkovChain, contexts: Sequence[str]) -> MarkovChain:
    """The chain with more contexts, which it never enters; from them it moves as it does on average."""
    if tuple(contexts) == chain.contexts:
        return chain
    places = [list(contexts).index(label) for label in chain.contexts]
    initial = np.zeros(len(contexts))
    initial[places] = chain.initial
    moves = np.zeros((chain.horizon - 1, len(contexts), len(contexts)))
    moves[:, :, places] = chain.prior[1:, None, :]
    moves[np.ix_(range(chain.horizon - 1), places, places)] = chain.transitions
    return MarkovChain(contexts, initial, moves)


def nearby(chain: MarkovChain, width: int) -> MarkovChain:
    """The chain of a user who does what this one does up to `width` steps earlier or later.

    It has only transitions that the chain has at about that time, so it stays sparse.
    """
    if width < 0:
        raise ValueError(f"width is a number of steps, at least 0: got {width}")
    visits = _smeared(chain.prior, width)
    moves = _smeared(chain.prior[:-1, :, None] * chain.transitions, width)
    anywhere = np.repeat(visits[1:, None, :], chain.size, axis=1)
    return MarkovChain(chain.contexts, visits[0] / visits[0].sum(), _rows(moves, _rows(anywhere, anywhere)))


def _smeared(values: Floats, width: int) -> Floats:
    """The sum of the values up to `width` steps away, for each step."""
    return np.stack([values[max(0, t - width) : t + width + 1].sum(axis=0) for t in range(len(values))])  # fmt: skip


def _rows(moves: Floats, otherwise: Floats) -> Floats:
    """Weights of moves as probabilities, with other rows where there are no moves."""
    totals = moves.sum(axis=2, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(totals > 0, moves / totals, otherwise)


def _union(chains: Sequence[MarkovChain]) -> tuple[str, ...]:
    """The contexts of all chains, those of the first one first."""
    return tuple(dict.fromkeys(label for chain in chains for label in chain.contexts))
