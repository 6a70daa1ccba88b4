"""Limits on the bytes of unread replies, by connection and by network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reticent.protocol import Refusal, Refused
from reticent.rpc._connections import Peer

__all__ = ["ReplyLimits"]

_RETRY_AFTER = 1.0
"""Seconds after which replies may have been read."""

_SHORT = 0.25
"""Seconds that a reply to the caller's own network may wait before its connection is cut for another."""

_OVERHEAD = 16 << 10
"""Bytes counted for what gRPC keeps of a call besides its reply."""


@dataclass
class _ConnectionReplies:
    """The unread replies of a connection."""

    bytes: int = 0
    began: dict[object, float] = field(default_factory=dict)  # of each reply, the oldest first
    is_cut: bool = False

    @property
    def waiting_since(self) -> float:
        return next(iter(self.began.values()))


@dataclass
class _Network:
    """The unread replies of a network, without those of connections that are being cut."""

    bytes: int = 0
    connections: dict[Peer, _ConnectionReplies] = field(default_factory=dict)


class ReplyLimits:
    """Counts the replies that are being written.

    A connection that does not read its replies is refused further calls; no other connection is. When the replies of
    all connections reach their limit, one is cut: of the network with the most unread bytes, the connection that has
    waited longest.

    Args:
        limit: Bytes of all connections. Those that are being cut may hold as much again. A single larger reply is
            written if no other one waits.
        limit_per_connection: Bytes of one connection. A single larger reply is written if no other one waits.
        cut: Has a connection end soon.
        now: The time in seconds, from any origin.
    """

    def __init__(
        self, limit: int, limit_per_connection: int, *, cut: Callable[[Peer], None], now: Callable[[], float]
    ) -> None:
        self._limit = limit
        self._limit_per_connection = limit_per_connection
        self._cut = cut
        self._now = now
        self._networks: dict[str, _Network] = {}
        self._size = 0
        self._being_cut = 0

    @property
    def size(self) -> int:
        """Bytes held now, with those of connections that are being cut."""
        return self._size + self._being_cut

    def check(self, peer: Peer) -> None:
        """Check that a connection may call.

        Raises:
            Refused: BUSY: it has not read the replies to its earlier calls.
        """
        connection = self._find(peer)
        if connection is not None and (connection.is_cut or connection.bytes >= self._limit_per_connection):
            raise Refused(Refusal.BUSY, "the caller has not read earlier replies", retry_after=_RETRY_AFTER)

    def add(self, peer: Peer, size: int) -> Callable[[], None]:
        """Count a reply that is about to be written.

        Returns:
            A function to call when gRPC has written the reply or given it up.

        Raises:
            Refused: BUSY: there is no room for it; drop it.
        """
        connection = self._find(peer)
        if connection is not None and (connection.is_cut or connection.bytes + size > self._limit_per_connection):
            raise Refused(Refusal.BUSY, "the caller has not read earlier replies", retry_after=_RETRY_AFTER)
        if not self._make_room(peer, size):
            raise Refused(Refusal.BUSY, "too many replies are unread", retry_after=_RETRY_AFTER)
        return self._added(peer, size)

    def add_refusal(self, peer: Peer) -> Callable[[], None]:
        """Count a refusal that is about to be written; it cannot be refused itself."""
        self._make_room(peer, _OVERHEAD)
        return self._added(peer, _OVERHEAD)

    def _find(self, peer: Peer) -> _ConnectionReplies | None:
        network = self._networks.get(peer.network)
        return None if network is None else network.connections.get(peer)

    def _added(self, peer: Peer, size: int) -> Callable[[], None]:
        network = self._networks.setdefault(peer.network, _Network())
        connection = network.connections.setdefault(peer, _ConnectionReplies())
        reply = object()
        connection.began[reply] = self._now()
        connection.bytes += size
        if connection.is_cut:
            self._being_cut += size
        else:
            self._size += size
            network.bytes += size

        def written() -> None:
            del connection.began[reply]
            connection.bytes -= size
            if connection.is_cut:
                self._being_cut -= size
            else:
                self._size -= size
                network.bytes -= size
            if not connection.began:
                del network.connections[peer]
                if not network.connections:
                    del self._networks[peer.network]

        return written

    def _make_room(self, peer: Peer, size: int) -> bool:
        """Cut connections until there is room for a reply; whether there is."""
        if size > self._limit:
            return self.size == 0
        while self._size + size > self._limit:
            name = max(self._networks, key=lambda each: self._bytes_with(each, peer, size), default=peer.network)
            victim = self._longest_waiting(name)
            if victim is None or (name == peer.network and self._now() - victim[1].waiting_since < _SHORT):
                return False
            self.cut(victim[0])
            if victim[0] == peer:
                return False
        return self.size + size <= 2 * self._limit

    def _bytes_with(self, name: str, peer: Peer, size: int) -> int:
        return self._networks[name].bytes + (size if name == peer.network else 0)

    def _longest_waiting(self, name: str) -> tuple[Peer, _ConnectionReplies] | None:
        connections = self._networks[name].connections if name in self._networks else {}
        waiting = [each for each in connections.items() if each[0].is_known and not each[1].is_cut]
        return min(waiting, key=lambda each: each[1].waiting_since, default=None)

    def cut(self, peer: Peer) -> None:
        """Cut a connection: its replies no longer count for its network."""
        connection = self._find(peer)
        if not peer.is_known:
            return
        if connection is None:
            self._cut(peer)
        elif not connection.is_cut:
            connection.is_cut = True
            self._size -= connection.bytes
            self._networks[peer.network].bytes -= connection.bytes
            self._being_cut += connection.bytes
            self._cut(peer)
