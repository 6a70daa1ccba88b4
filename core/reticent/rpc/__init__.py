"""RPC for servers and the broker: admission of calls, rate limits, listeners over TLS."""

from reticent.rpc.admission import Admission, Caller, Limits, stream_in, stream_out, unary
from reticent.rpc.listener import Listener

__all__ = ["Admission", "Caller", "Limits", "Listener", "stream_in", "stream_out", "unary"]
