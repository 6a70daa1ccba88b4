"""The origin of a policy: its check, its promise and its adversaries; as an object, and as parts of a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reticent.storage.arrays import Arrays
from reticent_client.mask.chain import Floats, MarkovChain
from reticent_client.mask.limits import MAX_ADVERSARIES, MAX_CONTEXTS, MAX_STEPS
from reticent_client.mask.problem import Problem, weight_row

_OWN, _OTHER = "own", "other"  # an adversary's chain: the user's, or one with arrays of its own


@dataclass(frozen=True, eq=False)
class Provenance:
    """The origin of a policy: its check, its promise and its adversaries."""

    check: str
    chain: MarkovChain
    deltas: Floats  # (T, n): how far the belief in a state may rise, NaN where it is not sensitive
    against: tuple[MarkovChain, ...]
    utility: float
    complete: bool = True
    ceiling: float | None = None
    weights: Floats | None = None
    """(n,): what the release of each context is worth; None for the default."""

    @classmethod
    def of(
        cls, problem: Problem, check: str, utility: float, *, complete: bool = True, ceiling: float | None = None
    ) -> Provenance:
        """The provenance of a policy that a check found for a problem."""
        against = tuple(adversary.chain for adversary in problem.adversaries)
        return cls(check, problem.chain, problem.deltas, against, utility, complete, ceiling, problem.weights)

    @property
    def weighting(self) -> Floats:
        """(n,): what the release of each context is worth."""
        return weight_row(self.chain) if self.weights is None else self.weights

    def described(self) -> tuple[dict[str, Any], Arrays]:
        """The entries of a file's header and the arrays that `restored` reads.

        `ValueError` for more contexts, steps or adversaries than a file may have.
        """
        chain = self.chain
        if chain.size > MAX_CONTEXTS or chain.horizon > MAX_STEPS or len(self.against) > MAX_ADVERSARIES:
            raise ValueError(
                f"a policy file has at most {MAX_CONTEXTS} contexts, {MAX_STEPS} steps and "
                f"{MAX_ADVERSARIES} adversaries: this one has {chain.size}, {chain.horizon} and "
                f"{len(self.against)}"
            )
        header = {
            "check": self.check,
            "complete": self.complete,
            "utility": float(self.utility),
            "ceiling": None if self.ceiling is None else float(self.ceiling),
            "contexts": chain.contexts,
            "against": [_OWN if other is chain else _OTHER for other in self.against],
        }
        arrays = _chain_arrays("chain", chain) | {"deltas": self.deltas, "weights": self.weighting}
        for k, other in enumerate(self.against):
            if other is not chain:
                arrays |= _chain_arrays(f"against.{k}", other)
        return header, arrays

    @classmethod
    def restored(cls, header: Mapping[str, Any], arrays: Arrays) -> Provenance:
        """The provenance of a file's header and arrays; `KeyError`, `TypeError` or `ValueError` for bad ones."""
        contexts = header["contexts"]
        if not isinstance(contexts, list) or len(contexts) > MAX_CONTEXTS:
            raise ValueError(f"contexts must be a list of at most {MAX_CONTEXTS} labels")
        chain = _chain("chain", contexts, arrays)
        against = header["against"]
        if not isinstance(against, list) or len(against) > MAX_ADVERSARIES:
            raise ValueError(f"against must be a list of at most {MAX_ADVERSARIES} adversaries")
        complete, check = header["complete"], header["check"]
        if not isinstance(complete, bool) or not isinstance(check, str):
            raise ValueError("check must be a name, and complete true or false")
        utility = _releases(header["utility"], "utility")
        ceiling = header["ceiling"]
        return cls(
            check,
            chain,
            _deltas(arrays["deltas"], chain),
            tuple(
                chain if which == _OWN else _chain(f"against.{k}", contexts, arrays) for k, which in enumerate(against)
            ),
            utility,
            complete,
            None if ceiling is None else _releases(ceiling, "ceiling"),
            _weights(arrays["weights"], chain),
        )


def _chain_arrays(name: str, chain: MarkovChain) -> Arrays:
    return {f"{name}.initial": chain.initial, f"{name}.transitions": chain.transitions}


def _chain(name: str, contexts: list[str], arrays: Arrays) -> MarkovChain:
    initial, transitions = arrays[f"{name}.initial"], arrays[f"{name}.transitions"]
    if len(transitions) >= MAX_STEPS:
        raise ValueError(f"a day has at most {MAX_STEPS} steps")
    return MarkovChain(contexts, initial, transitions)


def _deltas(table: npt.NDArray[Any], chain: MarkovChain) -> Floats:
    deltas = np.array(table, dtype=np.float64)
    if deltas.shape != (chain.horizon, chain.size) or (deltas <= 0).any():
        raise ValueError("deltas must be above 0, one for each step and context")
    deltas.flags.writeable = False
    return deltas


def _weights(row: npt.NDArray[Any], chain: MarkovChain) -> Floats:
    if row.shape != (chain.size,):
        raise ValueError("weights must hold one number for each context")
    return weight_row(chain, dict(zip(chain.contexts, row.tolist(), strict=True)))


def _releases(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of at least 0: got {value!r}")
    return float(value)
