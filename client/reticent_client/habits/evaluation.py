"""Tests of a chain on days that it was not learned from."""

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
    """The quality of the predictions of chains for test days."""

    days: int
    steps: int
    off_model: int
    """The number of off-model steps, as `MaskIt` counts them on a phone that releases whatever it may. What is possible
    depends on the last release, so a policy that suppresses more may have another count."""
    missing: int
    """The number of steps without a reading, if the chain has no gaps."""
    unknown_contexts: tuple[str, ...]
    """The contexts that the chains of their days do not know."""
    log_likelihood: float | None
    """The mean logarithm of the probability of a step, over the steps with a probability above 0; None without any."""

    @property
    def off_model_share(self) -> float:
        """The share of the steps that even a policy without suppressions would not release."""
        return (self.off_model + self.missing) / max(self.steps, 1)


def evaluate(days: Sequence[tuple[MarkovChain, Labels]]) -> Evaluation:
    """Test each day against the chain of its kind."""
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
    """A mask that releases whatever the chain allows; its coins have no effect."""
    shape = (chain.horizon, chain.size)
    policy = VectorPolicy(
        Provenance("open", chain, np.full(shape, np.nan), (chain,), float(chain.horizon)), np.zeros(shape)
    )
    return MaskIt(policy, seeded(0, "judging"))


def _logarithms(chain: MarkovChain, labels: Labels) -> list[float]:
    """The logarithms of the probabilities of the allowed steps, given the step before."""
    found: list[float] = []
    before: int | None = None
    for t, label in enumerate(labels):
        index = chain.find(UNKNOWN if label is None else label)
        row = chain.initial if t == 0 else None if before is None else chain.transitions[t - 1][before]
        if index is not None and row is not None and row[index] > 0:
            found.append(float(np.log(row[index])))
        before = index
    return found
