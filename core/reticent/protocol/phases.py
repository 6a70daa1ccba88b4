"""What the server, its operator and analysts say in the same words: phases, outcomes, who is away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from reticent.v1 import counting_pb2 as wire

__all__ = ["KEY_SERVER_AWAY", "OUTCOMES", "PHASES", "Outcome", "Phase", "outcomes_text", "phase_of"]

Phase = Literal["announced", "refused", "collecting", "closing", "decided", "lost"]
"""Where a query is; "refused" where the key server does not countersign it, "lost" where it will never be decided."""
Outcome = Literal["released", "burnt", "void"]
"""What became of a cohort."""

PHASES: Mapping[int, Phase] = {
    wire.ANNOUNCED: "announced",
    wire.REFUSED: "refused",
    wire.COLLECTING: "collecting",
    wire.CLOSING: "closing",
    wire.DECIDED: "decided",
    wire.LOST: "lost",
}
"""In words, by their numbers on the wire."""
OUTCOMES: Mapping[int, Outcome] = {wire.RELEASED: "released", wire.BURNT: "burnt", wire.VOID: "void"}
"""Likewise."""

KEY_SERVER_AWAY = "the key server cannot be reached"
"""Why the aggregation server cannot do something: by these words the analyst's side knows who is waited for."""


def phase_of(kept: int, *, is_refused: bool) -> wire.Phase.ValueType:
    """Where a query is of which this phase is kept, and whether the key server has refused what it was asked last."""
    if is_refused:
        return wire.REFUSED if kept == wire.ANNOUNCED else wire.LOST
    return wire.Phase.ValueType(kept)


def outcomes_text(outcomes: Sequence[str]) -> str:
    """What became of cohorts, in one phrase.

    >>> outcomes_text(["released"] * 3), outcomes_text(["released", "burnt", "released"])
    ('released', '2 released, 1 burnt')
    """
    kinds = [each for each in OUTCOMES.values() if each in outcomes]
    if len(kinds) == 1:
        return kinds[0]
    return ", ".join(f"{outcomes.count(each)} {each}" for each in kinds)
