"""Bounds on how far a sum of noise lies from 0, in integers only, so that any two machines compute the same ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

__all__ = ["TailBound", "bernstein"]

TailBound: TypeAlias = Callable[[Fraction, int], int]
"""From the variance of a sum of noise shares and a number of nats to a bound that the sum exceeds, on either side, with
probability exp(-nats) at most."""


def bernstein(variance: Fraction, nats: int) -> int:
    """Bernstein's bound, which holds for sums of Skellam shares and for sums of discrete Gaussian shares.

    A sum of shares with variance V exceeds x with probability at most exp(-x² / (2V + 2x/3)). The bound is the
    smallest integer x with x² >= nats · (2V + 2x/3), where V is rounded up.
    """
    root = 1 + math.isqrt(nats * nats + 18 * nats * math.ceil(variance) - 1)  # rounded up
    return -(-(nats + root) // 3)
