"""Worker processes that run jobs, and end at once when the process that started them stops, fails or is killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, TypeVar

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")


def run_jobs(function: Callable[[Job], Outcome], jobs: Iterable[Job], workers: int) -> Iterator[tuple[Job, Outcome]]:
    """Run `function` on each job in worker processes; yields each job with its outcome, in the order of arrival.

    An exception of a job is raised here, and ends all workers.
    """
    pending = iter(jobs)
    running: dict[Connection, Job] = {}
    with _started(function, workers) as started:
        idle = started
        while True:
            for worker, job in zip(idle, pending):  # noqa: B905  # whichever ends first
                _send(worker, job)
                running[worker] = job
            if not running:
                return
            idle = [worker for worker in wait(list(running)) if isinstance(worker, Connection)]
            for worker in idle:
                yield running.pop(worker), _outcome(worker)


@contextlib.contextmanager
def _started(function: Callable[[Any], Any], count: int) -> Iterator[list[Connection]]:
    """Start workers; they are killed at the end, whatever they are doing."""
    spawn = multiprocessing.get_context("spawn")
    processes, connections = [], []
    try:
        with _interrupts_later():
            for _ in range(count):
                here, there = spawn.Pipe()
                process = spawn.Process(target=_work, args=(function, there), daemon=True)
                process.start()
                there.close()
                processes.append(process)
                connections.append(here)
        yield connections
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Block SIGINT in processes started here, and handle it when all have been started.

    Ctrl-C goes to all processes of a terminal, and this one handles it. A process that is interrupted while it starts
    another one would leave that without its job.
    """
    resource_tracker.ensure_running()  # its start would unblock the signal
    interrupts: list[tuple[int, FrameType | None]] = []
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda *arguments: interrupts.append(arguments)) if is_main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # for this thread, and what it starts
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
    if callable(handler) and interrupts:
        handler(*interrupts[0])


def _work(function: Callable[[Any], Any], parent: Connection) -> None:
    """Run by a worker: run one job after the other."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        while True:
            parent.send(_run(function, parent.recv()))


def _run(function: Callable[[Job], Outcome], job: Job) -> tuple[Outcome | None, Exception | None]:
    try:
        return function(job), None
    except Exception as error:  # noqa: BLE001  # the parent raises it
        error.add_note(traceback.format_exc())
        return None, error


def _exit_with_parent() -> None:
    """Run by a worker's thread: also a parent that was killed takes its workers with it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _send(worker: Connection, job: object) -> None:
    try:
        worker.send(job)
    except OSError:
        raise _died() from None


def _outcome(worker: Connection) -> Any:
    try:
        outcome, error = worker.recv()
    except (EOFError, OSError):
        raise _died() from None
    if error is not None:
        raise error
    return outcome


def _died() -> ChildProcessError:
    return ChildProcessError("a worker process was killed: use fewer --workers if memory was short")
