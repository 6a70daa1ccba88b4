"""Changes of many threads or tasks, committed together: one wait for the disk for all that are made at once."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from reticent.storage.database import Database, Reader, named_errors
from reticent.storage.sql import Execute, FileFormat

if TYPE_CHECKING:
    import asyncio

__all__ = ["GroupedDatabase"]

Result = TypeVar("Result")
_Queue = deque[tuple[Callable[[], Any], "asyncio.Future[Any]"]]

MAX_GROUP = 256
"""Changes in one transaction."""
COMMIT_TIMEOUT = 1.0
"""Seconds after which a change is committed by its own thread, where the thread that should do it has died."""


class _CommitGroup:
    """Changes that are committed together."""

    def __init__(self) -> None:
        self.size = 0
        self.finished = threading.Event()
        self.error: BaseException | None = None


class GroupedDatabase(Database):
    """A `Database` for many threads, or tasks of event loops, that make small changes.

    A change is still on disk when `transaction` ends. While others wait to make theirs, it waits for them, and the last
    one commits for all; where one fails, the others still come true. Reads outside of a change see what is committed.

    Args:
        path: Where the file is or will be; None for one in memory.
        file_format: Of the file.
    """

    def __init__(self, path: Path | None, file_format: FileFormat) -> None:
        self._reader: Reader | None = None
        self._waiting = 0  # threads that wait to begin a change
        self._counting = threading.Lock()
        self._group: _CommitGroup | None = None
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue] = WeakKeyDictionary()
        super().__init__(path, file_format)
        if path is not None:
            self._reader = Reader(path, file_format)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Execute]:
        """Execute statements on what is committed, or within a change on what this has changed so far."""
        if self._reader is None or self._is_inside:
            with super().reading() as run:
                yield run
        else:
            with self._reader.reading() as run:
                yield run

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        """Execute statements that are committed together when this ends, or not at all."""
        if self._is_inside:
            with super().transaction() as run:
                yield run
            return
        with named_errors(self.path, self._format):
            with self._turn() as group:
                yield self._execute
            while not group.finished.wait(COMMIT_TIMEOUT):
                with self._lock:
                    self._commit(group)
            if group.error is not None:
                raise group.error

    async def transact(self, change: Callable[[], Result]) -> Result:
        """Make a change, in one transaction with those of other tasks that are ready to make theirs.

        The change is on disk when this returns. A change that fails is undone alone. No other task runs while the
        transaction is open. So if this is cancelled, the change is on disk, or will never be made.
        """
        from asyncio import get_running_loop  # noqa: PLC0415  # a phone without a network does without

        loop = get_running_loop()
        made = loop.create_future()
        queue = self._queues.setdefault(loop, deque())
        if not queue:
            loop.call_soon(self._transact_queued, loop, queue)
        queue.append((change, made))
        result: Result = await made
        return result

    def erase_deleted(self) -> bool:
        """Overwrite deleted content now, also in the log of the database. Returns whether that was possible."""
        with self._lock:
            self._commit(self._group)
            return super().erase_deleted()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._commit(self._group)
        if self._reader is not None:
            self._reader.close()
        super().close()

    def _transact_queued(self, loop: asyncio.AbstractEventLoop, queue: _Queue) -> None:
        """Make the changes of a group of tasks, and resume the tasks when these are on disk."""
        group = [queue.popleft() for _ in range(min(len(queue), MAX_GROUP))]
        if queue:
            loop.call_soon(self._transact_queued, loop, queue)  # the loop's other work comes first
        group = [(change, made) for change, made in group if not made.cancelled()]
        resumed: list[Callable[[], None]] = []
        try:
            with self.transaction():
                resumed = [self._part(change, made) for change, made in group]
        except BaseException as error:  # noqa: BLE001  # all tasks of the group raise it
            resumed = [partial(made.set_exception, error) for _, made in group]
        for resume in resumed:
            resume()

    def _part(self, change: Callable[[], Any], made: asyncio.Future[Any]) -> Callable[[], None]:
        """Make a change as a part of a transaction. Returns what resumes its task."""
        try:
            with self.transaction():
                result = change()
        except BaseException as error:
            if not self._connection.in_transaction:  # SQLite has undone the other changes as well
                raise
            return partial(made.set_exception, error)
        return partial(made.set_result, result)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[_CommitGroup]:
        """Make a change, alone; and commit the group, unless somebody else waits to join it."""
        with self._count_waiting():
            self._lock.acquire()
        try:
            group = self._begun()
            self._owner = threading.get_ident()
            try:
                with self._savepoint() if group.size else contextlib.nullcontext():
                    yield group
                group.size += 1
            except BaseException as error:
                self._drop(group, error)
                raise
            finally:
                self._owner = None
                if not self._waiting or group.size >= MAX_GROUP:
                    self._commit(group)
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def _count_waiting(self) -> Iterator[None]:
        with self._counting:
            self._waiting += 1
        try:
            yield
        finally:
            with self._counting:
                self._waiting -= 1

    def _begun(self) -> _CommitGroup:
        if self._group is None:
            self._execute("BEGIN IMMEDIATE")
            self._group = _CommitGroup()
        return self._group

    def _drop(self, group: _CommitGroup, error: BaseException) -> None:
        """Undo a change that failed; the others of its group stay, unless SQLite has ended the transaction itself."""
        if self._connection.in_transaction:
            if group.size:
                return
            self._execute("ROLLBACK")
        self._finish(group, error)

    def _commit(self, group: _CommitGroup | None) -> None:
        if group is None or self._group is not group:
            return
        error: BaseException | None = None
        try:
            self._execute("COMMIT")
        except BaseException as failure:  # noqa: BLE001  # all threads of the group raise it
            error = failure
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
        self._finish(group, error)

    def _finish(self, group: _CommitGroup, error: BaseException | None) -> None:
        self._group = None
        group.error = error
        group.finished.set()
