"""Runs trials in worker processes: each trial once, with the same result for any number of workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from reticent_sim.experiments.subjects import Subject, from_population, from_traces
from reticent_sim.experiments.systems import (
    HYBRID,
    OPTIMAL,
    PROBABILISTIC,
    SIMULATABLE,
    Trial,
    TrialJob,
    TrialResult,
    hybrid_result,
    run_trials,
)
from reticent_sim.experiments.workers import run_jobs

PEOPLE, QUICK_PEOPLE = 91, 16
STEPS, QUICK_STEPS = 24, 12
QUICK_DAYS = 90
DELTA = 0.1

Progress = Callable[[int, int], None]
"""Called with the number of finished trials and the number of all."""


def no_progress(done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Settings:
    """The data and the options of an experiment."""

    seed: int = 1
    people: int | None = None
    """The most people. The default is 91 of the population (16 if quick), or everybody in the traces."""
    quick: bool = False
    traces: Path | None = None
    zone: str | None = None
    workers: int | None = None
    """The number of processes, by default one for each processor."""

    @property
    def steps(self) -> int:
        """The number of steps of a day."""
        return QUICK_STEPS if self.quick else STEPS

    def subjects(self, *, activities: bool = False) -> list[Subject]:
        """The people of the experiment. Traces have their own kind of context, whatever `activities` says."""
        few = QUICK_PEOPLE if self.quick else None
        if self.traces is not None:
            return from_traces(self.traces, steps=self.steps, people=self.people or few, zone=self.zone)
        people = self.people or few or PEOPLE
        days = QUICK_DAYS if self.quick else None
        return from_population(self.seed, people, steps=self.steps, max_days=days, activities=activities)


@dataclass
class Runner:
    """Runs trials in worker processes, and keeps their results for later experiments."""

    settings: Settings
    progress: Progress = no_progress
    _results: dict[tuple[bool, Trial], TrialResult] = field(default_factory=dict)

    @cached_property
    def subjects(self) -> list[Subject]:
        """All subjects, with places as contexts."""
        return self.settings.subjects()

    @cached_property
    def active_subjects(self) -> list[Subject]:
        """The subjects with recorded activities, which are their contexts; with traces, all subjects."""
        return self.settings.subjects(activities=True) if self.settings.traces is None else self.subjects

    def run(
        self, subjects: Iterable[Subject], trials: Iterable[Trial], *, activities: bool = False
    ) -> dict[Trial, TrialResult]:
        """The results of these trials. A hybrid's result is made of those of its two checks."""
        wanted = list(dict.fromkeys(trials))
        needed = dict.fromkeys(each for trial in wanted for each in _parts(trial))
        known = {subject.name: subject for subject in subjects}
        new = [(known[each.user], each) for each in needed if (activities, each) not in self._results]
        for trial, found in self._compute(new):
            self._results[activities, trial] = found
        return {trial: self._result(activities, trial) for trial in wanted}

    def _result(self, activities: bool, trial: Trial) -> TrialResult:
        if trial.system == HYBRID:
            return hybrid_result(*(self._results[activities, part] for part in _parts(trial)))
        return self._results[activities, trial]

    def _compute(self, pending: list[tuple[Subject, Trial]]) -> Iterator[tuple[Trial, TrialResult]]:
        """Results in the order in which they arrive."""
        jobs: dict[tuple[str, tuple[str, ...], float, bool], TrialJob] = {}
        for subject, trial in pending:
            key = trial.user, trial.sensitive, trial.delta, trial.system == OPTIMAL
            jobs.setdefault(key, TrialJob(subject, [], self.settings.seed)).trials.append(trial)
        count = min(self.settings.workers or os.cpu_count() or 1, len(jobs))
        # The longest jobs go first, so that no worker computes one alone at the end.
        order = sorted(jobs, key=lambda key: (not key[-1], -len(jobs[key].subject.contexts)))
        done = 0
        for job, results in run_jobs(run_trials, [jobs[key] for key in order], count):
            yield from zip(job.trials, results, strict=True)
            done += len(job.trials)
            self.progress(done, len(pending))


def _parts(trial: Trial) -> tuple[Trial, ...]:
    if trial.system != HYBRID:
        return (trial,)
    return tuple(replace(trial, system=system) for system in (SIMULATABLE, PROBABILISTIC))
