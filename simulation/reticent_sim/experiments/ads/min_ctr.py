"""Figure 4.4: precision and coverage over the least click-through rate of an ad that is shown."""

from __future__ import annotations

from reticent_sim.experiments.ads.exact_rates import exact_rates
from reticent_sim.experiments.ads.measured import (
    COVERAGE,
    PRECISION,
    REVENUE,
    Measured,
    MeasuresOf,
    SampleRunner,
    Setting,
    settings_of,
)
from reticent_sim.experiments.ads.samples import Sample
from reticent_sim.experiments.ads.serving import ADS, LEVEL, SUPPORT, Measures, SimulatedService
from reticent_sim.experiments.results import Finding, Result
from reticent_sim.experiments.statistics import percent
from reticent_sim.experiments.verdicts import Verdict, above, all_of, any_of, below

NAME = "ads-min-ctr"
TITLE = "Precision and coverage over the least click-through rate (figure 4.4)"

LEAST_RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
SUPPORTS = (SUPPORT, 10.0)
"""The fewest views of a rate: as published, and ours."""
LOW, HIGH = 0.1, 0.6
"""Thresholds that are compared."""
PUBLISHED = {PRECISION: 0.48, COVERAGE: 0.47}


def run(runner: SampleRunner) -> Result:
    """Compute the data of the figure."""
    measured = runner.run(measure, ("support", "least_rate"))
    settings = settings_of(runner.settings, ads=ADS, level=LEVEL, supports=SUPPORTS)
    return Result(NAME, TITLE, settings, measured.rows(), findings(measured))


def measure(sample: Sample) -> MeasuresOf:
    """The results of a sample."""
    trial = sample.trial()
    cut = trial.data.training.hierarchy.at_level(LEVEL)
    table = exact_rates(trial.data.training)
    found: dict[Setting, Measures] = {}
    for support in SUPPORTS:
        service = SimulatedService(trial.data, table, support)
        for least_rate in LEAST_RATES:
            [shown] = service.hybrid(trial, cut, service.revenues(least_rate), [ADS])
            found[support, least_rate] = trial.measure(shown)
    return found


def findings(measured: Measured) -> list[Finding]:
    """The claims about this figure, compared with this run."""
    return [_trade(measured), _revenue(measured), _both_high(measured), _support(measured)]


def _trade(measured: Measured) -> Finding:
    changes = [measured.difference((SUPPORT, HIGH), (SUPPORT, LOW), which) for which in (PRECISION, COVERAGE)]
    return Finding(
        name="threshold-trades-coverage-for-precision",
        claim="A higher threshold on the click-through rate raises precision and lowers coverage.",
        published="it does (a figure)",
        ours=f"from {LOW} to {HIGH}, precision changes by {percent(changes[0])}, coverage by {percent(changes[1])}",
        rule="the interval of the paired difference lies above 0 for precision and below 0 for coverage",
        verdict=all_of([above(changes[0], 0), below(changes[1], 0)]),
    )


def _revenue(measured: Measured) -> Finding:
    change = measured.difference((SUPPORT, HIGH), (SUPPORT, LOW), REVENUE)
    least, most = (measured.estimate((SUPPORT, rate), REVENUE).value for rate in (HIGH, LOW))
    return Finding(
        name="threshold-costs-revenue",
        claim="A high threshold reduces the clicks, and with them the revenue.",
        published="it does",
        ours=f"a context pays {most:.3f} at {LOW} and {least:.3f} at {HIGH}",
        rule="the interval of the paired difference lies below 0",
        verdict=below(change, 0),
    )


def _both_high(measured: Measured) -> Finding:
    def verdict(least_rate: float) -> Verdict:
        return all_of(
            above(measured.estimate((SUPPORT, least_rate), which), bound) for which, bound in PUBLISHED.items()
        )

    def smaller(least_rate: float) -> float:
        return min(measured.estimate((SUPPORT, least_rate), which).value for which in PUBLISHED)

    best = max(LEAST_RATES, key=smaller)
    precision, coverage = (measured.estimate((SUPPORT, best), which) for which in PUBLISHED)
    return Finding(
        name="high-precision-with-high-coverage",
        claim="High precision and high coverage can be achieved together.",
        published="precision 0.48 with coverage 0.47",
        ours=f"at the threshold {best}, precision {percent(precision)} with coverage {percent(coverage)}",
        rule="at some threshold, both intervals lie above the published numbers",
        verdict=any_of(verdict(least_rate) for least_rate in LEAST_RATES),
    )


def _support(measured: Measured) -> Finding:
    more, published = ((support, HIGH) for support in (SUPPORTS[1], SUPPORT))
    change = measured.difference(more, published, PRECISION)
    return Finding(
        name="support-raises-precision",
        claim="Rates from few views are too high where they are selected: more support raises precision.",
        published="",
        ours=(
            f"at the threshold {HIGH}, precision {percent(measured.estimate(published, PRECISION))} with {SUPPORT:g} "
            f"views and {percent(measured.estimate(more, PRECISION))} with {SUPPORTS[1]:g}"
        ),
        rule="the interval of the paired difference lies above 0",
        verdict=above(change, 0),
    )
