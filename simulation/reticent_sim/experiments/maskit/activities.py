"""Figure 3.9: contexts that are activities on the phone and ways of moving, instead of places."""

from __future__ import annotations

from reticent_sim.experiments.maskit.delta import lost, price
from reticent_sim.experiments.maskit.groups import OPTIMAL_EVERY, Group, at_random, percent
from reticent_sim.experiments.maskit.sweeps import DELTAS, Sweep, note, rows
from reticent_sim.experiments.results import Finding, Result, described
from reticent_sim.experiments.runner import Laboratory
from reticent_sim.experiments.subjects import Subject
from reticent_sim.experiments.systems import HYBRID, LEAKY

NAME = "maskit-activities"
TITLE = "Utility over delta with activity contexts (figure 3.9)"
ACTIVITIES, PLACES = "activities", "places of the same people"

ALIKE = 0.1
"""Results are similar if the hybrid keeps a part of MaskSensitive's utility that differs by less than this."""


def run(laboratory: Laboratory) -> Result:
    """Compute everything that the figure shows; the places of the same people only where they are known."""
    active = laboratory.active
    if not active:
        raise ValueError("nobody's activities are known: ask for more people")
    sweeps = {ACTIVITIES: _sweep(laboratory, active, activities=True)}
    if laboratory.settings.traces is None:
        names = {who.name for who in active}
        same = [who for who in laboratory.everybody if who.name in names]
        sweeps[PLACES] = _sweep(laboratory, same, activities=False)
    settings = described(laboratory, active, sensitive="one context at random", deltas=DELTAS, note=note())
    found = [row for series, sweep in sweeps.items() for row in rows(series, "delta", sweep)]
    return Result(NAME, TITLE, settings, found, findings(sweeps))


def _sweep(laboratory: Laboratory, people: list[Subject], *, activities: bool) -> Sweep:
    sweep = {
        delta: Group(laboratory, at_random(laboratory, people, 1, delta), every=OPTIMAL_EVERY, activities=activities)
        for delta in DELTAS
    }
    laboratory.ask(people, [q for group in sweep.values() for q in group.questions], activities=activities)
    return {delta: group.ask() for delta, group in sweep.items()}


def _kept(sweep: Sweep) -> list[float]:
    """The part of MaskSensitive's utility that the hybrid keeps, for each delta."""
    return [group.estimate(HYBRID).value / max(group.estimate(LEAKY).value, 1e-9) for group in sweep.values()]


def findings(sweeps: dict[str, Sweep]) -> list[Finding]:
    """What the text says of this figure, and what it is here."""
    activities = sweeps[ACTIVITIES]
    found = [
        price("price-of-a-small-delta-for-activities", "A small delta costs little for activities too.", activities)
    ]
    if PLACES not in sweeps:
        return found
    kept = {series: _kept(sweep) for series, sweep in sweeps.items()}
    apart = max(abs(one - other) for one, other in zip(*kept.values(), strict=True))
    return [
        *found,
        Finding(
            name="activities-are-like-places",
            claim="The results for activities are very similar to those for places.",
            published="very similar (a figure without numbers)",
            ours="; ".join(
                f"{series}: the hybrid keeps {', '.join(percent(value, 0) for value in values)} of MaskSensitive's "
                f"utility and loses {percent(lost(sweeps[series]).value)} of all steps"
                for series, values in kept.items()
            ),
            rule=f"at every delta, what is kept of MaskSensitive's utility differs by less than {percent(ALIKE, 0)}",
            holds=apart < ALIKE,
        ),
    ]
