"""Where a server listens."""

from __future__ import annotations

import ipaddress
import re

__all__ = ["is_local"]

_HOST_AND_PORT = re.compile(r"(\[(?P<six>[^\[\]]*)\]|(?P<host>[^:\[\]]*)):[0-9]+")


def is_local(address: str) -> bool:
    """Whether only this machine can speak to an address.

    >>> [is_local(address) for address in ("127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/tmp/a", "0.0.0.0:1")]
    [True, True, True, True, False]
    """
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    parts = _HOST_AND_PORT.fullmatch(address)
    if parts is None:
        return False
    try:
        return ipaddress.ip_address(parts["six"] or parts["host"]).is_loopback
    except ValueError:
        return parts["host"] == "localhost"
