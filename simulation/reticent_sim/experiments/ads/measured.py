"""The measures of an experiment in all samples: means, differences and rows, with intervals over samples."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from reticent_sim.experiments import statistics
from reticent_sim.experiments.ads.samples import Sample, SampleSettings
from reticent_sim.experiments.ads.serving import Measures
from reticent_sim.experiments.results import Row
from reticent_sim.experiments.runner import Progress, no_progress
from reticent_sim.experiments.statistics import CONFIDENCE, Estimate
from reticent_sim.experiments.workers import run_jobs

Setting: TypeAlias = tuple[str | int | float | None, ...]
"""The parts of a choice, such as the name of a strategy and the number of ads."""
MeasuresOf: TypeAlias = Mapping[Setting, Any]
"""The results of one sample: `Measures`, or another named tuple of numbers."""

PRECISION, COVERAGE, REVENUE = Measures._fields


@dataclass(frozen=True)
class Measured:
    """The results of all samples.

    Args:
        settings: The data and the options.
        columns: The names of the parts of a setting.
        samples: The results of each sample.
    """

    settings: SampleSettings
    columns: Sequence[str]
    samples: Sequence[MeasuresOf]

    def mean(self, function: Callable[[MeasuresOf], float]) -> Estimate:
        """The mean of a function of the results of a sample, over the samples in which it is a number."""
        values = [value for sample in self.samples if math.isfinite(value := float(function(sample)))]
        return statistics.mean(values) if values else Estimate(0.0, None, None, 0)

    def estimate(self, setting: Setting, measure: str) -> Estimate:
        """The mean of a measure."""
        return self.mean(lambda sample: getattr(sample[setting], measure))

    def difference(self, one: Setting, other: Setting, measure: str) -> Estimate:
        """The mean paired difference, one minus the other."""
        return self.mean(lambda sample: getattr(sample[one], measure) - getattr(sample[other], measure))

    def by_setting(self) -> dict[Setting, Row]:
        """The row of each setting."""
        measures = next(iter(self.samples[0].values()))._fields
        return {
            setting: {
                **dict(zip(self.columns, setting, strict=True)),
                **{name: _or_none(self.estimate(setting, name)) for name in measures},
            }
            for setting in self.samples[0]
        }

    def rows(self) -> list[Row]:
        """The rows of all settings."""
        return list(self.by_setting().values())


@dataclass
class SampleRunner:
    """Runs an experiment in worker processes, one job for each sample."""

    settings: SampleSettings
    progress: Progress = no_progress

    def run(self, measure: Callable[[Sample], MeasuresOf], columns: Sequence[str]) -> Measured:
        """The results of all samples.

        Args:
            measure: Computes those of a sample; a function of a module.
            columns: The names of the parts of a setting.
        """
        jobs = [Sample(self.settings, number) for number in range(self.settings.samples)]
        found: dict[int, MeasuresOf] = {}
        for sample, result in run_jobs(measure, jobs, min(self.settings.workers or os.cpu_count() or 1, len(jobs))):
            found[sample.number] = result
            self.progress(len(found), len(jobs))
        return Measured(self.settings, columns, [found[job.number] for job in jobs])


def settings_of(settings: SampleSettings, **more: Any) -> dict[str, Any]:
    """The settings of a run, for its JSON."""
    kind = "worlds" if settings.data is None else "parts of the tests"
    sample = f"{settings.samples} {kind} ({settings.source})"
    return {
        "seed": settings.seed,
        "quick": settings.quick,
        "source": settings.source,
        "seeded": True,
        "samples": settings.samples,
        "intervals": kind,
        "sample": sample,
        "summary": sample,
        "confidence": CONFIDENCE,
        **more,
    }


def _or_none(estimate: Estimate) -> Estimate | None:
    return estimate if estimate.n else None
