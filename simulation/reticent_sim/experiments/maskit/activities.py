"""Figure 3.9: contexts that are activities on the phone and ways of moving, instead of places."""

from __future__ import annotations

from reticent_sim.experiments import statistics
from reticent_sim.experiments.maskit.delta import lost, price
from reticent_sim.experiments.maskit.groups import OPTIMAL_EVERY, Group, at_random
from reticent_sim.experiments.maskit.sweeps import DELTAS, Sweep, note, rows
from reticent_sim.experiments.results import Finding, Result, settings_of
from reticent_sim.experiments.runner import Runner
from reticent_sim.experiments.statistics import percent
from reticent_sim.experiments.subjects import Subject
from reticent_sim.experiments.systems import HYBRID, LEAKY
from reticent_sim.experiments.verdicts import Verdict, above, all_of, below

NAME = "maskit-activities"
TITLE = "Utility over delta with activity contexts (figure 3.9)"
ACTIVITIES, PLACES = "activities", "places of the same people"

ALIKE = 0.1
"""Results are similar if the hybrid keeps a part of MaskSensitive's utility that differs by less than this."""


def run(runner: Runner) -> Result:
    """Compute the data of the figure; the places of the same people only where they are known."""
    active_subjects = runner.active_subjects
    if not active_subjects:
        raise ValueError("no activities were recorded: use more people")
    sweeps = {ACTIVITIES: _sweep(runner, active_subjects, activities=True)}
    if runner.settings.traces is None:
        names = {subject.name for subject in active_subjects}
        same = [subject for subject in runner.subjects if subject.name in names]
        sweeps[PLACES] = _sweep(runner, same, activities=False)
    settings = settings_of(runner, active_subjects, sensitive="one context at random", deltas=DELTAS, note=note())
    found = [row for series, sweep in sweeps.items() for row in rows(series, "delta", sweep)]
    return Result(NAME, TITLE, settings, found, findings(sweeps, runner.settings.seed))


def _sweep(runner: Runner, people: list[Subject], *, activities: bool) -> Sweep:
    sweep = {
        delta: Group(runner, at_random(runner, people, 1, delta), every=OPTIMAL_EVERY, activities=activities)
        for delta in DELTAS
    }
    runner.run(people, [trial for group in sweep.values() for trial in group.trials], activities=activities)
    return {delta: group.run() for delta, group in sweep.items()}


def _kept(sweep: Sweep) -> list[float]:
    """The part of MaskSensitive's utility that the hybrid keeps, for each delta."""
    return [group.estimate(HYBRID).value / max(group.estimate(LEAKY).value, 1e-9) for group in sweep.values()]


def _alike(sweeps: dict[str, Sweep], seed: int) -> Verdict:
    """Whether the parts of MaskSensitive's utility that the hybrid keeps are similar, for people who are in both."""
    verdicts = []
    for delta, groups in ((delta, [sweeps[series][delta] for series in (ACTIVITIES, PLACES)]) for delta in DELTAS):
        by_name = [{subject.name: subject for subject in group.people} for group in groups]
        both = sorted(by_name[0].keys() & by_name[1].keys())
        hybrid, leaky = (
            [
                group.values(system, "utility", [people[name] for name in both])
                for group, people in zip(groups, by_name, strict=True)
            ]
            for system in (HYBRID, LEAKY)
        )
        apart = statistics.difference_of_ratios((hybrid[0], leaky[0]), (hybrid[1], leaky[1]), seed, NAME, repr(delta))
        verdicts += [below(apart, ALIKE), above(apart, -ALIKE)]
    return all_of(verdicts)


def findings(sweeps: dict[str, Sweep], seed: int) -> list[Finding]:
    """The claims about this figure, compared with this run."""
    activities = sweeps[ACTIVITIES]
    found = [
        price("price-of-a-small-delta-for-activities", "A small delta costs little for activities too.", activities)
    ]
    if PLACES not in sweeps:
        return found
    kept = {series: _kept(sweep) for series, sweep in sweeps.items()}
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
            rule=(
                "at every delta, the interval of the difference of what is kept of MaskSensitive's utility lies within "
                f"{percent(ALIKE, 0)}"
            ),
            verdict=_alike(sweeps, seed),
        ),
    ]
