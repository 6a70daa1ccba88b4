"""What both servers are made of: doors that let in who may come, at a pace that they stand, over TLS."""

from typing import TYPE_CHECKING, Any

from reticent.server.address import is_local
from reticent.server.door import Caller, Door, Limits, stream_in, stream_out, unary

if TYPE_CHECKING:
    from reticent.server.listener import Listener

__all__ = ["Caller", "Door", "Limits", "Listener", "is_local", "stream_in", "stream_out", "unary"]


def __getattr__(name: str) -> Any:
    """A listener is imported when it is used: a phone has no health service, and takes its channels from here."""
    if name != "Listener":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from reticent.server.listener import Listener  # noqa: PLC0415  # that is the point

    return Listener
