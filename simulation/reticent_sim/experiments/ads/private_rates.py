"""Figure 5.2: ads by differentially private rates, for two costs to users and with absent phones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reticent.privacy import Query
from reticent.randomness import seeded
from reticent.rates import RateTable
from reticent_analyst.question import Question
from reticent_analyst.rates import estimate
from reticent_sim.experiments.ads.exact_rates import exact_rates
from reticent_sim.experiments.ads.measured import Measured, MeasuresOf, SampleRunner, Setting, settings_of
from reticent_sim.experiments.ads.samples import Sample
from reticent_sim.experiments.ads.serving import ADS, LEVEL, SUPPORT, Measures, SimulatedService
from reticent_sim.experiments.results import Finding, Result
from reticent_sim.experiments.statistics import Estimate, percent
from reticent_sim.experiments.verdicts import above, all_of, below
from reticent_sim.local_counts import LocalCounts
from reticent_sim.world.ads import AdData

NAME = "ads-private-rates"
TITLE = "Precision and coverage with private rates (figure 5.2)"

PEOPLE, QUICK_PEOPLE, QUICK_BUSINESSES = 100_000, 6_000, 100
"""The users of each world (the text has 116,432), and the size of a quick one."""
DELTA, ENTRIES = 0.02, 4
"""The published delta, and the published number of entries of a user."""
LEAST_RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)

LITTLE = 0.1
"""A loss is small if it is less than this part of the clicks."""


class Series(NamedTuple):
    """The rates of one curve.

    Args:
        counted: Who counts.
        epsilon: The cost to a user, together with delta; None without noise.
        tolerated: The share of phones whose absence each query tolerates: the others add enough noise.
        absent: The share of phones that do not contribute.
        depth: The levels below the root with counts.
    """

    counted: str
    epsilon: float | None = None
    tolerated: float = 0.0
    absent: float = 0.0
    depth: int = 3


EXACT = Series("exact", depth=9)
ONE, HALF = Series("phones", 1.0), Series("phones", 0.5)
TRUSTED = Series("trusted server", 1.0)
SHARES = (0.25, 0.5, 0.75)
TOLERATED = tuple(Series("phones", 1.0, share) for share in SHARES)
"""Phones may be absent, and are not."""
ABSENT = tuple(Series("phones", 1.0, share, share) for share in SHARES)
SHALLOW = Series("phones", 1.0, depth=1)
"""As published: the text limits the depth to 1."""
ALL_SERIES = (EXACT, ONE, HALF, TRUSTED, *TOLERATED, *ABSENT, SHALLOW)


def run(runner: SampleRunner) -> Result:
    """Compute the data of the figure."""
    if runner.settings.data is not None:
        raise ValueError("private rates need many users: leave out --data, and simulate worlds")
    measured = runner.run(measure, (*Series._fields, "least_rate"))
    settings = settings_of(runner.settings, ads=ADS, level=LEVEL, delta=DELTA, entries=ENTRIES)
    return Result(NAME, TITLE, settings, measured.rows(), findings(measured))


def measure(sample: Sample) -> MeasuresOf:
    """The results of a sample."""
    trial = sample.trial(QUICK_PEOPLE, QUICK_BUSINESSES) if sample.settings.quick else sample.trial(PEOPLE)
    cut = trial.data.training.hierarchy.at_level(LEVEL)
    found: dict[Setting, Measures] = {}
    for series in ALL_SERIES:
        service = SimulatedService(trial.data, rates_of(trial.data, series, sample), SUPPORT)
        for least_rate in LEAST_RATES:
            [shown] = service.hybrid(trial, cut, service.revenues(least_rate), [ADS])
            found[*series, least_rate] = trial.measure(shown)
    return found


def rates_of(data: AdData, series: Series, sample: Sample) -> RateTable:
    """The rates of a series."""
    if series.epsilon is None:
        return exact_rates(data.training)
    path = sample.settings.seed, NAME, sample.number
    log = data.training.sample(ENTRIES, seeded(*path, "entries"))
    noise = seeded(*path, *map(str, series))

    def to_query(question: Question) -> Query:
        return question.to_query(log.users, "simulated")

    return estimate(
        LocalCounts(noise, absent=series.absent, trusted=series.counted == TRUSTED.counted),
        log.hierarchy,
        {ad: [log.hierarchy.nodes[bid]] for ad, bid in zip(log.ads, data.bids.tolist(), strict=True)},
        name=f"{NAME}-{sample.number}",
        epsilon=series.epsilon,
        delta=DELTA,
        entries=ENTRIES,
        depth=series.depth,
        absent=series.tolerated,
        to_query=to_query,
        counters=log.counters,
    )


def findings(measured: Measured) -> list[Finding]:
    """The claims about this figure, compared with this run."""
    return [
        _exact(measured),
        *_costs(measured),
        _tolerated(measured),
        _absent(measured),
        _trusted(measured),
        _depth(measured),
    ]


def clicks(sample: MeasuresOf, series: Series) -> float:
    """The share of contexts whose ad is clicked, at the best threshold."""
    found = (sample[*series, least_rate] for least_rate in LEAST_RATES)
    return max(each.precision * each.coverage if each.coverage else 0.0 for each in found)


def _clicks(measured: Measured, series: Series) -> Estimate:
    return measured.mean(lambda sample: clicks(sample, series))


def _lead(measured: Measured, one: Series, other: Series) -> Estimate:
    return measured.mean(lambda sample: clicks(sample, one) - clicks(sample, other))


def _lost(measured: Measured, one: Series, other: Series) -> Estimate:
    """The part of the clicks of one series that another one loses."""
    return measured.mean(lambda sample: 1 - clicks(sample, other) / clicks(sample, one))


def _exact(measured: Measured) -> Finding:
    return Finding(
        name="exact-rates-are-better",
        claim="Exact rates give more clicks than differentially private ones.",
        published="coverage 0.3 instead of 0.1, at precision 0.6",
        ours=f"{percent(_clicks(measured, EXACT))} of contexts clicked, privately {percent(_clicks(measured, ONE))}",
        rule="the interval of the paired difference lies above 0",
        verdict=above(_lead(measured, EXACT, ONE), 0),
    )


def _costs(measured: Measured) -> list[Finding]:
    lost = _lost(measured, ONE, HALF)
    ours = (
        f"{percent(_clicks(measured, ONE))} of contexts are clicked with 1, "
        f"{percent(_clicks(measured, HALF))} with 0.5: {percent(lost)} of the clicks are lost"
    )
    return [
        Finding(
            name="larger-epsilon-is-better",
            claim="Rates with epsilon 1 give more clicks than those with 0.5.",
            published="they do (a figure)",
            ours=ours,
            rule="the interval of the lost part lies above 0",
            verdict=above(lost, 0),
        ),
        Finding(
            name="epsilon-has-a-minor-effect",
            claim="The value of epsilon has a minor effect.",
            published="1 and 0.5 differ little (a figure)",
            ours=ours,
            rule=f"the interval of the lost part lies below {percent(LITTLE, 0)}",
            verdict=below(lost, LITTLE),
        ),
    ]


def _tolerated(measured: Measured) -> Finding:
    return Finding(
        name="tolerance-has-a-mild-effect",
        claim="If three quarters of the phones may be absent or malicious, utility is almost the same.",
        published="almost the same, up to t = 0.75 (a figure)",
        ours=_losses(measured, TOLERATED),
        rule=f"for each share of phones, the interval of the lost part lies below {percent(LITTLE, 0)}",
        verdict=all_of(below(_lost(measured, ONE, series), LITTLE) for series in TOLERATED),
    )


def _absent(measured: Measured) -> Finding:
    return Finding(
        name="absence-has-a-mild-effect",
        claim="If three quarters of the phones are absent, utility is almost the same.",
        published="",
        ours=_losses(measured, ABSENT),
        rule=f"for each share of phones, the interval of the lost part lies below {percent(LITTLE, 0)}",
        verdict=all_of(below(_lost(measured, ONE, series), LITTLE) for series in ABSENT),
    )


def _losses(measured: Measured, many: Sequence[Series]) -> str:
    return "lost clicks: " + ", ".join(
        f"{percent(_lost(measured, ONE, series))} at t = {series.tolerated}" for series in many
    )


def _trusted(measured: Measured) -> Finding:
    lost = _lost(measured, TRUSTED, ONE)
    return Finding(
        name="no-trusted-server-is-needed",
        claim="Counting by phones costs little against a trusted server that adds the noise.",
        published="",
        ours=f"{percent(lost)} of the clicks are lost",
        rule=f"the interval lies below {percent(LITTLE, 0)}",
        verdict=below(lost, LITTLE),
    )


def _depth(measured: Measured) -> Finding:
    lead = _lead(measured, SHALLOW, ONE)
    return Finding(
        name="one-level-is-best",
        claim="It is best to count one level below the root only.",
        published="an aggressive limit of 1",
        ours=(
            f"{percent(_clicks(measured, SHALLOW))} of contexts are clicked with one level, "
            f"{percent(_clicks(measured, ONE))} with {ONE.depth}"
        ),
        rule="the interval of the paired difference lies above 0",
        verdict=above(lead, 0),
    )
