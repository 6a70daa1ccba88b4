"""The interface of all backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from reticent_sim.engine.errors import WorkerDied

__all__ = ["Backend", "Factory", "Handler", "replies_or_error"]

Handler = Callable[[Any], Any]
"""Takes a request, and returns the reply."""
Factory = Callable[[Any], Handler]
"""Run by a worker: makes its handler from a setup. It is a function or class of a module, which the worker imports."""


class Backend(Protocol):
    """Runs the workers of a simulation. A worker keeps one handler, and thus its state, for a whole run.

    Requests, replies, setups and the factory are pickled. Threads may share a backend: they take turns.
    """

    def start(self, factory: Factory, setups: Sequence[Any]) -> list[int]:
        """Start one worker for each setup, and return the numbers of those that it has started.

        Called again, it starts those workers that have died.

        Raises:
            WorkerDied: A worker ended instead.
            Exception: The factory raised it; the worker's traceback is a note.
        """

    def call(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        """The replies of workers to their requests, by worker number.

        If a worker fails, all others finish first. The error is that of the failed worker with the lowest number.

        Raises:
            WorkerDied: A worker ended; the error holds the replies of the others.
            Exception: A handler raised it; the worker's traceback is a note. The worker still runs.
        """

    def stop(self) -> None:
        """End all workers at once, whatever they are doing."""


def replies_or_error(outcomes: Mapping[int, tuple[Any, Exception | None]]) -> dict[int, Any]:
    """The replies by worker number. If there is an error, the one of the lowest number is raised."""
    replies = {number: reply for number, (reply, error) in sorted(outcomes.items()) if error is None}
    for _, (_, error) in sorted(outcomes.items()):
        if isinstance(error, WorkerDied):
            error.replies = replies
        if error is not None:
            raise error
    return replies
