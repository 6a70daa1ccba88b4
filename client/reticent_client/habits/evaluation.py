"""What days that a chain was not learned from say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reticent.randomness import seeded
from reticent_client.mask.chain import UNKNOWN, MarkovChain
from reticent_client.mask.maskit import MaskIt
from reticent_client.mask.policy import VectorPolicy
from reticent_client.mask.provenance import Provenance

Labels = Sequence[str | None]


@dataclass(frozen=True)
class Evaluation:
    """How well chains foretell days."""

    days: int
    steps: int
    off_model: int
    """Steps whose context the chain does not know, or rules out given the step before; as `MaskIt` counts them on a
    phone that releases all it may. What is possible depends on the last release, so that a policy that suppresses more
    may come to another count."""
    missing: int
    """Steps without a reading, where the chain knows no gaps."""
    unknown_contexts: tuple[str, ...]
    """The contexts that no chain of their day knows."""
    log_likelihood: float | None
    """The mean logarithm of the probability of a step, over the steps that have one above 0; None without any."""

    @property
    def off_model_share(self) -> float:
        """The share of the steps that a policy would not release that releases all it may."""
        return (self.off_model + self.missing) / max(self.steps, 1)


def evaluate(days: Sequence[tuple[MarkovChain, Labels]]) -> Evaluation:
    """Judge each day by the chain that it should follow."""
    off_model = missing = steps = 0
    logarithms: list[float] = []
    unknown_contexts: dict[str, None] = {}
    masks = {id(chain): _open(chain) for chain, _ in days}
    for chain, labels in days:
        masks[id(chain)].filter_day(labels)
        steps += len(labels)
        logarithms += _logarithms(chain, labels)
        unknown_contexts |= dict.fromkeys(label for label in labels if label is not None and chain.find(label) is None)
    for mask in masks.values():
        report = mask.report()
        off_model += report.off_model
        missing += report.missing
    mean = float(np.mean(logarithms)) if logarithms else None
    return Evaluation(len(days), steps, off_model, missing, tuple(sorted(unknown_contexts)), mean)


def _open(chain: MarkovChain) -> MaskIt:
    """A mask that releases whatever the chain allows; its coins decide nothing."""
    shape = (chain.horizon, chain.size)
    policy = VectorPolicy(
        Provenance("open", chain, np.full(shape, np.nan), (chain,), float(chain.horizon)), np.zeros(shape)
    )
    return MaskIt(policy, seeded(0, "judging"))


def _logarithms(chain: MarkovChain, labels: Labels) -> list[float]:
    """Those of the probabilities of the steps that the chain allows, given the step before."""
    found: list[float] = []
    before: int | None = None
    for t, label in enumerate(labels):
        index = chain.find(UNKNOWN if label is None else label)
        row = chain.initial if t == 0 else None if before is None else chain.transitions[t - 1][before]
        if index is not None and row is not None and row[index] > 0:
            found.append(float(np.log(row[index])))
        before = index
    return found
