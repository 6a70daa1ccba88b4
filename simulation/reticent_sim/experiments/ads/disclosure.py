"""Figure 4.6: precision and coverage at different levels of generalisation, beside client-only selection."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from reticent_sim.experiments.ads.exact_rates import exact_rates
from reticent_sim.experiments.ads.measured import (
    COVERAGE,
    PRECISION,
    Measured,
    MeasuresOf,
    SampleRunner,
    Setting,
    settings_of,
)
from reticent_sim.experiments.ads.samples import Sample
from reticent_sim.experiments.ads.serving import LEAST_RATE, SUPPORT, Measures, SimulatedService
from reticent_sim.experiments.results import Finding, Result
from reticent_sim.experiments.statistics import Estimate, percent
from reticent_sim.experiments.verdicts import Verdict, above, all_of, below

NAME = "ads-disclosure"
TITLE = "Precision and coverage over what is disclosed (figure 4.6)"

LEVELS = {"(0, 0, 0)": 0, "(1, 1, 1)": 3, "(3, 2, 1)": 6, "(3, 2, 2)": 7, "(4, 2, 2)": 8}
"""The levels of location, interest and query, and the level of the hierarchy."""
EXACT, LIMITED, GENERAL = "(0, 0, 0)", "(1, 1, 1)", "(4, 2, 2)"
CLIENT_ONLY = "client-only"
NUMBERS = FEW, MANY = 10, 50
LEAST_RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)

CLOSE = 0.02
"""Results are very close if they differ by less than this."""


def run(runner: SampleRunner) -> Result:
    """Compute the data of the figure."""
    measured = runner.run(measure, ("disclosed", "ads", "least_rate"))
    settings = settings_of(runner.settings, support=SUPPORT, levels=list(LEVELS))
    return Result(NAME, TITLE, settings, measured.rows(), findings(measured))


def measure(sample: Sample) -> MeasuresOf:
    """The results of a sample."""
    trial = sample.trial()
    hierarchy = trial.data.training.hierarchy
    service = SimulatedService(trial.data, exact_rates(trial.data.training), SUPPORT)
    found: dict[Setting, Measures] = {}
    for least_rate in LEAST_RATES:
        revenues = service.revenues(least_rate)
        shown = {
            name: service.hybrid(trial, hierarchy.at_level(level), revenues, NUMBERS) for name, level in LEVELS.items()
        }
        shown[CLIENT_ONLY] = service.client_only(trial, revenues, NUMBERS)
        for name, both in shown.items():
            found |= {(name, ads, least_rate): trial.measure(each) for ads, each in zip(NUMBERS, both, strict=True)}
    return {
        (name, ads, rate): found[name, ads, rate]
        for name in (*LEVELS, CLIENT_ONLY)
        for ads in NUMBERS
        for rate in LEAST_RATES
    }


def findings(measured: Measured) -> list[Finding]:
    """The claims about this figure, compared with this run."""
    return [_specific(measured), _limited(measured), _bought(measured), _client_only(measured)]


def _specific(measured: Measured) -> Finding:
    settings = (EXACT, FEW, LEAST_RATE), (GENERAL, FEW, LEAST_RATE)
    changes = [measured.difference(*settings, which) for which in (PRECISION, COVERAGE)]
    return Finding(
        name="specific-contexts-help",
        claim="Precision and coverage increase as more specific contexts are sent.",
        published="they do (a figure)",
        ours=f"from {GENERAL} to {EXACT}, precision gains {percent(changes[0])}, coverage {percent(changes[1])}",
        rule="the intervals of both paired differences lie above 0",
        verdict=all_of(above(change, 0) for change in changes),
    )


def _limited(measured: Measured) -> Finding:
    def verdict(change: Estimate) -> Verdict:
        return all_of([below(change, CLOSE), above(change, -CLOSE)])

    settings = [
        (ads, rate) for ads in NUMBERS for rate in LEAST_RATES if measured.estimate((EXACT, ads, rate), COVERAGE).value
    ]
    changes = [
        measured.difference((LIMITED, *each), (EXACT, *each), which)
        for each in settings
        for which in (PRECISION, COVERAGE)
    ]
    largest = max(changes, key=lambda change: abs(change.value))
    return Finding(
        name="limited-privacy-costs-little",
        claim=f"Limited privacy, {LIMITED}, is very close to none, {EXACT}.",
        published="very close (a figure)",
        ours=f"over all thresholds and both numbers of ads, they differ by {percent(largest)} at most",
        rule=f"the intervals of all paired differences lie within {percent(CLOSE, 0)}",
        verdict=all_of(map(verdict, changes)),
    )


def _bought(measured: Measured) -> Finding:
    settings = (GENERAL, FEW, LEAST_RATE), (GENERAL, MANY, LEAST_RATE), (EXACT, FEW, LEAST_RATE)
    estimates = [measured.estimate(setting, COVERAGE) for setting in settings]
    few, many, exact = settings
    regained = measured.mean(lambda at: at[many].coverage - (at[few].coverage + at[exact].coverage) / 2)
    return Finding(
        name="more-ads-buy-back-privacy",
        claim="More ads make up for a more general context.",
        published=f"{GENERAL} reaches precision 0.85 with coverage 0.3 with 50 ads, and not with 10",
        ours=(
            f"coverage of {GENERAL} {percent(estimates[0])} with {FEW} ads and {percent(estimates[1])} with {MANY}; "
            f"of {EXACT} {percent(estimates[2])} with {FEW}"
        ),
        rule="the interval shows that 50 ads regain more than half of the coverage that generalisation costs",
        verdict=above(regained, 0),
    )


def _client_only(measured: Measured) -> Finding:
    client = CLIENT_ONLY, FEW, LEAST_RATE

    def ours(sample: MeasuresOf) -> float:
        return coverage_at(sample[client].precision, [sample[LIMITED, FEW, rate] for rate in LEAST_RATES])

    lead = measured.mean(lambda sample: ours(sample) - sample[client].coverage)
    precision, coverage = (measured.estimate(client, which) for which in (PRECISION, COVERAGE))
    return Finding(
        name="better-than-client-only",
        claim=f"At the same precision, {LIMITED} has a higher coverage than client-only selection.",
        published="0.4 instead of 0.2, at precision 0.75",
        ours=f"{percent(measured.mean(ours))} instead of {percent(coverage)}, at precision {percent(precision)}",
        rule="the interval of the paired difference lies above 0; client-only has the threshold 0.3",
        verdict=above(lead, 0),
    )


def coverage_at(precision: float, curve: Sequence[Measures]) -> float:
    """The largest coverage at a precision, on the lines between successive points of a curve; 0 if it is not reached.

    >>> coverage_at(0.3, [Measures(0.2, 0.8, 0.0), Measures(0.4, 0.6, 0.0)])
    0.7
    """
    best = max((each.coverage for each in curve if each.precision >= precision), default=0.0)
    for one, other in pairwise(curve):
        low, high = sorted((one, other))
        if low.precision <= precision < high.precision:
            share = (precision - low.precision) / (high.precision - low.precision)
            best = max(best, low.coverage + share * (high.coverage - low.coverage))
    return round(best, 12)
