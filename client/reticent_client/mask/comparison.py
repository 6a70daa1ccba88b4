"""All checks side by side: what each releases for several deltas, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reticent.errors import MissingExtra
from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.checks.registry import CHECKS
from reticent_client.mask.occupancy import AverageDay
from reticent_client.mask.problem import SensitiveState, Weights

Progress = Callable[[str, float | None], None]
"""Called with a check and a delta before each policy is computed."""


@dataclass(frozen=True)
class ComparedPolicy:
    """The releases of a check on an average day, for a delta."""

    check: str
    delta: float | None
    """None for a check that promises none."""
    released: float
    """The number of released contexts."""
    contexts: float
    """The number of all contexts."""
    utility: float
    """The released contexts by their weights."""
    readings: float
    """All contexts by their weights."""
    ceiling: float | None
    """The highest utility of any private policy, if the check found it."""
    complete: bool
    """Whether the search was finished."""
    seconds: float

    @property
    def share(self) -> float:
        """The released part of the readings, by their weights."""
        return self.utility / self.readings if self.readings else 0.0

    def to_json(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self) | {"share": self.share}


def compare(
    chain: MarkovChain,
    sensitive: Collection[SensitiveState],
    deltas: Sequence[float],
    *,
    checks: Collection[str] | None = None,
    weights: Weights | None = None,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> list[ComparedPolicy]:
    """Compute the policy of each check for each delta; a check whose extra is missing is left out.

    Args:
        chain: The user's chain.
        sensitive: Contexts, or (step, context) pairs.
        deltas: The deltas to compare. A check that promises none is computed once.
        checks: The names of the checks; all by default.
        weights: What the release of each context is worth.
        time_limit: The number of seconds after which each search stops.
        progress: Called before each policy is computed.
    """
    rows = []
    for check in CHECKS.values():
        if checks is not None and check.name not in checks:
            continue
        for delta in deltas if check.private else [None]:
            if progress is not None:
                progress(check.name, delta)
            options: dict[str, Any] = {"weights": weights}
            if delta is not None:
                options["delta"] = delta
            if time_limit is not None and "time_limit" in check.options:
                options["time_limit"] = time_limit
            begin = time.perf_counter()
            try:
                found = check.compute(chain, sensitive=sensitive, **options)
            except MissingExtra:
                break
            taken = time.perf_counter() - begin
            day = AverageDay.of(found)
            rows.append(
                ComparedPolicy(
                    check=check.name,
                    delta=delta,
                    released=day.released_contexts,
                    contexts=day.contexts,
                    utility=found.utility,
                    readings=found.readings,
                    ceiling=found.ceiling,
                    complete=found.complete,
                    seconds=taken,
                )
            )
    return rows
