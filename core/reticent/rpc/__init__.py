"""What both servers are made of: doors that let in who may come, at a pace that they stand, over TLS."""

from reticent.rpc.admission import Caller, Door, Limits, stream_in, stream_out, unary
from reticent.rpc.listener import Listener

__all__ = ["Caller", "Door", "Limits", "Listener", "stream_in", "stream_out", "unary"]
