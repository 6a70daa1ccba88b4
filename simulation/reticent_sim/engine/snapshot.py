"""The state of a run, for a display."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Snapshot"]


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment.

    Args:
        day: The simulated day, from 0.
        step: The hour of that day.
        days: The days of the run.
        phase: What the run does.
        phones: The phones of the run.
        present: Those that are not absent.
        contributions: The contributions that the servers have acknowledged.
        rate: Those of a second, of late.
        epsilon_spent: What the phone that spent most has spent.
        epsilon_limit: The most that a phone may spend.
        seconds: The time since the run began.
    """

    day: int
    step: int
    days: int
    phase: str
    phones: int
    present: int
    contributions: int
    rate: float
    epsilon_spent: float
    epsilon_limit: float
    seconds: float
