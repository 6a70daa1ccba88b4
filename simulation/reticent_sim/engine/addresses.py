"""Free addresses for servers on this machine."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
from collections import deque

FIRST_PORT, LAST_PORT = 11_000, 30_000
"""Ports outside the ranges for outgoing connections: no other program gets one while a server restarts."""

RESERVED = 256
"""Addresses of this process that stay reserved; then the oldest one may be found again."""

_reserved: deque[socket.socket] = deque()


def free_address() -> str:
    """A loopback address at which no server listens, and which this function does not return to another process.

    On Linux, a socket stays bound to it, so that two processes that look for addresses at once find different ones.
    A server can listen beside that socket if it reuses addresses, as those of gRPC do.
    """
    ports = random.Random()  # noqa: S311  # any port will do
    while True:
        candidate = socket.socket()
        with contextlib.suppress(OSError):
            candidate.bind(("127.0.0.1", ports.randrange(FIRST_PORT, LAST_PORT)))
            _reserve(candidate)
            return "127.0.0.1:{1}".format(*candidate.getsockname())
        candidate.close()


def _reserve(bound: socket.socket) -> None:
    if sys.platform != "linux":  # a server could not listen beside it
        return
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # only now: no two candidates share a port
    _reserved.append(bound)
    if len(_reserved) > RESERVED:
        _reserved.popleft().close()
