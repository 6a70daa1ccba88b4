"""The ways to the servers: over TLS, by the authority that everybody knows, to who plays the role that is meant."""

from __future__ import annotations

import grpc

from reticent.address import is_local

__all__ = [
    "AGGREGATION_SERVER",
    "ANALYST",
    "KEY_SERVER",
    "ROLES",
    "channel",
    "channel_credentials",
    "role_host",
    "role_option",
]

KEY_SERVER = "key server"
AGGREGATION_SERVER = "aggregation server"
ANALYST = "analyst"
"""The common names; an analyst's own name follows, after a blank."""

ROLES = ".reticent.internal"
"""How the names of roles end, under which no host is."""


def channel_credentials(authority: bytes) -> grpc.ChannelCredentials:
    """To call without a certificate, as phones do."""
    return grpc.ssl_channel_credentials(authority)


def role_option(server: str) -> tuple[str, str]:
    """The option of a channel that has only the server of this role answer.

    The certificates of both servers may name the same hosts. Whoever holds the one must not be taken for the other: the
    key server could read what phones send to the aggregation server.
    """
    return "grpc.ssl_target_name_override", role_host(server)


def channel(address: str, credentials: grpc.ChannelCredentials | None, server: str | None = None) -> grpc.aio.Channel:
    """A way to a server; without credentials only on this machine.

    Args:
        address: Where it is.
        credentials: What is shown to it, and by what it is known.
        server: Its role, `KEY_SERVER` or `AGGREGATION_SERVER`: then its certificate has to name that, and not the host.
    """
    options: tuple[tuple[str, int | str], ...] = (
        ("grpc.keepalive_time_ms", 60_000),  # no shorter than listeners suffer
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 10_000),
    )
    if credentials is not None:
        roles = () if server is None else (role_option(server),)
        return grpc.aio.secure_channel(address, credentials, options=(*options, *roles))
    if not is_local(address):
        raise ValueError(f"{address} may be another machine: it is spoken to with certificates only")
    return grpc.aio.insecure_channel(address, options=options)


def role_host(name: str) -> str:
    """By which name a server of this role is known to callers, wherever it is: nobody else's certificate has it.

    >>> role_host("key server")
    'key-server.reticent.internal'
    """
    return f"{name.replace(' ', '-')}{ROLES}"
