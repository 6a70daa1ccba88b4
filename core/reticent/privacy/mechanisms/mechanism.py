"""The interface of a mechanism of noise: its calibration, its cost, its tails, and one phone's share of it.

Noise consists of integers, since only integers are encrypted, and since the last bits of floating-point noise reveal
what it hides (Mironov, "On Significance of the Least Significant Bits for Differential Privacy", 2012). A share may
be tiny: with 100,000 phones its deviation is a three-hundredth of the sum's, and a rounded normal number would be 0
every time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from enum import StrEnum
from fractions import Fraction
from statistics import NormalDist
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import checked_integer, checked_positive
from reticent.privacy.mechanisms._samplers import Size
from reticent.tail_bounds import bernstein

__all__ = ["Integers", "Mechanism", "Unit", "normal_half_width", "share_variance"]

Integers: TypeAlias = NDArray[np.int64]


class Unit(StrEnum):
    """The unit of privacy: neighbouring inputs differ by adding or removing one of these."""

    USER = "user"
    EVENT = "event"
    SESSION = "session"


class Mechanism(ABC):
    """One kind of noise. Its methods compute from their arguments alone.

    The bounds `l2` and `l1` are those of one unit's whole vector. A grid of `fraction_bits` consists of the multiples
    of 2^-fraction_bits; variances are in units of 1, shares in steps of the grid.
    """

    name: ClassVar[str]
    """The name in queries and their canonical bytes."""

    unit: ClassVar[Unit] = Unit.USER
    """The change that the calibration hides."""

    whole: ClassVar[bool] = False
    """Whether the noise hides whole numbers only, without fraction bits."""

    min_share_deviation: ClassVar[float] = 0.0
    """The smallest deviation of a share, in steps of the grid, with which the calibration holds."""

    @abstractmethod
    def variance(self, epsilon: float, delta: float, l2: float, l1: float, fraction_bits: int | None = None) -> float:
        """The smallest known variance that keeps (epsilon, delta), as does every larger one.

        Args:
            epsilon: The loss that counts as a breach, in nats.
            delta: The probability with which a breach is allowed.
            l2: The largest L2 norm of what one unit changes.
            l1: The largest L1 norm of it.
            fraction_bits: The grid; None before a grid is chosen.
        """

    @abstractmethod
    def sequence_variance(self, epsilon: float, delta: float, l2: float, l1: float) -> float:
        """The same for the parts of one vector, when each question may depend on the releases before it."""

    @abstractmethod
    def delta(self, variance: float, epsilon: float, l2: float, l1: float, fraction_bits: int) -> float:
        """The probability of a loss above epsilon with noise of exactly this variance, never below the truth."""

    @abstractmethod
    def renyi(self, order: int, variance: float, l2: float, l1: float) -> float:
        """An upper bound on the Rényi divergence of this order between neighbours."""

    @abstractmethod
    def check_share(self, variance: float, fraction_bits: int) -> None:
        """Refuse shares that no phone can draw, or with which the calibration does not hold.

        Raises:
            ValueError: With what is wrong, and what to change.
        """

    @abstractmethod
    def share(self, variance: float, size: Size, rng: np.random.Generator, fraction_bits: int) -> Integers:
        """Run by the phone. Its share of the noise, in steps of the grid.

        Args:
            variance: Of the share.
            size: The shape of the array, one number for each counter.
            rng: `reticent.randomness.secure()` on a phone.
            fraction_bits: The grid.
        """

    @abstractmethod
    def is_sampled(self, variance: float, fraction_bits: int) -> bool:
        """Whether a simulation samples this noise; otherwise it rounds a normal number, with no visible difference."""

    def sum_of_shares(
        self, variance: float, size: tuple[int, ...], rng: np.random.Generator, fraction_bits: int
    ) -> Integers:
        """Run by a simulation. The noise of a whole cohort in one draw, in steps of the grid.

        The distribution is that of a sum of shares with this variance altogether.
        """
        if variance == 0:
            return np.zeros(size, dtype=np.int64)
        if self.is_sampled(variance, fraction_bits):
            return self.share(variance, size, rng, fraction_bits)
        return np.rint(rng.normal(0.0, math.ldexp(math.sqrt(variance), fraction_bits), size)).astype(np.int64)

    def half_width(self, variance: float, level: float) -> float:
        """Half the width of an interval around 0 in which noise of this variance lies with probability `level`."""
        return normal_half_width(variance, level)

    def tail_bound(self, variance: Fraction, nats: int) -> int:
        """A bound that a sum of shares exceeds, on either side, with probability exp(-nats) at most.

        The layout of plaintexts follows from it, so it is computed in integers.

        Args:
            variance: Of the sum, in steps of the grid.
            nats: How unlikely.
        """
        return bernstein(variance, nats)


def normal_half_width(variance: float, level: float) -> float:
    """Half the width of an interval around 0 in which a normal number lies with probability `level`."""
    return NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(variance)


def share_variance(variance: float, min_contributions: int, liars: int) -> float:
    """The variance of each phone's share, with which the sum keeps `variance` against those who know some shares.

    Args:
        variance: The variance that the noise of the sum needs.
        min_contributions: The fewest contributions that are ever decrypted together.
        liars: The most phones among them that add no noise, or reveal theirs.

    Returns:
        variance / (min_contributions - liars - 1): a curious phone knows its own share, too.

    >>> share_variance(20.0, min_contributions=100, liars=19)
    0.25
    """
    variance = checked_positive("variance", variance)
    min_contributions, liars = (
        checked_integer("min_contributions", min_contributions, 2),
        checked_integer("liars", liars, 0),
    )
    if min_contributions - liars < 2:
        raise ValueError(f"of {min_contributions} contributions at least 2 must be honest: got {liars} liars")
    return variance / (min_contributions - liars - 1)
