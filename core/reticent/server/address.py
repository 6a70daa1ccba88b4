"""Where a server listens."""

from __future__ import annotations

import ipaddress

__all__ = ["is_local"]


def is_local(address: str) -> bool:
    """Whether only this machine can speak to an address.

    >>> [is_local(address) for address in ("127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/tmp/a", "0.0.0.0:1")]
    [True, True, True, True, False]
    """
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
