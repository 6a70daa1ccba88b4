"""Channels to the servers over TLS, which check the role of the server."""

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
"""Common names of certificates; an analyst's own name follows after a space."""

ROLES = ".reticent.internal"
"""The domain of role names; no host is in it."""


def channel_credentials(authority: bytes) -> grpc.ChannelCredentials:
    """Credentials without a certificate of one's own, as phones use them."""
    return grpc.ssl_channel_credentials(authority)


def role_option(server: str) -> tuple[str, str]:
    """The channel option that accepts only the server of this role.

    The certificates of both servers may name the same hosts. Neither server may impersonate the other: the key server
    could read what phones send to the aggregation server.
    """
    return "grpc.ssl_target_name_override", role_host(server)


def channel(address: str, credentials: grpc.ChannelCredentials | None, server: str | None = None) -> grpc.aio.Channel:
    """A channel to a server; without credentials only on this machine.

    Args:
        address: Of the server.
        credentials: Of the caller, with the authority that certifies the server.
        server: Its role, `KEY_SERVER` or `AGGREGATION_SERVER`: its certificate must then name the role, not the host.
    """
    options: tuple[tuple[str, int | str], ...] = (
        ("grpc.keepalive_time_ms", 60_000),  # listeners close connections with shorter intervals
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 10_000),
    )
    if credentials is not None:
        roles = () if server is None else (role_option(server),)
        return grpc.aio.secure_channel(address, credentials, options=(*options, *roles))
    if not is_local(address):
        raise ValueError(f"{address} may be another machine: it needs certificates")
    return grpc.aio.insecure_channel(address, options=options)


def role_host(name: str) -> str:
    """The host name that stands for a role: only certificates of that role have it.

    >>> role_host("key server")
    'key-server.reticent.internal'
    """
    return f"{name.replace(' ', '-')}{ROLES}"
