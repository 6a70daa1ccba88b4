"""The stream of steps that all apps read: written once, read by each at its own pace."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Iterable

from reticent_client.errors import Closed, LeftBehind


class Stream:
    """The last messages, by position, for any number of readers.

    Messages are not copied, and the stream waits for no reader. A slow reader finds everything that is among the last
    `held` messages. All calls come from one event loop.
    """

    def __init__(self, held: int, messages: Iterable[tuple[int, bytes]] = (), *, dropped: int = -1) -> None:
        self._positions: deque[int] = deque(maxlen=held)
        self._messages: deque[bytes] = deque(maxlen=held)
        self._dropped = dropped  # the position of the last message that is no longer held
        self._written = 0  # how many messages there ever were
        self._next: asyncio.Future[None] | None = None
        self._closed = False
        for position, message in messages:
            self._append(position, message)

    @property
    def last(self) -> tuple[int, bytes] | None:
        """The last message and its position."""
        return (self._positions[-1], self._messages[-1]) if self._messages else None

    def write(self, position: int, message: bytes) -> None:
        """Append a message, and wake the readers."""
        self._append(position, message)
        self._wake()

    def close(self) -> None:
        """End the stream after its present messages."""
        self._closed = True
        self._wake()

    def read(self, after: int | None = None, *, since: int = -1) -> AsyncGenerator[bytes, None]:
        """The messages after a position (0 for all that are held), or from now on, for as long as the stream is open.

        Those up to `since` are left out.

        Raises:
            LeftBehind: Some of them are no longer held.
            Closed: The stream was closed.
        """
        due = self._written if after is None else self._first_after(after)
        return self._read(max(due, self._number_after(since)))

    async def _read(self, due: int) -> AsyncGenerator[bytes, None]:
        """The messages from a number on, including those written between this call and the first read."""
        while True:
            while due < self._written:
                held = self._written - len(self._messages)
                if due < held:
                    raise LeftBehind(f"{held - due} steps were dropped before they were read")
                yield self._messages[due - held]
                due += 1
            if self._closed:
                raise Closed("the phone shuts down: retry later")
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._next)

    def _first_after(self, after: int) -> int:
        """The number of the first message after a position."""
        if after != 0 and after < self._dropped:
            raise LeftBehind("steps after this position are no longer held")
        return self._number_after(after)

    def _number_after(self, position: int) -> int:
        """The number of the first message that is held after a position."""
        return self._written - len(self._messages) + bisect_right(self._positions, position)

    def _wake(self) -> None:
        if self._next is not None:
            self._next.set_result(None)
            self._next = None

    def _append(self, position: int, message: bytes) -> None:
        if self._positions and position <= self._positions[-1]:
            raise ValueError(f"position {position} does not follow {self._positions[-1]}")
        if len(self._positions) == self._positions.maxlen:
            self._dropped = self._positions[0]
        self._positions.append(position)
        self._messages.append(message)
        self._written += 1
