"""Faults inside a phone: a full disk, and a clock that is wrong."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from reticent.clock import Clock
from reticent.storage.group_commit import GroupedDatabase
from reticent.storage.sql import Cursor, Execute
from reticent_client.store import PhoneStore

__all__ = ["FullDiskStore", "SkewedClock"]

Result = TypeVar("Result")

_WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)


class FullDiskStore(PhoneStore):
    """The store of one phone, in a file of many, whose disk is full at times. Reads go on.

    Each write then fails with the error that a full disk gives, and changes nothing.

    Args:
        store: The phone's store.
        is_full: Returns whether the disk is full now.
    """

    __slots__ = ()

    def __init__(self, store: PhoneStore, is_full: Callable[[], bool]) -> None:  # the file is open already
        self._file, self.phone = store._file, store.phone  # noqa: SLF001  # of the same class
        self.database = _FullDisk(store.database, is_full)


class _FullDisk(GroupedDatabase):
    """A database for one of its users, for whom the disk is full at times."""

    def __init__(self, database: GroupedDatabase, is_full: Callable[[], bool]) -> None:  # it is open already
        self.path: Path | None = database.path
        self._whole = database
        self._is_full = is_full

    @contextlib.contextmanager
    def reading(self) -> Iterator[Execute]:
        """Execute statements that only read."""
        with self._whole.reading() as run:
            yield run

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        """Execute statements that take effect together, or not at all."""
        with self._whole.transaction() as run:

            def checked(statement: str, values: Sequence[Any] = ()) -> Cursor:
                if _WRITES.match(statement) and self._is_full():
                    raise OSError(errno.ENOSPC, "database or disk is full", str(self.path))
                return run(statement, values)

            yield checked

    async def transact(self, change: Callable[[], Result]) -> Result:
        """Make a change, in one transaction with those of others."""
        return await self._whole.transact(change)

    def erase_deleted(self) -> bool:
        """Overwrite deleted content now; on a full disk this is not possible."""
        return not self._is_full() and self._whole.erase_deleted()

    def close(self) -> None:
        """Let go of the file, for all of its phones."""
        self._whole.close()


class SkewedClock:
    """A clock that is ahead of another one, or behind it.

    Args:
        clock: The right one.
        skew: Returns how far this one is ahead now.
    """

    def __init__(self, clock: Clock, skew: Callable[[], dt.timedelta]) -> None:
        self._clock = clock
        self._skew = skew

    def now(self) -> dt.datetime:
        """The present instant of this clock, in UTC."""
        return self._clock.now() + self._skew()

    async def wait_until(self, instant: dt.datetime) -> None:
        """Return at the instant of this clock; earlier if its skew changes meanwhile."""
        await self._clock.wait_until(instant - self._skew())
