"""The connections of this process's listeners: how many each network has, and how to cut one.

gRPC for Python cannot close a single connection. But the sockets belong to this process: `cut` shuts the socket down,
and gRPC then ends the connection as if the other side had, and frees its memory.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import stat
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

from reticent.address import network

__all__ = ["CONNECTIONS", "ConnectionLimits", "Connections", "Peer"]

_log = logging.getLogger(__name__)

_DESCRIPTORS = "/dev/fd"  # of this process, on Linux and on macOS
_PAUSE = 1.0  # seconds before connections are cut after all, if it failed


@dataclass(frozen=True)
class Peer:
    """The other end of a connection.

    Args:
        address: Of its machine; `unix` for a Unix socket, whose other end has none.
        port: There. A machine may connect to several listeners from one port.
        listener: The port of the listener, at this end.
    """

    address: str
    port: int = 0
    listener: int = 0

    @classmethod
    def parse(cls, text: str, listener: int) -> Self:
        """Parse gRPC's text for a peer.

        >>> Peer.parse("ipv4:127.0.0.1:5000", 7101)
        Peer(address='127.0.0.1', port=5000, listener=7101)
        >>> [Peer.parse(f"ipv6:%5B{each}%5D:5000", 7101).address for each in ("::ffff:10.0.0.1", "2001:db8::1")]
        ['10.0.0.1', '2001:db8::1']
        >>> Peer.parse("unix:", 0)
        Peer(address='unix', port=0, listener=0)
        """
        kind, _, rest = text.partition(":")
        if not kind.startswith("ip"):
            return cls(kind)
        host, _, port = unquote(rest).rpartition(":")
        return cls(_plain(host.strip("[]")), int(port), listener)

    @property
    def is_known(self) -> bool:
        """Whether it can be distinguished from others. On a Unix socket it cannot: no connection there is cut."""
        return self.port != 0

    @property
    def network(self) -> str:
        """The network whose limits apply."""
        return network(self.address)


@dataclass(frozen=True)
class _OpenConnection:
    """A connection of a listener, as its descriptor shows it."""

    descriptor: int
    peer: Peer


class Connections:
    """The connections of this process's listeners, with the admitted calls of each."""

    def __init__(self) -> None:
        self._calls: Counter[Peer] = Counter()
        self._lock = threading.Lock()
        self._to_cut: set[Peer] = set()
        self._cutting = False  # whether a thread is cutting connections

    @contextlib.contextmanager
    def count_call(self, peer: Peer) -> Iterator[None]:
        """Count a call of this connection inside this block. In the event loop's thread only."""
        self._calls[peer] += 1
        try:
            yield
        finally:
            self._calls[peer] -= 1
            if not self._calls[peer]:
                del self._calls[peer]

    def is_idle(self, peer: Peer) -> bool:
        """Whether this connection has no admitted call."""
        return peer not in self._calls

    def cut(self, peer: Peer) -> None:
        """End a connection soon, with all its calls; returns at once."""
        with self._lock:
            self._to_cut.add(peer)
            if self._cutting:
                return  # the running thread's next scan finds it
            self._cutting = True
        threading.Thread(target=self._cut_all, name="connections", daemon=True).start()

    def _cut_all(self) -> None:
        """Cut connections until there is none left to cut."""
        while peers := self._take():
            try:
                _shut_down([each for each in _connections() if each.peer in peers])
            except OSError as error:  # too many files are open
                with self._lock:
                    self._to_cut |= peers
                _log.warning("connections cannot be cut yet: %s", error)
                time.sleep(_PAUSE)
            except BaseException:
                with self._lock:
                    self._to_cut |= peers
                    self._cutting = False  # the next cut starts another thread
                raise

    def _take(self) -> set[Peer]:
        with self._lock:
            peers, self._to_cut = self._to_cut, set()
            self._cutting = bool(peers)
        return peers


CONNECTIONS = Connections()
"""The connections of this process."""


