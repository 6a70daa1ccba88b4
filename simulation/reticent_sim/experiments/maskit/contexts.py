"""Figure 3.8: the more contexts are sensitive, the less is released."""

from __future__ import annotations

import numpy as np

from reticent_sim.experiments import statistics
from reticent_sim.experiments.maskit.groups import OPTIMAL_EVERY, Group, at_random
from reticent_sim.experiments.maskit.sweeps import Sweep, note, rows
from reticent_sim.experiments.results import Finding, Result, settings_of
from reticent_sim.experiments.runner import DELTA, Runner
from reticent_sim.experiments.statistics import percent
from reticent_sim.experiments.systems import HYBRID, LEAKY, PROBABILISTIC, PUBLISHED, SIMULATABLE
from reticent_sim.experiments.verdicts import above, all_of, at_least, below

NAME = "maskit-contexts"
TITLE = "Utility over the number of sensitive contexts (figure 3.8)"

MIN_CONTEXTS, MAX_CONTEXTS, PEOPLE = 15, 20, 25
"""The text takes 25 people with 15 to 20 contexts."""
COUNTS = (1, 2, 3, 4, 6, 8, 10, 12, 14)


def run(runner: Runner) -> Result:
    """Compute the data of the figure."""
    counts = [len(subject.contexts) for subject in runner.subjects]
    people = [subject for subject in runner.subjects if MIN_CONTEXTS <= len(subject.contexts) <= MAX_CONTEXTS][:PEOPLE]
    if len(people) < 2:
        raise ValueError(
            f"{NAME} needs two people with {MIN_CONTEXTS} to {MAX_CONTEXTS} contexts in the first half of their days: "
            f"there are {len(people)}, and the {len(counts)} participants have {min(counts)} to {max(counts)}"
        )
    sweep: Sweep = {count: Group(runner, at_random(runner, people, count), every=OPTIMAL_EVERY) for count in COUNTS}
    runner.run(people, [trial for group in sweep.values() for trial in group.trials])
    for group in sweep.values():
        group.run()
    settings = settings_of(runner, people, sensitive="at random, the same and more", delta=DELTA, note=note())
    found = rows("at random", "sensitive_contexts", sweep)
    return Result(NAME, TITLE, settings, found, findings(sweep, runner.settings.seed))


def findings(sweep: Sweep, seed: int) -> list[Finding]:
    """The claims about this figure, compared with this run."""
    per_person = {s: [group.values(s, "utility") for group in sweep.values()] for s in PUBLISHED}  # (counts, people)
    values = {s: [float(np.mean(people)) for people in per_person[s]] for s in PUBLISHED}
    checks = (SIMULATABLE, PROBABILISTIC, HYBRID)
    slopes = {s: statistics.mean(np.polyfit(COUNTS, per_person[s], 1)[0].tolist()) for s in PUBLISHED}
    kept = {s: values[s][-1] / max(values[s][0], 1e-9) for s in PUBLISHED}
    leads = [
        statistics.difference_of_ratios(
            (per_person[HYBRID][-1], per_person[HYBRID][0]), (per_person[check][-1], per_person[check][0]), seed, NAME
        )
        for check in (SIMULATABLE, PROBABILISTIC)
    ]
    ahead = {count: statistics.mean(group.differences(HYBRID, LEAKY)) for count, group in sweep.items()}
    ahead_with = [count for count, difference in ahead.items() if difference.value > 0]
    most = ahead[COUNTS[-1]]
    return [
        Finding(
            name="utility-falls-with-more-contexts",
            claim="The utility of every check falls with the number of sensitive contexts.",
            published="it does",
            ours=", ".join(f"{s} from {percent(v[0])} to {percent(v[-1])}" for s, v in values.items()),
            rule=f"the interval of the slope over {COUNTS[0]} to {COUNTS[-1]} contexts lies below 0 for every system",
            verdict=all_of(below(slope, 0) for slope in slopes.values()),
        ),
        Finding(
            name="hybrid-falls-slowest",
            claim="Of the three checks, the hybrid's utility falls slowest.",
            published="it does",
            ours=", ".join(f"{s} {percent(kept[s])}" for s in checks)
            + f" of its utility with {COUNTS[0]} is left with {COUNTS[-1]}; in points for each context "
            + ", ".join(f"{s} {100 * slopes[s].value:.2f}" for s in checks),
            rule=(
                "it keeps the largest part of what it released with one sensitive context: the intervals of both "
                "differences lie above 0"
            ),
            verdict=all_of(at_least(lead, 0) for lead in leads),
        ),
        Finding(
            name="hybrid-above-mask-sensitive",
            claim="With many sensitive contexts the hybrid releases more than MaskSensitive.",
            published="it does (not shown)",
            ours=(
                f"with {COUNTS[-1]} sensitive contexts {percent(most)} of all steps more; it is ahead with "
                f"{', '.join(map(str, ahead_with)) or 'no number of them'}"
            ),
            rule=f"the interval of the difference with {COUNTS[-1]} sensitive contexts lies above 0",
            verdict=above(most, 0),
        ),
    ]
