"""Runs jobs in worker processes, as they come free."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import wait
from typing import TypeVar

from reticent_sim.engine.backends.local import LocalBackend, WorkerProcess

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")


def run_jobs(function: Callable[[Job], Outcome], jobs: Iterable[Job], workers: int) -> Iterator[tuple[Job, Outcome]]:
    """Run `function` on each job in worker processes; yields each job with its outcome, in the order of arrival.

    An exception of a job is raised here, and ends all workers.
    """
    pending = iter(jobs)
    running: dict[object, tuple[WorkerProcess, Job]] = {}
    backend = LocalBackend()
    try:
        backend.start(_itself, [function] * workers)
        idle = list(backend.workers.values())
        while True:
            for worker, job in zip(idle, pending):  # noqa: B905  # whichever ends first
                worker.send(pickle.dumps(job))
                running[worker.pipe] = worker, job
            if not running:
                return
            idle = []
            for pipe in wait([worker.pipe for worker, _ in running.values()]):
                worker, job = running.pop(pipe)
                outcome, error = worker.receive()
                if error is not None:
                    raise error
                yield job, outcome
                idle.append(worker)
    finally:
        backend.stop()


def _itself(function: Callable[[Job], Outcome]) -> Callable[[Job], Outcome]:
    return function
