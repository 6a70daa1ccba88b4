"""The cost of a query to a participating user, and of several queries together.

A cost is an (epsilon, delta) in the sense of probabilistic differential privacy (definition 3 of Götz's
dissertation) for the decrypted sums; neighbours add or remove one user. Such costs add. If the noise is known, its
Rényi divergences add too, and their sum converts to a cost at the end. For many queries that is much less. The
Rényi divergence of Skellam noise is bounded as in Agarwal, Kairouz and Liu, "The Skellam mechanism for differentially
private federated learning" (2021), which holds at whole orders.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from reticent.arguments import checked_delta, checked_not_negative, checked_positive
from reticent.privacy.mechanisms import NoiseKind, mechanism_of
from reticent.storage.documents import parse_json

ORDERS = (*range(2, 65), *range(72, 257, 8), *range(320, 1025, 64))
"""The Rényi orders at which queries that are known in advance are composed."""

REMEMBERED = 1024
"""Costs whose texts and decimals are kept: all phones of a query have the same."""


@dataclass(frozen=True)
class Noise:
    """The noise of a release, and the bounds of the vector that it hides.

    Args:
        kind: The name of the mechanism.
        variance: The variance of the noise in each counter.
        l2: A bound on the L2 norm of one user's whole vector.
        l1: A bound on its L1 norm.
    """

    kind: NoiseKind
    variance: float
    l2: float
    l1: float

    def __post_init__(self) -> None:
        mechanism_of(self.kind)  # refuses unknown ones
        for name in ("variance", "l2", "l1"):
            object.__setattr__(self, name, checked_positive(name, getattr(self, name)))

    def renyi(self, order: int) -> float:
        """An upper bound on the Rényi divergence of this order, of a release with a user from one without."""
        return mechanism_of(self.kind).renyi(order, self.variance, self.l2, self.l1)


@dataclass(frozen=True)
class Cost:
    """The privacy cost of a query, or of several, to a participating user.

    Args:
        epsilon: Except with probability delta, no output is more than e^epsilon times likelier with the user than
            without, or without than with.
        delta: The probability of the exceptions.
        noise: The noise behind the cost. Costs without it compose by addition only, unless delta is 0.

    >>> Cost(0.5, 1e-6)
    Cost(epsilon=0.5, delta=1e-06, noise=None)
    """

    epsilon: float
    delta: float
    noise: Noise | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checked_not_negative("epsilon", self.epsilon))
        object.__setattr__(self, "delta", checked_not_negative("delta", self.delta))
        if self.delta >= 1:
            raise ValueError(f"delta must lie in [0, 1): got {self.delta!r}")

    def renyi(self, order: int) -> float | None:
        """An upper bound on the Rényi divergence of this order; None where the cost does not bound it."""
        if self.noise is not None:
            return self.noise.renyi(order)
        if self.delta == 0:
            return min(self.epsilon, order * self.epsilon**2 / 2)
        return None

    def to_text(self) -> str:
        """The cost as one line of JSON, from which `from_text` makes an equal one."""
        return _text_of(self)

    @classmethod
    def from_text(cls, text: str) -> Cost:
        """The cost that `to_text` wrote.

        Raises:
            ValueError: The text is not a cost.
        """
        return _cost_of(text)


def sum_of_costs(costs: Iterable[Cost]) -> tuple[Fraction, Fraction]:
    """The sums of the epsilons and of the deltas, exactly.

    Each number counts as the decimal that it prints as, so that ten times 0.1 is 1, and three times 0.1 is 0.3.
    """
    return _sum_of(tuple(costs))


@lru_cache(maxsize=64)  # each may be long
def _sum_of(costs: tuple[Cost, ...]) -> tuple[Fraction, Fraction]:
    epsilon = delta = Fraction(0)
    for cost in costs:
        epsilon += decimal(cost.epsilon)
        delta += decimal(cost.delta)
    return epsilon, delta


@lru_cache(maxsize=REMEMBERED)
def decimal(number: float) -> Fraction:
    """The decimal that a float prints as."""
    return Fraction(repr(number))


@lru_cache(maxsize=REMEMBERED)
def _text_of(cost: Cost) -> str:
    return json.dumps(asdict(cost), sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=REMEMBERED)
def _cost_of(text: str) -> Cost:
    try:
        content: dict[str, Any] = parse_json(text)
        noise = content.pop("noise")
        return Cost(noise=None if noise is None else Noise(**noise), **content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"the text is not a cost: {text!r} ({error})") from error


def composed(costs: Iterable[Cost], delta: float) -> Cost:
    """The cost of several queries together, if their list was fixed before the first release.

    The total is an (epsilon, delta) in the same sense as each cost: the smallest epsilon that addition or any one of
    `ORDERS` gives. If a query depends on earlier releases, only a `Ledger` bounds the total.

    Args:
        costs: The cost of each query.
        delta: The delta of the total.

    Raises:
        ValueError: Nothing bounds the total at this delta.

    >>> five = [Cost(1.0, 1e-6, Noise("gaussian", 24.0, 1.0, 1.0))] * 5
    >>> round(composed(five, 1e-5).epsilon, 2)
    2.31
    """
    costs = list(costs)
    delta = checked_delta(delta)
    found = []
    epsilon, spent = sum_of_costs(costs)
    if spent <= decimal(delta):
        found.append(float(epsilon))
    for order in ORDERS:
        divergence = renyi_of(costs, order)
        if divergence is not None:
            found.append(epsilon_of(divergence, order, delta))
    if not found:
        raise ValueError(f"these costs add up to a delta of {float(spent):.3g}, which is more than {delta!r}")
    return Cost(min(found), delta)


def renyi_of(costs: Iterable[Cost], order: int) -> float | None:
    """The Rényi divergence of several queries together; None if one of the costs does not bound it."""
    divergences = []
    for cost in costs:
        divergence = cost.renyi(order)
        if divergence is None:
            return None
        divergences.append(divergence)
    return math.fsum(divergences)


def log_delta_of(divergence: float, order: int, epsilon: float) -> float:
    """A bound on the logarithm of the probability that the loss leaves [-epsilon, epsilon].

    Markov's inequality bounds the probability of a loss above epsilon by exp((order - 1)(divergence - epsilon)); that
    of one below -epsilon is at most e^-epsilon times as much.
    """
    return (order - 1) * (divergence - epsilon) + math.log1p(math.exp(-epsilon))


def epsilon_of(divergence: float, order: int, delta: float) -> float:
    """The smallest epsilon that a Rényi divergence of this order keeps, except with probability delta."""
    if divergence == 0:
        return 0.0
    log_delta = math.log(delta)
    low = max(0.0, divergence - log_delta / (order - 1))
    high = max(0.0, divergence + (math.log(2) - log_delta) / (order - 1))
    while low < (middle := (low + high) / 2) < high:
        if log_delta_of(divergence, order, middle) > log_delta:
            low = middle
        else:
            high = middle
    return high
