"""Where questions are answered: by worker processes, each answer once, the same for any number of workers."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from reticent_sim.experiments.subjects import Subject, from_population, from_traces
from reticent_sim.experiments.systems import (
    HYBRID,
    OPTIMAL,
    PROBABILISTIC,
    SIMULATABLE,
    Answer,
    Question,
    answers,
    chosen,
)

PEOPLE, QUICK_PEOPLE = 91, 16
STEPS, QUICK_STEPS = 24, 12
QUICK_DAYS = 90
DELTA = 0.1

LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""What tells the libraries below NumPy how many threads to use: workers that share a machine use one each."""

Progress = Callable[[int, int], None]
"""Told how many questions of how many are answered."""


def _unseen(done: int, total: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Settings:
    """What an experiment is run on."""

    seed: int = 1
    people: int | None = None
    """How many, at most; 91 of the population unless given, or 16 where it must be quick, or all of the traces."""
    quick: bool = False
    traces: Path | None = None
    zone: str | None = None
    workers: int | None = None
    """How many processes; as many as there are processors unless given."""

    @property
    def steps(self) -> int:
        """The number of steps of a day."""
        return QUICK_STEPS if self.quick else STEPS

    def subjects(self, *, activities: bool = False) -> list[Subject]:
        """Who takes part. Traces hold whatever contexts they hold."""
        few = QUICK_PEOPLE if self.quick else None
        if self.traces is not None:
            return from_traces(self.traces, steps=self.steps, people=self.people or few, zone=self.zone)
        people = self.people or few or PEOPLE
        days = QUICK_DAYS if self.quick else None
        return from_population(self.seed, people, steps=self.steps, max_days=days, activities=activities)


@dataclass
class Laboratory:
    """The subjects of a run, and what has been answered about them."""

    settings: Settings
    progress: Progress = _unseen
    _answers: dict[tuple[bool, Question], Answer] = field(default_factory=dict)

    @cached_property
    def everybody(self) -> list[Subject]:
        """All subjects, with the contexts where they are."""
        return self.settings.subjects()

    @cached_property
    def active(self) -> list[Subject]:
        """Those whose activities are known, with these as their contexts; of traces, all."""
        return self.settings.subjects(activities=True) if self.settings.traces is None else self.everybody

    def ask(
        self, subjects: Iterable[Subject], questions: Iterable[Question], *, activities: bool = False
    ) -> dict[Question, Answer]:
        """The answers to some questions about these subjects; of the hybrid, what it makes of two others."""
        wanted = list(dict.fromkeys(questions))
        needed = dict.fromkeys(each for question in wanted for each in _parts(question))
        known = {who.name: who for who in subjects}
        new = [(known[each.user], each) for each in needed if (activities, each) not in self._answers]
        for question, found in self._computed(new):
            self._answers[activities, question] = found
        return {question: self._answer(activities, question) for question in wanted}

    def _answer(self, activities: bool, question: Question) -> Answer:
        if question.system == HYBRID:
            return chosen(*(self._answers[activities, part] for part in _parts(question)))
        return self._answers[activities, question]

    def _computed(self, asked: list[tuple[Subject, Question]]) -> Iterator[tuple[Question, Answer]]:
        """Answers in the order in which they come."""
        jobs: dict[tuple[str, tuple[str, ...], float, bool], tuple[Subject, list[Question]]] = {}
        for subject, question in asked:
            job = question.user, question.sensitive, question.delta, question.system == OPTIMAL
            jobs.setdefault(job, (subject, []))[1].append(question)
        if not jobs:
            return
        count = min(self.settings.workers or os.cpu_count() or 1, len(jobs))
        spawned = multiprocessing.get_context("spawn")
        with _one_thread_each(), ProcessPoolExecutor(count, mp_context=spawned) as pool:
            # What takes longest goes first, so that no worker is left alone with it at the end.
            order = sorted(jobs, key=lambda job: (not job[-1], -len(jobs[job][0].contexts)))
            waiting = {pool.submit(answers, *jobs[job], self.settings.seed): jobs[job][1] for job in order}
            done = 0
            try:
                for future in as_completed(waiting):
                    yield from zip(waiting[future], future.result(), strict=True)
                    done += len(waiting[future])
                    self.progress(done, len(asked))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _parts(question: Question) -> tuple[Question, ...]:
    if question.system != HYBRID:
        return (question,)
    return tuple(replace(question, system=system) for system in (SIMULATABLE, PROBABILISTIC))


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Have the processes that are spawned meanwhile use one thread each."""
    before = {name: os.environ.get(name) for name in LIBRARIES}
    os.environ.update(dict.fromkeys(LIBRARIES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
