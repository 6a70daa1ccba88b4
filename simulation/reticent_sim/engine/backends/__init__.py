"""The workers of a simulation: processes of this machine, or actors of a Ray cluster."""

from __future__ import annotations

from typing import Literal, get_args

from reticent_sim.engine.backends.backend import Backend, Factory, Handler
from reticent_sim.engine.backends.local import LocalBackend
from reticent_sim.engine.errors import WorkerDied

__all__ = ["Backend", "BackendName", "Factory", "Handler", "LocalBackend", "WorkerDied", "backend_of"]

BackendName = Literal["local"]


def backend_of(name: BackendName) -> Backend:
    """The backend with this name."""
    if name not in get_args(BackendName):
        raise ValueError(f"the engine must be one of {', '.join(get_args(BackendName))}: got {name!r}")
    return LocalBackend()
