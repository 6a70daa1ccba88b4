"""The conformance suite of aggregation stores: `CHECKS`, to be run over every implementation.

A check gets a function that opens the same store again and again: in threads, in processes, and after a kill. It is
called in other processes as well, so it must be picklable.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.agg.store_conformance import atomicity, contributions, decisions, queries
from tests.agg.store_conformance.values import Opener

__all__ = ["CHECKS", "Check", "Opener"]

Check = Callable[[Opener], None]

CHECKS: list[Check] = [
    check
    for module in (atomicity, contributions, queries, decisions)
    for name, check in sorted(vars(module).items())
    if name.startswith("check_")
]
