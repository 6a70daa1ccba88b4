"""The number of phases that a query takes if users are absent: the model of figure 5.3 of Götz's dissertation.

In a phase, the server sends a message to all users, or all users send one to the server. In each phase, each user is
absent with probability p. A protocol repeats its attempts until one succeeds, and an attempt ends with the first phase
that fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import stats

__all__ = ["OURS", "PROTOCOLS", "RASTOGI_NATH", "SHI", "TOLERATED", "Law", "Protocol", "law", "simulate"]

Counts = npt.NDArray[np.int64]

TOLERATED = 0.25
"""The share of the users that may be absent from our protocol."""


@dataclass(frozen=True)
class Protocol:
    """A protocol.

    Args:
        name: The name.
        phases: The phases of an attempt, which begins with a request or a setup.
        tolerated: The share of the users that may be absent; None if all users of the setup must be present.
    """

    name: str
    phases: int
    tolerated: float | None = None

    def needed(self, users: int) -> int:
        """The fewest users that suffice."""
        return 1 if self.tolerated is None else math.ceil(round((1 - self.tolerated) * users, 9))


SHI = Protocol("Shi et al.", 2)
"""The setup, and the ciphertexts of all its users."""
RASTOGI_NATH = Protocol("Rastogi & Nath", 4)
"""The setup, the ciphertexts, the sum that the server sends back, and the partial decryptions.

The phases in which the parties square their noise are left out, in favour of this protocol.
"""
OURS = Protocol("ours", 2, TOLERATED)
"""The request, and the contributions of the users that received it."""
PROTOCOLS = (SHI, RASTOGI_NATH, OURS)


@dataclass(frozen=True)
class Law:
    """The distribution of the phases of an attempt, in logarithms, as successes can be rare beyond all floats.

    Args:
        protocol: The protocol.
        log_reached: The logarithms of the probabilities that phases 1, 2, ... of an attempt succeed, with all before.
    """

    protocol: Protocol
    log_reached: tuple[float, ...]

    @property
    def log10_mean(self) -> float:
        """The decimal logarithm of the mean number of phases of a query."""
        return float(np.log10(self._attempt) - self.log_reached[-1] / math.log(10))

    @property
    def mean(self) -> float:
        """The mean number of phases of a query; infinite beyond all floats."""
        return float(self._attempt * np.exp(np.minimum(-self.log_reached[-1], 709)))

    @property
    def variance(self) -> float:
        """The variance of the number of phases of a query."""
        reached = np.exp(self.log_reached)
        ends = -np.diff(reached)  # of failed attempts: at phase 2, 3, ...
        phases = np.arange(2, len(reached) + 1)
        squares = float(ends @ phases**2 + reached[-1] * self.protocol.phases**2)
        failed = float(ends @ phases)
        return float((squares + 2 * failed * self.mean) / reached[-1]) - self.mean**2

    @property
    def _attempt(self) -> float:
        """The mean number of phases of an attempt. Each phase takes place if all before it succeed."""
        return 1 + float(np.exp(self.log_reached[:-1]).sum())


@cache
def law(protocol: Protocol, users: int, absent: float) -> Law:
    """The closed form, for a number of users and the probability with which each is absent in a phase."""
    if protocol.tolerated is None:
        # A user fails no phase up to the k-th if it misses the setup, or if it is present in the setup and the k after.
        joint = [users * math.log(absent + (1 - absent) ** (k + 1)) for k in range(1, protocol.phases)]
        return Law(protocol, (0.0, *joint))
    enough = stats.binom.logsf(protocol.needed(users) - 1, users, (1 - absent) ** 2)
    return Law(protocol, (0.0, float(enough)))


def simulate(protocol: Protocol, users: int, absent: float, queries: int, rng: np.random.Generator) -> Counts:
    """The number of phases of each query, phase by phase and attempt by attempt."""
    run = _robust_attempts if protocol.tolerated is not None else _strict_attempts
    phases = np.zeros(queries, dtype=np.int64)
    pending = np.arange(queries)
    while pending.size:
        taken, succeeded = run(protocol, users, absent, pending.size, rng)
        phases[pending] += taken
        pending = pending[~succeeded]
    return phases


def _strict_attempts(
    protocol: Protocol, users: int, absent: float, attempts: int, rng: np.random.Generator
) -> tuple[Counts, npt.NDArray[np.bool_]]:
    """Attempts in which all users of the setup must be present to the end."""
    members = rng.binomial(users, 1 - absent, attempts)
    taken = np.ones(attempts, dtype=np.int64)
    going = np.ones(attempts, dtype=np.bool_)
    for _ in range(protocol.phases - 1):
        taken += going
        going &= rng.binomial(members, absent) == 0
    return taken, going


def _robust_attempts(
    protocol: Protocol, users: int, absent: float, attempts: int, rng: np.random.Generator
) -> tuple[Counts, npt.NDArray[np.bool_]]:
    """Attempts in which enough users must be present in every phase."""
    present = np.full(attempts, users)
    for _ in range(protocol.phases):
        present = rng.binomial(present, 1 - absent)
    return np.full(attempts, protocol.phases), present >= protocol.needed(users)
