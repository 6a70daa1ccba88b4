"""Channels to the servers over TLS, which check the role of the server."""

from __future__ import annotations

import grpc

from reticent.address import is_local
from reticent.retry import Backoff

__all__ = [
    "AD_SERVICE",
    "AGGREGATION_SERVER",
    "ANALYST",
    "KEY_SERVER",
    "ROLES",
    "blocking_channel",
    "channel",
    "channel_credentials",
    "connection_options",
    "role_host",
    "role_option",
]

KEY_SERVER = "key server"
AGGREGATION_SERVER = "aggregation server"
AD_SERVICE = "ad service"
ANALYST = "analyst"
"""Common names of certificates; an analyst's own name follows after a space."""

ROLES = ".reticent.internal"
"""The domain of role names; no host is in it."""

RECONNECT = Backoff(first=0.2, limit=10.0)
KEEPALIVE = 60.0
"""Seconds; listeners close connections with much shorter intervals."""

Options = tuple[tuple[str, int | str], ...]


def channel_credentials(authority: bytes) -> grpc.ChannelCredentials:
    """Credentials without a certificate of one's own, as phones use them."""
    return grpc.ssl_channel_credentials(authority)


def role_option(server: str) -> tuple[str, str]:
    """The channel option that accepts only the server of this role.

    The certificates of all servers may name the same hosts. No server may impersonate another: the key server
    could read what phones send to the aggregation server.
    """
    return "grpc.ssl_target_name_override", role_host(server)


def connection_options(reconnect: Backoff, keepalive: float = KEEPALIVE) -> Options:
    """The options of a connection to a server or to a phone.

    Args:
        reconnect: The delays between attempts to connect.
        keepalive: Seconds without data after which the server is probed. It then has a third of that to respond.
    """
    return (
        ("grpc.initial_reconnect_backoff_ms", round(1000 * reconnect.first)),
        ("grpc.max_reconnect_backoff_ms", round(1000 * reconnect.limit)),
        ("grpc.keepalive_time_ms", round(1000 * keepalive)),
        ("grpc.keepalive_timeout_ms", round(1000 * keepalive / 3)),
    )


def channel(address: str, credentials: grpc.ChannelCredentials | None, server: str | None = None) -> grpc.aio.Channel:
    """A channel to a server; without credentials only on this machine.

    Args:
        address: Of the server.
        credentials: Of the caller, with the authority that certifies the server.
        server: Its role, such as `KEY_SERVER`: its certificate must then name the role, not the host.
    """
    options = connection_options(RECONNECT)
    if credentials is None:
        _check_local(address)
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=(*options, *_role_options(server)))


def blocking_channel(
    address: str, credentials: grpc.ChannelCredentials | None, server: str, options: Options
) -> grpc.Channel:
    """As `channel`, without an event loop and with options of the caller's own."""
    if credentials is None:
        _check_local(address)
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, credentials, options=(*options, *_role_options(server)))


def _role_options(server: str | None) -> Options:
    return () if server is None else (role_option(server),)


def _check_local(address: str) -> None:
    if not is_local(address):
        raise ValueError(f"{address} may be another machine: it needs certificates")


def role_host(name: str) -> str:
    """The host name that stands for a role: only certificates of that role have it.

    >>> role_host("key server")
    'key-server.reticent.internal'
    """
    return f"{name.replace(' ', '-')}{ROLES}"
