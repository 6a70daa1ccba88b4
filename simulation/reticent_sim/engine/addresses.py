"""Free addresses for servers on this machine."""

from __future__ import annotations

import contextlib
import random
import socket

FIRST_PORT, LAST_PORT = 11_000, 30_000
"""Ports outside the ranges for outgoing connections: no other program gets one while a server restarts."""


def free_address() -> str:
    """A loopback address at which no server listens."""
    ports = random.Random()  # noqa: S311  # any port will do
    while True:
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                candidate.bind(("127.0.0.1", ports.randrange(FIRST_PORT, LAST_PORT)))
                return "127.0.0.1:{1}".format(*candidate.getsockname())
