"""The worker of every backend: it keeps one handler, and replies to requests as bytes."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

from reticent_sim.engine.backends.backend import Handler

__all__ = ["ONE_THREAD", "Worker", "outcome_of"]

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Environment variables: the libraries below NumPy use one thread in each worker, for workers share a machine."""


class Worker:
    """Replies to pickled requests. The first request is a factory and a setup, which make the handler."""

    def __init__(self) -> None:
        self._handler: Handler = self._create

    def reply(self, request: bytes) -> bytes:
        """The pickled outcome: the reply and None, or None and the exception, with its traceback as a note."""
        try:
            return pickle.dumps((self._handler(pickle.loads(request)), None))  # noqa: S301  # from the coordinator
        except Exception as error:  # noqa: BLE001  # the coordinator raises it
            error.add_note(traceback.format_exc())
            return pickle.dumps((None, _portable(error)))

    def _create(self, request: Any) -> None:
        factory, setup = request
        self._handler = factory(setup)


def outcome_of(reply: bytes) -> tuple[Any, Exception | None]:
    """Run by the coordinator: a reply, or an exception."""
    outcome: tuple[Any, Exception | None] = pickle.loads(reply)  # noqa: S301  # from a worker of ours
    return outcome


def _portable(error: Exception) -> Exception:
    """The exception itself, or one with the same sentence if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    except Exception:  # noqa: BLE001  # whatever its class raises
        portable = RuntimeError(f"{type(error).__name__}: {error}")
        portable.__notes__ = error.__notes__
        return portable
    return error
