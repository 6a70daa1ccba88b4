"""Limits on concurrent calls: calls that wait for their callers are evicted when new calls need room."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from reticent.protocol import Refusal, Refused
from reticent.rpc._connections import Peer

__all__ = ["AdmittedCall", "CallLimits"]

_RETRY_AFTER = 1.0
"""Seconds after which there may be room again."""


class AdmittedCall:
    """A call that counts towards the limits.

    Args:
        peer: The other end of its connection.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.network = peer.network
        self.evicted = False
        """Whether the call no longer counts and is about to end."""
        self._waiting: asyncio.Timeout | None = None

    @asynccontextmanager
    async def waiting(self, seconds: float) -> AsyncIterator[None]:
        """Wait for the caller inside this block, at most so many seconds: for its message, or until it reads a reply.

        Raises:
            Refused: BUSY: it took longer, or the call was evicted.
        """
        try:
            async with asyncio.timeout(0.0 if self.evicted else seconds) as self._waiting:
                yield
        except TimeoutError:
            if not self.evicted:
                raise Refused(Refusal.BUSY, "the message took too long to arrive", retry_after=seconds) from None
        finally:
            self._waiting = None
        if self.evicted:  # even if the message arrived at the last moment: nothing counts this call any more
            raise Refused(Refusal.BUSY, "evicted by newer calls while waiting for a message", retry_after=_RETRY_AFTER)

    def evict(self) -> None:
        """Have the call end, now or the next time it waits."""
        self.evicted = True
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())


class _WaitingCalls:
    """The calls of one network that wait for their callers."""

    def __init__(self) -> None:
        self.size = 0
        self._connections: dict[Peer, dict[AdmittedCall, None]] = {}  # per connection, the longest waiting call first

    def add(self, call: AdmittedCall) -> None:
        calls = self._connections.setdefault(call.peer, {})
        self.size += call not in calls
        calls[call] = None

    def remove(self, call: AdmittedCall) -> None:
        calls = self._connections.get(call.peer, {})
        if call in calls:
            self.size -= 1
            del calls[call]
            if not calls:
                del self._connections[call.peer]

    def next_to_evict(self) -> AdmittedCall:
        """The longest waiting call of the connection with the most waiting calls."""
        busiest = max(self._connections, key=lambda each: len(self._connections[each]))
        return next(iter(self._connections[busiest]))


class CallLimits:
    """Limits how many calls are admitted at a time.

    When there is no room for a new call, a call that waits for its caller is evicted: its message has not arrived, or
    its reply has not been read. The network with the most waiting calls loses one; there, the connection with the
    most waiting calls; there, the call that has waited longest. So idle callers displace no network with fewer. A slow
    message is lost only if its own network opens many connections.

    Args:
        limit: Concurrent calls.
        limit_per_network: Concurrent calls of one network.
    """

    def __init__(self, limit: int, limit_per_network: int) -> None:
        self._limit = limit
        self._limit_per_network = limit_per_network
        self.size = 0
        """The number of calls admitted now."""
        self._admitted: Counter[str] = Counter()  # by network
        self._waiting: dict[str, _WaitingCalls] = {}  # by network

    @property
    def waiting(self) -> int:
        """The number of admitted calls that wait for their caller. Any thread may read it."""
        return sum(each.size for each in list(self._waiting.values()))

    @contextmanager
    def admit(self, peer: Peer) -> Iterator[AdmittedCall]:
        """Count one more call of a connection inside this block; it waits for its message at first.

        Raises:
            Refused: BUSY: there is no room, and no call to evict.
        """
        call = AdmittedCall(peer)
        if self._admitted[call.network] >= self._limit_per_network:
            self._evict_one(call.network)
        elif self.size >= self._limit:
            self._evict_one(max(self._waiting, key=lambda each: self._waiting[each].size, default=call.network))
        self.size += 1
        self._admitted[call.network] += 1
        self.mark_waiting(call)
        try:
            yield call
        finally:
            if not call.evicted:
                self._remove(call)

    def mark_waiting(self, call: AdmittedCall) -> None:
        """The call waits for its caller: it may be evicted."""
        self._waiting.setdefault(call.network, _WaitingCalls()).add(call)

    def mark_working(self, call: AdmittedCall) -> None:
        """The message has arrived, or the reply has been read: the call cannot be evicted."""
        waiting = self._waiting.get(call.network)
        if waiting is not None:
            waiting.remove(call)
            if not waiting.size:
                del self._waiting[call.network]

    def _evict_one(self, network: str) -> None:
        waiting = self._waiting.get(network)
        if waiting is None:
            raise Refused(Refusal.BUSY, "too many concurrent calls", retry_after=_RETRY_AFTER)
        call = waiting.next_to_evict()
        call.evict()
        self._remove(call)

    def _remove(self, call: AdmittedCall) -> None:
        self.mark_working(call)
        self.size -= 1
        self._admitted[call.network] -= 1
        if not self._admitted[call.network]:
            del self._admitted[call.network]
