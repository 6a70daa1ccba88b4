"""Disclosure against revenue against bytes: every choice that a user has, to choose a point on.

The cut of a phone is the most specific one that raises the service's belief in each need in a building, a node at level
(1, 2, 1), by at most delta. The size of a reply is that of the ad service, whatever the context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from reticent.hierarchy import Cut, level_cut, lowest_cut
from reticent_agg.ads.messages import ReplyFormat
from reticent_sim.experiments.ads.exact_rates import exact_rates
from reticent_sim.experiments.ads.measured import REVENUE, Measured, SampleRunner, Setting, settings_of
from reticent_sim.experiments.ads.samples import Sample
from reticent_sim.experiments.ads.serving import ADS, LEVEL, SUPPORT, AdTrial, SimulatedService
from reticent_sim.experiments.results import Finding, Result, Row
from reticent_sim.experiments.statistics import Estimate, percent
from reticent_sim.experiments.verdicts import above, all_of, at_most

NAME = "ads-surface"
TITLE = "Disclosure against revenue against bytes"

DELTAS = tuple(round(0.05 * step, 2) for step in range(21))
"""The bounds of the rise of belief: 0 sends nothing but the root, 1 exact contexts."""
NUMBERS = (1, 2, 3, 5, 10, 20, 50)
RATES_PER_AD = (1, 4, 16, 64)
DEFAULT: Setting = (None, ADS, 16)
"""The level (4, 2, 2), without a delta."""

NEED = 4
"""The level of the hierarchy with the sensitive nodes."""
UNSEEN = 0.1
"""The records that a context counts as at least: the observer excludes none."""

MOST = 0.9
"""Most of the revenue."""
CLEARLY = 0.05
"""Clearly more revenue."""
MODERATE = 0.3
"""A moderate rise of belief."""


class Point(NamedTuple):
    """A choice: what it brings, and what it discloses."""

    precision: float
    coverage: float
    revenue: float
    disclosure: float
    """The largest rise of belief in a need in a building."""


def run(runner: SampleRunner) -> Result:
    """Compute the surface."""
    measured = runner.run(measure, ("delta", "ads", "rates_per_ad"))
    rows: list[Row] = [row | {"bytes": bytes_of(setting)} for setting, row in measured.by_setting().items()]
    front = set(pareto_front(measured))
    rows = [row | {"on_front": setting in front} for setting, row in zip(measured.by_setting(), rows, strict=True)]
    settings = settings_of(runner.settings, support=SUPPORT, default=f"level (4, 2, 2), {DEFAULT[1]} ads")
    return Result(NAME, TITLE, settings, rows, findings(measured))


def measure(sample: Sample) -> dict[Setting, Point]:
    """The points of a sample."""
    trial = sample.trial()
    service = SimulatedService(trial.data, exact_rates(trial.data.training), SUPPORT)
    revenues = service.revenues(0.0)
    found: dict[Setting, Point] = {}
    quick = sample.settings.quick
    for delta, cut, disclosure in _cuts(trial, DELTAS[:: 2 if quick else 1]):
        for rates in RATES_PER_AD[2 if quick else 0 :]:
            shown = service.hybrid(trial, cut.node_of, revenues, NUMBERS, rates_per_ad=rates)
            for ads, each in zip(NUMBERS, shown, strict=True):
                found[delta, ads, rates] = Point(*trial.measure(each), disclosure)
    return found


def _cuts(trial: AdTrial, deltas: Sequence[float]) -> Iterator[tuple[float | None, Cut, float]]:
    """The cut for each delta, and that of the default, each with what it discloses."""
    hierarchy = trial.data.training.hierarchy
    records = np.bincount(trial.data.training.context, minlength=len(hierarchy.contexts))
    prior = np.maximum(records, UNSEEN) / np.maximum(records, UNSEEN).sum()
    needs = hierarchy.nodes[hierarchy.nodes_at(NEED)]
    for delta in (None, *deltas):
        if delta is None or delta in (0, 1):
            cut = level_cut(hierarchy, LEVEL if delta is None else 0 if delta else len(hierarchy.sequence))
        else:
            cut = lowest_cut(hierarchy, needs, delta, prior)
        yield delta, cut, max(cut.disclosure(needs, prior).values())


def bytes_of(setting: Setting) -> int:
    """The size of a reply."""
    _, ads, rates = setting
    return ReplyFormat(bytes(32), int(rates or 0)).size(int(ads or 0))


def pareto_front(measured: Measured) -> list[Setting]:
    """The settings that no other one beats: in disclosure, bytes or mean revenue."""
    points = {
        setting: (
            measured.estimate(setting, "disclosure").value,
            bytes_of(setting),
            -measured.estimate(setting, REVENUE).value,
        )
        for setting in measured.samples[0]
    }
    table = np.array(list(points.values()))  # (settings, 3), less is better
    beaten = [bool(((table <= own).all(axis=1) & (table < own).any(axis=1)).any()) for own in table]
    return [setting for setting, is_beaten in zip(points, beaten, strict=True) if not is_beaten]


def findings(measured: Measured) -> list[Finding]:
    """Our claims about the surface."""
    return [_moderate(measured), _bought(measured), _default(measured)]


def _moderate(measured: Measured) -> Finding:
    limited, exact = (MODERATE, *DEFAULT[1:]), (1.0, *DEFAULT[1:])
    kept = measured.mean(lambda sample: sample[limited].revenue / sample[exact].revenue)
    return Finding(
        name="moderate-disclosure-keeps-most-revenue",
        claim=f"With delta = {MODERATE}, most of the revenue of exact contexts is left, with replies of the same size.",
        published="",
        ours=f"{percent(kept)} of it, with {DEFAULT[1]} ads in {bytes_of(DEFAULT)} bytes",
        rule=f"the interval lies above {percent(MOST, 0)}",
        verdict=above(kept, MOST),
    )


def _bought(measured: Measured) -> Finding:
    small, large = DEFAULT, (None, NUMBERS[-1], RATES_PER_AD[-1])
    gain = measured.mean(lambda sample: sample[large].revenue / sample[small].revenue - 1)
    return Finding(
        name="bytes-buy-revenue",
        claim="At the same disclosure, level (4, 2, 2), larger replies bring more revenue.",
        published="",
        ours=f"{percent(gain)} more in {bytes_of(large)} bytes than in {bytes_of(small)}",
        rule="the interval of the paired difference lies above 0",
        verdict=above(gain, 0),
    )


def _default(measured: Measured) -> Finding:
    def gain(setting: Setting) -> Estimate:
        return measured.mean(lambda sample: sample[setting].revenue / sample[DEFAULT].revenue - 1)

    most = measured.estimate(DEFAULT, "disclosure").value
    cheaper = [
        setting
        for setting in measured.samples[0]
        if bytes_of(setting) <= bytes_of(DEFAULT) and measured.estimate(setting, "disclosure").value <= most
    ]
    gains = [gain(setting) for setting in cheaper]
    best = max(gains, key=lambda each: each.value)
    return Finding(
        name="default-is-a-good-choice",
        claim="No choice that discloses no more in no more bytes brings clearly more revenue than the default.",
        published="",
        ours=f"the best of {len(cheaper)} such choices brings {percent(best)} more",
        rule=f"the interval of each lies below {percent(CLEARLY, 0)}",
        verdict=all_of(at_most(each, CLEARLY) for each in gains),
    )
