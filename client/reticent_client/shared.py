"""Objects that all users of an event loop share, such as the channel of many phones to one server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["SharedObjects"]


class SharedObject(Protocol):
    """An object that is closed after its last use."""

    async def close(self) -> None:
        """Release what it holds."""


C = TypeVar("C", bound=SharedObject)


class _UsedObject(Generic[C]):
    def __init__(self, shared: C) -> None:
        self.shared = shared
        self.users = 0


class SharedObjects(Generic[C]):
    """One object of each name for an event loop, from its first use to its last."""

    def __init__(self) -> None:
        self._entries: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _UsedObject[C]]] = (
            WeakKeyDictionary()
        )

    @contextlib.asynccontextmanager
    async def use(self, name: Hashable, make: Callable[[], C]) -> AsyncIterator[C]:
        """The object of this name while it is entered; the first user makes it, and the last one closes it."""
        entries = self._entries.setdefault(asyncio.get_running_loop(), {})
        if name not in entries:
            entries[name] = _UsedObject(make())
        entry = entries[name]
        entry.users += 1
        try:
            yield entry.shared
        finally:
            entry.users -= 1
            if not entry.users:
                del entries[name]
                await entry.shared.close()
