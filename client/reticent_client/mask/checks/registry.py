"""The checks of Götz's dissertation and our own: each is a function of a chain that returns a policy.

    check(chain, sensitive={"hospital"}, delta=0.1)

`sensitive` holds contexts or (step, context) pairs, or maps each to a delta of its own. `against` names the chains that
an adversary may know for certain, the user's own by default. `weights` says what the release of each context is worth:
1 by default, and 0 for "unknown", which stands for a gap. Every private check keeps one promise: for every output
that can occur, every step and every sensitive context, the adversary's belief rises by at most delta.

The command line, the demo, the experiments, the benchmarks and the tests read `CHECKS`. A new check is a file in this
folder and an entry here. An option that no check had before also needs a flag of `reticent mask policy`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.checks.adaptive import adaptive
from reticent_client.mask.checks.hybrid import hybrid
from reticent_client.mask.checks.mask_sensitive import mask_sensitive
from reticent_client.mask.checks.optimal import optimal
from reticent_client.mask.checks.probabilistic import probabilistic
from reticent_client.mask.checks.simulatable import simulatable
from reticent_client.mask.policy import Policy
from reticent_client.mask.problem import Sensitive

__all__ = ["adaptive", "hybrid", "mask_sensitive", "optimal", "probabilistic", "simulatable"]
"""The checks, by their public names: `reticent_client` exports these."""


@dataclass(frozen=True)
class Check:
    """A check, and what a program must know to offer it."""

    compute: Callable[..., Policy]
    summary: str
    """In one sentence: what decides whether a context is released."""
    private: bool = True
    """Whether the check keeps the promise. Only private checks take a delta."""
    extra: str | None = None
    """The extra of the `reticent` distribution that computing the policy needs; running the policy never needs one."""

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.compute.__name__

    @property
    def options(self) -> frozenset[str]:
        """The names of the options that a user can choose."""
        return frozenset(inspect.signature(self.compute).parameters) - {"chain", "sensitive", "progress"}

    @property
    def reports(self) -> bool:
        """Whether the check takes a function `progress`, to call with the utility and the ceiling so far."""
        return "progress" in inspect.signature(self.compute).parameters

    def policy(self, chain: MarkovChain, sensitive: Sensitive, delta: float, **options: Any) -> Policy:
        """The check's policy; a check that is not private ignores delta."""
        if "delta" in self.options:
            options["delta"] = delta
        return self.compute(chain, sensitive=sensitive, **options)


CHECKS: Mapping[str, Check] = {
    check.name: check
    for check in (
        Check(mask_sensitive, "Suppresses the sensitive contexts and nothing else; it leaks.", private=False),
        Check(simulatable, "Decides by the last release only."),
        Check(probabilistic, "Suppresses each context at each step with a fixed probability."),
        Check(hybrid, "Takes the better of simulatable and probabilistic for this user."),
        Check(adaptive, "Decides by the last release and the current context."),
        Check(optimal, "Releases as much as any private policy can, and computes how much that is.", extra="plan"),
    )
}
"""All checks by name, from the one that leaks to the one that releases most."""
