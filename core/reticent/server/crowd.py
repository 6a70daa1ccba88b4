"""The calls that are inside at a time, of which those that wait for their callers give way to those that come."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from reticent.protocol.refusals import Refusal, Refused

__all__ = ["Crowd", "Visit"]

_COME_BACK = 1.0
"""Seconds after which there may be room again."""

LEFT_OF_ONE, LEFT_OF_ALL = 32, 256
"""Answers that lie about because nobody takes them, of one network and of all, before those to whom they go wait."""


class Visit:
    """A call that is inside.

    Args:
        whose: Its caller's network.
    """

    def __init__(self, whose: str) -> None:
        self.whose = whose
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


class Crowd:
    """Counts the calls that are inside, and has them be no more than they may be.

    Where there is no room for one that comes, one gives way that waits for its caller, who has brought no message yet
    or does not take an answer: of the network that has the most of those, the one that has waited longest. So callers
    that do nothing keep out only each other; and a message that is slow is lost only where many come from its own
    network.

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
        self._waiting: dict[str, dict[Visit, None]] = {}  # by network; of each, who has waited longest comes first
        self._left: Counter[str] = Counter()  # answers that are not taken, by network

    @contextmanager
    def entered(self, whose: str) -> Iterator[Visit]:
        """One more call, while it is inside; it has no message at first.

        Raises:
            Refused: BUSY: there is no room, and nobody gives way; or the network does not take its answers.
        """
        if self._left[whose] >= (1 if self._left.total() >= LEFT_OF_ALL else LEFT_OF_ONE):
            raise Refused(Refusal.BUSY, "earlier answers were not taken", retry_after=_COME_BACK)
        if self._inside[whose] >= self._most_of_one:
            self._have_one_give_way(whose)
        elif self.size >= self._most:
            self._have_one_give_way(max(self._waiting, key=lambda each: len(self._waiting[each]), default=whose))
        visit = Visit(whose)
        self.size += 1
        self._inside[whose] += 1
        self.waits(visit)
        try:
            yield visit
        finally:
            if not visit.given_way:
                self.goes_on(visit)
                self._leaves(visit)

    def waits(self, visit: Visit) -> None:
        """This call waits for its caller again, and gives way meanwhile."""
        self._waiting.setdefault(visit.whose, {})[visit] = None

    def goes_on(self, visit: Visit) -> None:
        """The message of this call has come, or its answer is taken: it gives way to nobody."""
        waiting = self._waiting.get(visit.whose, {})
        waiting.pop(visit, None)
        if not waiting:
            self._waiting.pop(visit.whose, None)

    def left(self, visit: Visit) -> None:
        """The answer to this call is not taken, and gRPC keeps it as long as the connection."""
        self._left[visit.whose] += 1

    def gone(self, visit: Visit) -> None:
        """It is kept no longer."""
        self._left[visit.whose] -= 1
        if not self._left[visit.whose]:
            del self._left[visit.whose]

    def _have_one_give_way(self, whose: str) -> None:
        visit = next(iter(self._waiting.get(whose, ())), None)
        if visit is None:
            raise Refused(Refusal.BUSY, "too many calls at a time", retry_after=_COME_BACK)
        visit.give_way()
        self.goes_on(visit)
        self._leaves(visit)

    def _leaves(self, visit: Visit) -> None:
        self.size -= 1
        self._inside[visit.whose] -= 1
        if not self._inside[visit.whose]:
            del self._inside[visit.whose]
