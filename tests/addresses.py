"""Addresses at which a test's servers listen."""

import contextlib
import random
import socket

FIRST_PORT, LAST_PORT = 11_000, 30_000
"""Ports that no system gives to those who call: nobody else takes one while a server is down."""


def free_address() -> str:
    """An address on loopback where nobody listens."""
    chance = random.Random()  # noqa: S311  # any port will do
    while True:
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                tried.bind(("127.0.0.1", chance.randrange(FIRST_PORT, LAST_PORT)))
                return "127.0.0.1:{1}".format(*tried.getsockname())
