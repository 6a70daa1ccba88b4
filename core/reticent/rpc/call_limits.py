"""The calls that are inside at a time, of which those that wait for their callers give way to those that come."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from reticent.protocol.refusals import Refusal, Refused
from reticent.rpc.connections import Peer

__all__ = ["Crowd", "Visit"]

_COME_BACK = 1.0
"""Seconds after which there may be room again."""


class Visit:
    """A call that is inside.

    Args:
        peer: The other end of its connection.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.whose = peer.network
        self.given_way = False
        """Whether it is no longer counted, and about to end."""
        self._waiting: asyncio.Timeout | None = None

    @asynccontextmanager
    async def waiting(self, patience: float) -> AsyncIterator[None]:
        """Wait for the caller within, so many seconds at most: for its message, or until it takes an answer.

        Raises:
            Refused: BUSY: it took too long, or others came and there was no room for all.
        """
        try:
            async with asyncio.timeout(0.0 if self.given_way else patience) as self._waiting:
                yield
        except TimeoutError:
            if not self.given_way:
                raise Refused(Refusal.BUSY, "the message took too long to come", retry_after=patience) from None
        finally:
            self._waiting = None
        if self.given_way:  # also where the message came at the last moment: nobody counts this call any more
            raise Refused(Refusal.BUSY, "others came while there was no message", retry_after=_COME_BACK)

    def give_way(self) -> None:
        """Have the call end, now or when it waits."""
        self.given_way = True
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())


class _Waiting:
    """The calls of one network that wait for their callers."""

    def __init__(self) -> None:
        self.size = 0
        self._connections: dict[Peer, dict[Visit, None]] = {}  # of each, the call that has waited longest comes first

    def add(self, visit: Visit) -> None:
        calls = self._connections.setdefault(visit.peer, {})
        self.size += visit not in calls
        calls[visit] = None

    def remove(self, visit: Visit) -> None:
        calls = self._connections.get(visit.peer, {})
        if visit in calls:
            self.size -= 1
            del calls[visit]
            if not calls:
                del self._connections[visit.peer]

    def first_to_give_way(self) -> Visit:
        """The call that has waited longest, of the connection with the most calls that wait."""
        most = max(self._connections, key=lambda each: len(self._connections[each]))
        return next(iter(self._connections[most]))


class Crowd:
    """Counts the calls that are inside, and has them be no more than they may be.

    Where there is no room for one that comes, one gives way that waits for its caller, who has brought no message yet
    or does not take an answer: of the network that has the most of those, and there of the connection that has the
    most, the one that has waited longest. So callers that do nothing keep out only each other; and a message that is
    slow is lost only where many connections come from its own network.

    Args:
        most: Calls at a time.
        most_of_one: Calls of one network.
    """

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self.size = 0
        """How many calls are inside."""
        self._inside: Counter[str] = Counter()  # by network
        self._waiting: dict[str, _Waiting] = {}  # by network

    @contextmanager
    def entered(self, peer: Peer) -> Iterator[Visit]:
        """One more call of a connection, while it is inside; it has no message at first.

        Raises:
            Refused: BUSY: there is no room, and nobody gives way.
        """
        visit = Visit(peer)
        if self._inside[visit.whose] >= self._most_of_one:
            self._have_one_give_way(visit.whose)
        elif self.size >= self._most:
            self._have_one_give_way(max(self._waiting, key=lambda each: self._waiting[each].size, default=visit.whose))
        self.size += 1
        self._inside[visit.whose] += 1
        self.waits(visit)
        try:
            yield visit
        finally:
            if not visit.given_way:
                self.goes_on(visit)
                self._leaves(visit)

    def waits(self, visit: Visit) -> None:
        """This call waits for its caller again, and gives way meanwhile."""
        self._waiting.setdefault(visit.whose, _Waiting()).add(visit)

    def goes_on(self, visit: Visit) -> None:
        """The message of this call has come, or its answer is taken: it gives way to nobody."""
        waiting = self._waiting.get(visit.whose)
        if waiting is not None:
            waiting.remove(visit)
            if not waiting.size:
                del self._waiting[visit.whose]

    def _have_one_give_way(self, whose: str) -> None:
        waiting = self._waiting.get(whose)
        if waiting is None:
            raise Refused(Refusal.BUSY, "too many calls at a time", retry_after=_COME_BACK)
        visit = waiting.first_to_give_way()
        visit.give_way()
        self.goes_on(visit)
        self._leaves(visit)

    def _leaves(self, visit: Visit) -> None:
        self.size -= 1
        self._inside[visit.whose] -= 1
        if not self._inside[visit.whose]:
            del self._inside[visit.whose]