class ConnectionLimits:
    """Keeps the connections of one listener within their limits.

    Runs in a thread: there may be thousands of connections.

    Args:
        port: Of the listener.
        limit: Connections of all networks.
        limit_per_network: Connections of one network.
        connections: With the admitted calls of each.
    """

    def __init__(self, port: int, limit: int, limit_per_network: int, connections: Connections) -> None:
        self._port = port
        self._limit = limit
        self._limit_per_network = limit_per_network
        self._connections = connections
        self._first_seen: dict[Peer, int] = {}  # the number of the scan, for all open connections
        self._scans = 0

    def enforce(self) -> int:
        """Cut connections above the limits, the oldest idle ones first; how many.

        Raises:
            OSError: The connections cannot be listed now: the process has too many open files.
        """
        if len(_descriptors()) <= min(self._limit, self._limit_per_network):
            self._first_seen.clear()
            return 0
        found = [each for each in _connections() if each.peer.listener == self._port]
        self._scans += 1
        self._first_seen = {each.peer: self._first_seen.get(each.peer, self._scans) for each in found}
        excess = self._beyond_limits(found)
        _shut_down(excess)
        return len(excess)

    def _beyond_limits(self, found: Collection[_OpenConnection]) -> list[_OpenConnection]:
        networks: dict[str, list[_OpenConnection]] = defaultdict(list)
        for each in found:
            networks[each.peer.network].append(each)
        limit = _fair_limit([len(each) for each in networks.values()], self._limit, self._limit_per_network)
        excess: list[_OpenConnection] = []
        for of_one in networks.values():
            idle = sorted((each for each in of_one if self._connections.is_idle(each.peer)), key=self._age)
            excess += idle[: max(0, len(of_one) - limit)]
        return excess

    def _age(self, connection: _OpenConnection) -> tuple[int, int]:
        return self._first_seen[connection.peer], connection.descriptor


def _fair_limit(sizes: list[int], total: int, limit_per_network: int) -> int:
    """The connections per network that keep all together within their limit.

    >>> _fair_limit([5, 100, 200], 1000, 150), _fair_limit([5, 100, 200], 105, 150)
    (150, 50)
    """
    limit, left = limit_per_network, total
    for served, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - served)
        if size > share:
            return max(1, min(limit, share))
        left -= min(size, limit_per_network)
    return limit


def _descriptors() -> list[int]:
    """The open files of this process."""
    return [int(name) for name in os.listdir(_DESCRIPTORS)]  # noqa: PTH208  # no paths are needed


def _connections() -> list[_OpenConnection]:
    """All connections of this process to one of its own listening sockets."""
    found, listening = [], set()
    for descriptor in _descriptors():
        with _socket(descriptor) as held:
            if held is None:
                continue
            if held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                listening.add(int(held.getsockname()[1]))
            elif (peer := _peer(held)) is not None:
                found.append(_OpenConnection(descriptor, peer))
    return [each for each in found if each.peer.listener in listening]


def _shut_down(connections: Collection[_OpenConnection]) -> None:
    if not connections:
        return
    for each in connections:
        with _socket(each.descriptor) as held:
            if held is not None and _peer(held) == each.peer:  # it may have been closed, and another be there now
                with contextlib.suppress(OSError):  # the other side was faster
                    held.shutdown(socket.SHUT_RDWR)
    _log.debug("connections cut: %d", len(connections))


@contextlib.contextmanager
def _socket(descriptor: int) -> Iterator[socket.socket | None]:
    """The TCP socket of a descriptor, if it is one: a duplicate, which stays what it is whatever gRPC closes."""
    duplicate = _duplicate(descriptor)
    if duplicate is None:
        yield None
        return
    with socket.socket(fileno=duplicate) as held:
        is_tcp = held.family in {socket.AF_INET, socket.AF_INET6} and held.type == socket.SOCK_STREAM
        yield held if is_tcp else None


def _duplicate(descriptor: int) -> int | None:
    """A duplicate of the descriptor of a socket; None for any other descriptor.

    Files are not duplicated: closing a duplicate of a database's descriptor would release SQLite's locks on it.

    Raises:
        OSError: Too many files are open.
    """
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        duplicate = os.dup(descriptor)
    except OSError as error:
        if error.errno != errno.EBADF:  # otherwise it was closed meanwhile
            raise
        return None
    # If a file has taken the number of a socket meanwhile, its duplicate stays open, for the same reason.
    return duplicate if stat.S_ISSOCK(os.fstat(duplicate).st_mode) else None


def _peer(held: socket.socket) -> Peer | None:
    try:
        host, port = held.getpeername()[:2]
    except OSError:  # nobody is connected any more
        return None
    return Peer(_plain(host), port, held.getsockname()[1])


def _plain(host: str) -> str:
    """An address without its zone, and an IPv4 address that is mapped into IPv6 as what it is."""
    host = host.partition("%")[0]
    if ":" not in host:
        return host
    six = ipaddress.IPv6Address(host)
    return str(six.ipv4_mapped or six)
