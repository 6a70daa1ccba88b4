"""The checks that tests run on, read from the registry."""

from collections.abc import Callable
from typing import Any

from reticent_client import MarkovChain, Policy, simulatable
from reticent_client.mask.checks.registry import CHECKS

Compute = Callable[..., Policy]


def best_plan(chain: MarkovChain, **options: Any) -> Policy:
    """The simulatable check that waits if waiting releases more."""
    return simulatable(chain, plan="best", **options)


PRIVATE: list[Compute] = [check.compute for check in CHECKS.values() if check.private]
VARIANTS: list[Compute] = [*PRIVATE, best_plan]
SEARCHING: list[Compute] = [check.compute for check in CHECKS.values() if "effort" in check.options]
AGAINST: list[Compute] = [check.compute for check in CHECKS.values() if "against" in check.options]
QUICK: list[Compute] = [check.compute for check in CHECKS.values() if check.private and check.extra is None]
"""The private checks that need no solver."""
