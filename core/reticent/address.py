"""Addresses of listeners and callers."""

from __future__ import annotations

import ipaddress
import re
import socket

import grpc

from reticent.errors import ExitCode, ReticentError

__all__ = ["AddressError", "bind", "check_address", "is_local", "network", "socket_address"]

_HOST_AND_PORT = re.compile(r"(\[(?P<six>[^\[\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]+)")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_PORTS = range(1, 1 << 16)
_NETWORK = 64  # bits of an IPv6 address that name its owner's network


class AddressError(ReticentError):
    """A server cannot listen at an address."""

    exit_code = ExitCode.IN_USE


def bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Let a server listen at an address; returns the address with its actual port.

    Raises:
        AddressError: It is in use, or not an address.
    """
    parts = _HOST_AND_PORT.fullmatch(address)
    if parts is not None and parts["port"] != "0" and not _is_port(parts["port"]):  # gRPC would listen at another port
        raise AddressError(f"cannot listen at {address}: ports end at {_PORTS[-1]}")
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise AddressError(f"cannot listen at {address}: is it taken, or not an address?") from error
    return address if address.startswith("unix") else f"{address.rpartition(':')[0]}:{port}"


def socket_address(address: str) -> tuple[socket.AddressFamily, str, int]:
    """The family, the host and the port of an address, for a socket that listens there.

    >>> socket_address("127.0.0.1:0")
    (<AddressFamily.AF_INET: 2>, '127.0.0.1', 0)

    Raises:
        AddressError: It is not an address.
    """
    parts = _HOST_AND_PORT.fullmatch(address)
    if (
        parts is None
        or not _is_host(parts["six"], parts["host"])
        or not (parts["port"] == "0" or _is_port(parts["port"]))
    ):
        raise AddressError(f"cannot listen at {address}: an address is host:port, such as 127.0.0.1:9461")
    try:
        found = socket.getaddrinfo(parts["six"] or parts["host"], int(parts["port"]), type=socket.SOCK_STREAM)
    except OSError as error:
        raise AddressError(f"cannot listen at {address}: {error}") from error
    family, *_, (host, port, *_) = found[0]
    return family, str(host), int(port)


def is_local(address: str) -> bool:
    """Whether an address can be reached from this machine only.

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


def check_address(address: str) -> None:
    """Refuse an address that is not host:port, with an IPv6 address in brackets.

    >>> check_address("keys.example.org:7101"), check_address("[2001:db8::1]:7101")
    (None, None)
    """
    parts = _HOST_AND_PORT.fullmatch(address)
    if parts is None or not _is_host(parts["six"], parts["host"]) or not _is_port(parts["port"]):
        raise ValueError(f"an address is host:port, such as keys.example.org:7101: got {address!r}")


def network(address: str) -> str:
    """The unit of rate limits: an IPv4 address, or the /64 network of an IPv6 address.

    >>> network("10.0.0.1"), network("::ffff:10.0.0.1"), network("2001:db8::1")
    ('10.0.0.1', '10.0.0.1', '2001:db8::/64')
    """
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address)
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> _NETWORK << _NETWORK, _NETWORK)))


def _is_host(six: str | None, host: str | None) -> bool:
    if six is None:
        return bool(host) and _HOST.fullmatch(host or "") is not None
    try:
        return ipaddress.ip_address(six).version == 6
    except ValueError:
        return False


def _is_port(digits: str) -> bool:
    return len(digits) <= len(str(_PORTS.stop)) and int(digits) in _PORTS
