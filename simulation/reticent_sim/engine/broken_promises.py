"""The promises of the masks and the counts that a run has broken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reticent.privacy import Query
from reticent_analyst.cohort_odds import no_release
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.engine.count_outcome import CountOutcome
from reticent_sim.engine.exactness import WILD
from reticent_sim.engine.messages import MaskLeakage
from reticent_sim.engine.observer import TOLERANCE
from reticent_sim.engine.scenario import Scenario

__all__ = ["broken_promises"]

UNLIKELY = 1e-4
"""A query that absent phones burn with a smaller probability must not be burnt without another cause."""


def broken_promises(
    scenario: Scenario, masks: Sequence[MaskLeakage], outcomes: Sequence[CountOutcome], *, faults: bool
) -> Iterator[str]:
    """Broken promises, a sentence each.

    Args:
        scenario: The scenario.
        masks: The rises of beliefs under each check.
        outcomes: The outcomes of all queries.
        faults: Whether there were faults.
    """
    for each in masks:
        if each.check in CHECKS and CHECKS[each.check].private and each.largest > scenario.delta + TOLERANCE:
            yield f"the check {each.check} let a belief rise by {each.largest:.6g}: more than delta = {scenario.delta}"
        if each.forbidden:
            yield f"the check {each.check} must suppress {each.forbidden} of the contexts that phones released"
    for outcome in outcomes:
        if outcome.exact is False:
            yield f"the release of {outcome.query.id!r} is not the sum of what the phones contributed"
        counted = sum(outcome.progress.contributors)
        if counted < outcome.acknowledged:
            yield (
                f"{outcome.query.id!r} has {counted} contributions, but {outcome.acknowledged} phones have an "
                "acknowledgement"
            )
        if "void" in outcome.progress.outcomes and WILD not in scenario.malice.values():
            yield f"a cohort of {outcome.query.id!r} is void, but no phone contributes wild values"
        if outcome.burnt is not None and not scenario.malice and not faults and _is_unlikely(scenario, outcome.query):
            yield f"{outcome.query.id!r} is burnt, but there were no faults, and too few phones were absent for that"


def _is_unlikely(scenario: Scenario, query: Query) -> bool:
    """Whether absent phones alone are unlikely to burn a query."""
    return no_release(query.population, query.cohorts, query.min_contributions, scenario.absent) < UNLIKELY
