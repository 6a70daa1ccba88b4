"""How many bytes of answers wait to be taken, by connection and by network, within limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reticent.protocol.refusals import Refusal, Refused
from reticent.rpc.connections import Peer

__all__ = ["Outgoing"]

_RETRY_AFTER = 1.0
"""Seconds after which answers may have been taken."""

_SHORT = 0.25
"""Seconds for which an answer of the caller's own network may wait before its connection is cut for another."""

_OVERHEAD = 16 << 10
"""Bytes that are counted for what gRPC keeps of a call besides its answer."""


@dataclass
class _Connection:
    """What is outgoing on a connection."""

    bytes: int = 0
    began: dict[object, float] = field(default_factory=dict)  # of each answer; the oldest comes first
    is_cut: bool = False

    @property
    def waits_since(self) -> float:
        return next(iter(self.began.values()))


@dataclass
class _Network:
    """What is outgoing to a network, without what is on connections that are being cut."""

    bytes: int = 0
    connections: dict[Peer, _Connection] = field(default_factory=dict)


class Outgoing:
    """Counts the answers that are being written.

    A connection that does not take its answers is refused more, and nobody else is. When the answers of all reach
    their limit, a connection is cut: of the network with the most outgoing bytes, the one that has waited longest.

    Args:
        most: Bytes of all connections. Those that are being cut may hold as much again. A single larger answer is
            written where no other one waits.
        most_of_one: Bytes of one connection. A single larger answer is written where no other one waits.
        cut: Has a connection end soon.
        now: The time in seconds, from any beginning.
    """

    def __init__(self, most: int, most_of_one: int, *, cut: Callable[[Peer], None], now: Callable[[], float]) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._cut = cut
        self._now = now
        self._networks: dict[str, _Network] = {}
        self._size = 0
        self._being_cut = 0

    @property
    def size(self) -> int:
        """Bytes that are held now, also those of connections that are being cut."""
        return self._size + self._being_cut

    def check(self, peer: Peer) -> None:
        """Whether a connection may call.

        Raises:
            Refused: BUSY: it does not take the answers to its earlier calls.
        """
        connection = self._find(peer)
        if connection is not None and (connection.is_cut or connection.bytes >= self._most_of_one):
            raise Refused(Refusal.BUSY, "earlier answers were not taken", retry_after=_RETRY_AFTER)

    def add(self, peer: Peer, size: int) -> Callable[[], None]:
        """Count an answer that is about to be written.

        Returns:
            What is to be called when it is written, or given up by gRPC.

        Raises:
            Refused: BUSY: there is no room for it, and it is to be dropped.
        """
        connection = self._find(peer)
        if connection is not None and (connection.is_cut or connection.bytes + size > self._most_of_one):
            raise Refused(Refusal.BUSY, "earlier answers were not taken", retry_after=_RETRY_AFTER)
        if not self._make_room(peer, size):
            raise Refused(Refusal.BUSY, "too many answers are not taken", retry_after=_RETRY_AFTER)
        return self._added(peer, size)

    def add_refusal(self, peer: Peer) -> Callable[[], None]:
        """Count a refusal that is about to be written, which cannot be refused itself."""
        self._make_room(peer, _OVERHEAD)
        return self._added(peer, _OVERHEAD)

    def _find(self, peer: Peer) -> _Connection | None:
        network = self._networks.get(peer.network)
        return None if network is None else network.connections.get(peer)

    def _added(self, peer: Peer, size: int) -> Callable[[], None]:
        network = self._networks.setdefault(peer.network, _Network())
        connection = network.connections.setdefault(peer, _Connection())
        answer = object()
        connection.began[answer] = self._now()
        connection.bytes += size
        if connection.is_cut:
            self._being_cut += size
        else:
            self._size += size
            network.bytes += size

        def written() -> None:
            del connection.began[answer]
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
        """Cut connections until there is room for an answer; whether there is."""
        if size > self._most:
            return self.size == 0
        while self._size + size > self._most:
            name = max(self._networks, key=lambda each: self._bytes_with(each, peer, size), default=peer.network)
            victim = self._longest_waiting(name)
            if victim is None or (name == peer.network and self._now() - victim[1].waits_since < _SHORT):
                return False
            self.cut(victim[0])
            if victim[0] == peer:
                return False
        return self.size + size <= 2 * self._most

    def _bytes_with(self, name: str, peer: Peer, size: int) -> int:
        return self._networks[name].bytes + (size if name == peer.network else 0)

    def _longest_waiting(self, name: str) -> tuple[Peer, _Connection] | None:
        connections = self._networks[name].connections if name in self._networks else {}
        waiting = [each for each in connections.items() if each[0].is_known and not each[1].is_cut]
        return min(waiting, key=lambda each: each[1].waits_since, default=None)

    def cut(self, peer: Peer) -> None:
        """Cut a connection: what it holds counts no longer for its network."""
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
