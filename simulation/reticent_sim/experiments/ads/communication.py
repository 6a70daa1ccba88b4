"""Figure 4.5: precision and coverage over the number of ads that the service sends, beside server-only selection."""

from __future__ import annotations

from itertools import pairwise

from reticent_sim.experiments import statistics
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
from reticent_sim.experiments.ads.serving import LEAST_RATE, LEVEL, SUPPORT, Measures, SimulatedService
from reticent_sim.experiments.results import Finding, Result
from reticent_sim.experiments.statistics import Estimate, percent
from reticent_sim.experiments.verdicts import above, all_of, at_least

NAME = "ads-communication"
TITLE = "Precision and coverage over the number of ads that are sent (figure 4.5)"

NUMBERS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)
LEAST_RATES = (0.0, LEAST_RATE)
HYBRID, SERVER_ONLY = "hybrid", "server-only"
RANGES = (1, 5, 10, 50)
"""The gain of an ad is compared between these numbers."""
FEW = 5
RISE = 0.35
"""The relative rise of precision from server-only to five ads, as published."""


def run(runner: SampleRunner) -> Result:
    """Compute the data of the figure."""
    measured = runner.run(measure, ("strategy", "least_rate", "ads"))
    settings = settings_of(runner.settings, level=LEVEL, support=SUPPORT)
    return Result(NAME, TITLE, settings, measured.rows(), findings(measured))


def measure(sample: Sample) -> MeasuresOf:
    """The results of a sample."""
    trial = sample.trial()
    cut = trial.data.training.hierarchy.at_level(LEVEL)
    service = SimulatedService(trial.data, exact_rates(trial.data.training), SUPPORT)
    found: dict[Setting, Measures] = {}
    for least_rate in LEAST_RATES:
        shown = service.hybrid(trial, cut, service.revenues(least_rate), NUMBERS)
        found |= {(HYBRID, least_rate, ads): trial.measure(each) for ads, each in zip(NUMBERS, shown, strict=True)}
    found[SERVER_ONLY, 0.0, 1] = trial.measure(service.server_only(trial, cut, service.revenues(0.0)))
    return found


def findings(measured: Measured) -> list[Finding]:
    """The claims about this figure, compared with this run."""
    return [
        _more_help(measured),
        *(_diminishing(measured, which, published=which != REVENUE) for which in (PRECISION, COVERAGE, REVENUE)),
        _server_only(measured),
    ]


def _hybrid(ads: int, least_rate: float = LEAST_RATE) -> tuple[str, float, int]:
    return HYBRID, least_rate, ads


def _more_help(measured: Measured) -> Finding:
    changes = [measured.difference(_hybrid(RANGES[-1]), _hybrid(1), which) for which in (PRECISION, COVERAGE)]
    return Finding(
        name="more-ads-help",
        claim="Precision and coverage improve with the number of ads.",
        published="they do (a figure)",
        ours=f"from 1 to {RANGES[-1]} ads, precision gains {percent(changes[0])}, coverage {percent(changes[1])}",
        rule="the intervals of both paired differences lie above 0",
        verdict=all_of(above(change, 0) for change in changes),
    )


def _diminishing(measured: Measured, which: str, *, published: bool) -> Finding:
    ranges = list(pairwise(RANGES))

    def gain(sample: MeasuresOf, few: int, many: int) -> float:
        """Of each ad between two numbers."""
        return float(getattr(sample[_hybrid(many)], which) - getattr(sample[_hybrid(few)], which)) / (many - few)

    def fall(one: tuple[int, int], other: tuple[int, int]) -> Estimate:
        return measured.mean(lambda sample: gain(sample, *one) - gain(sample, *other))

    scale, unit = (1, "") if which == REVENUE else (100, " points")
    gains = [statistics.mean([scale * gain(sample, *each) for sample in measured.samples]).value for each in ranges]
    shown = ", ".join(f"{value:.3f}{unit} from {a} to {b}" for value, (a, b) in zip(gains, ranges, strict=True))
    return Finding(
        name=f"diminishing-returns-in-{which}",
        claim=f"Each further ad adds less {which} than the ads before it.",
        published="diminishing returns (a figure)" if published else "",
        ours=f"gain of each ad: {shown}",
        rule="the intervals of the paired differences between successive ranges lie above 0",
        verdict=all_of(above(fall(*each), 0) for each in pairwise(ranges)),
    )


def _server_only(measured: Measured) -> Finding:
    few, alone = _hybrid(FEW, 0.0), (SERVER_ONLY, 0.0, 1)
    rise = measured.mean(lambda sample: sample[few].precision / sample[alone].precision - 1)
    return Finding(
        name="five-ads-beat-server-only",
        claim="With five ads to choose from, precision is a third above that of server-only selection.",
        published="0.12, and 35 % more",
        ours=(
            f"{percent(measured.estimate(alone, PRECISION))} and {percent(measured.estimate(few, PRECISION))}, "
            f"{percent(rise, 0)} more, both without a threshold"
        ),
        rule=f"the interval of the relative rise lies above {percent(RISE, 0)}",
        verdict=at_least(rise, RISE),
    )
