"""RPC for servers and the broker: admission of calls, rate limits, and listeners over TLS.

`reticent.rpc.listener` needs an extra, the health service; everything else needs the base dependencies only.
"""

from reticent.rpc._rate_limits import RateLimit, RateLimits
from reticent.rpc.admission import MAX_CALLS_OF_PHONE, Admission, Caller, Limits, stream_in, stream_out, unary

__all__ = [
    "MAX_CALLS_OF_PHONE",
    "Admission",
    "Caller",
    "Limits",
    "RateLimit",
    "RateLimits",
    "stream_in",
    "stream_out",
    "unary",
]
