"""Words that the aggregation server, its operator and analysts share: phases of queries and outcomes of cohorts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from reticent.v1 import counting_pb2 as wire

__all__ = ["KEY_SERVER_UNAVAILABLE", "OUTCOMES", "PHASES", "Outcome", "Phase", "outcomes_text", "phase_of"]

Phase = Literal["announced", "refused", "collecting", "closing", "decided", "lost"]
"""The phase of a query: "refused" if the key server does not countersign it, "lost" if it will never be decided."""
Outcome = Literal["released", "burnt", "void"]
"""The outcome of a cohort."""

PHASES: Mapping[int, Phase] = {
    wire.ANNOUNCED: "announced",
    wire.REFUSED: "refused",
    wire.COLLECTING: "collecting",
    wire.CLOSING: "closing",
    wire.DECIDED: "decided",
    wire.LOST: "lost",
}
"""By their numbers on the wire."""
OUTCOMES: Mapping[int, Outcome] = {wire.RELEASED: "released", wire.BURNT: "burnt", wire.VOID: "void"}
"""By their numbers on the wire."""

KEY_SERVER_UNAVAILABLE = "the key server cannot be reached"
"""The detail of a refusal by the aggregation server, from which the analyst's program knows the cause."""


def phase_of(kept: int, *, is_refused: bool) -> wire.Phase.ValueType:
    """The phase of a query, from its stored phase and whether the key server refused the last request."""
    if is_refused:
        return wire.REFUSED if kept == wire.ANNOUNCED else wire.LOST
    return wire.Phase.ValueType(kept)


def outcomes_text(outcomes: Sequence[str]) -> str:
    """The outcomes of cohorts in one phrase.

    >>> outcomes_text(["released"] * 3), outcomes_text(["released", "burnt", "released"])
    ('released', '2 released, 1 burnt')
    """
    kinds = [each for each in OUTCOMES.values() if each in outcomes]
    if len(kinds) == 1:
        return kinds[0]
    return ", ".join(f"{outcomes.count(each)} {each}" for each in kinds)
