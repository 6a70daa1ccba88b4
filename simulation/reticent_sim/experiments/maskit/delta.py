"""Figure 3.7: what a smaller delta costs, with one context at random that is sensitive, and with home."""

from __future__ import annotations

import itertools

import numpy as np

from reticent_sim.experiments import statistics
from reticent_sim.experiments.maskit.groups import OPTIMAL_EVERY, Group, at_home, at_random
from reticent_sim.experiments.maskit.sweeps import DELTAS, Sweep, note, rows
from reticent_sim.experiments.results import Finding, Result, settings_of
from reticent_sim.experiments.runner import DELTA, Runner
from reticent_sim.experiments.statistics import Estimate, percent
from reticent_sim.experiments.systems import HYBRID, LEAKY, PROBABILISTIC, SIMULATABLE
from reticent_sim.experiments.verdicts import all_of, at_least, at_most, below

NAME = "maskit-delta"
TITLE = "Utility over delta (figure 3.7)"
RANDOM, HOME = "one context at random", "home"

SMALL, GENEROUS = 0.05, 0.3
LITTLE = 0.1
"""From a generous delta to a small one the utility falls by little: by less than this part of all steps."""
WITHIN = 0.08
"""With one sensitive context the hybrid is within 8 % of MaskSensitive, as published."""


def run(runner: Runner) -> Result:
    """Compute the data of the figure."""
    subjects = runner.subjects
    protections_of = {
        RANDOM: {delta: at_random(runner, subjects, 1, delta) for delta in DELTAS},
        HOME: {delta: at_home(subjects, delta) for delta in DELTAS},
    }
    sweeps = {
        series: {delta: Group(runner, protections, every=OPTIMAL_EVERY) for delta, protections in by_delta.items()}
        for series, by_delta in protections_of.items()
    }
    runner.run(subjects, [trial for sweep in sweeps.values() for group in sweep.values() for trial in group.trials])
    for sweep in sweeps.values():
        for group in sweep.values():
            group.run()
    settings = settings_of(runner, subjects, sensitive=list(sweeps), deltas=DELTAS, note=note())
    found = [row for series, sweep in sweeps.items() for row in rows(series, "delta", sweep)]
    return Result(NAME, TITLE, settings, found, findings(sweeps[RANDOM], sweeps[HOME], runner.settings.seed))


def lost(sweep: Sweep, system: str = HYBRID) -> Estimate:
    """The loss of released steps from a generous delta to a small one, as a share of all steps."""
    pairs = zip(sweep[GENEROUS].values(system, "utility"), sweep[SMALL].values(system, "utility"), strict=True)
    return statistics.mean([one - other for one, other in pairs])


def findings(random: Sweep, home: Sweep, seed: int) -> list[Finding]:
    """The claims about this figure, compared with this run."""
    return [
        _one_context(random[DELTA], seed),
        price("price-of-a-small-delta", "A small delta costs little where one context at random is sensitive.", random),
        price("price-of-a-small-delta-for-home", "A small delta costs little where home is sensitive.", home),
        _grows(random, home),
    ]


def price(name: str, claim: str, sweep: Sweep) -> Finding:
    """Whether small deltas cost little."""
    difference = lost(sweep)
    small, generous = sweep[SMALL].estimate(HYBRID), sweep[GENEROUS].estimate(HYBRID)
    return Finding(
        name=name,
        claim=claim,
        published="small (a figure without numbers)",
        ours=(
            f"the hybrid releases {percent(generous)} at {GENEROUS} and {percent(small)} at {SMALL}: "
            f"{percent(difference)} of all steps less"
        ),
        rule=f"the interval of what is lost lies below {percent(LITTLE, 0)} of all steps",
        verdict=below(difference, LITTLE),
    )


def _one_context(group: Group, seed: int) -> Finding:
    hybrid, leaky = group.estimate(HYBRID), group.estimate(LEAKY)
    given_up = statistics.ratio(group.differences(LEAKY, HYBRID), group.values(LEAKY, "utility"), seed, NAME)
    return Finding(
        name="hybrid-near-mask-sensitive-with-one-context",
        claim="With one sensitive context the hybrid is within 8 % of MaskSensitive.",
        published="84 % and 91 %",
        ours=f"{percent(hybrid)} and {percent(leaky)}: it gives up {percent(given_up)}",
        rule=f"the interval of what it gives up lies below {percent(WITHIN, 0)}",
        verdict=at_most(given_up, WITHIN),
    )


def _values(sweep: Sweep, check: str) -> list[list[float]]:
    """The expected utility of each person, for each delta."""
    return [group.values(check, "expected") for group in sweep.values()]


def _grows(*sweeps: Sweep) -> Finding:
    def expected(check: str) -> list[list[float]]:
        return [[group.estimate(check, "expected").value for group in sweep.values()] for sweep in sweeps]

    checks = (SIMULATABLE, PROBABILISTIC, HYBRID)
    steps = [step for check in checks for sweep in sweeps for step in itertools.pairwise(_values(sweep, check))]
    return Finding(
        name="utility-grows-with-delta",
        claim="Utility decreases when delta does.",
        published="it does",
        ours="hybrid, expected: " + "; ".join(", ".join(map(percent, values)) for values in expected(HYBRID)),
        rule="from each delta to the next, the interval of the paired difference of each check is 0 or more",
        verdict=all_of(at_least(statistics.mean(np.subtract(more, less).tolist()), 0) for less, more in steps),
    )
