"""The workers of a simulation: processes of this machine, or actors of a Ray cluster."""

from __future__ import annotations

import os
from typing import Literal, get_args

from reticent_sim.engine.backends.backend import Backend, Factory, Handler
from reticent_sim.engine.backends.local import LocalBackend
from reticent_sim.engine.backends.ray_cluster import RayBackend
from reticent_sim.engine.errors import WorkerDied

__all__ = ["Backend", "BackendName", "Factory", "Handler", "LocalBackend", "RayBackend", "WorkerDied", "backend_of"]

BackendName = Literal["local", "ray"]


def backend_of(name: BackendName, address: str | None = None) -> Backend:
    """The backend with this name.

    Args:
        name: Its name.
        address: Of a Ray cluster: by default that of the variable RAY_ADDRESS, or of a new one on this machine.

    Raises:
        MissingExtra: Ray is not installed.
    """
    if name not in get_args(BackendName):
        raise ValueError(f"the engine must be one of {', '.join(get_args(BackendName))}: got {name!r}")
    if name == "ray":
        return RayBackend(address or os.environ.get("RAY_ADDRESS"))
    if address is not None:
        raise ValueError(f"only the engine ray has an address: got {address!r} for {name}")
    return LocalBackend()
