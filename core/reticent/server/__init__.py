"""What both servers are made of: doors that let in who may come, at a pace that they stand, over TLS."""

from reticent.server.door import Caller, Door, Limits, stream_in, stream_out, unary
from reticent.server.listener import Listener

__all__ = ["Caller", "Door", "Limits", "Listener", "stream_in", "stream_out", "unary"]
