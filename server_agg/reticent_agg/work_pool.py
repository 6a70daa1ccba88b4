"""Work for the key server: a bounded number of items at a time, and retries of those that fail.

Each item has its own attempt and its own delay, so an item that fails, or whose call hangs, delays no other. If the
key server cannot be reached, or the disk fails, all items wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import grpc

from reticent.errors import ReticentError
from reticent.protocol import Refused, Remedy, Unreachable
from reticent.retry import Backoff
from reticent_agg.counting.closing import FINAL_REFUSALS
from reticent_agg.retry_queue import RetryQueue
from reticent_agg.store import WorkItem

__all__ = ["WorkPool", "is_away", "is_temporary"]

_log = logging.getLogger(__name__)

MIN_PAUSE, MAX_PAUSE = 0.1, 30.0
"""Seconds between two attempts."""
MAX_PAUSE_REFUSED = 3600.0
"""Seconds between two attempts after the key server has refused to decide; at once if the refusal is final."""


class _WorkTarget(NamedTuple):
    """A query to countersign or a cohort to decide. Two attempts of one target never run at the same time."""

    query: bytes
    cohort: int | None


class WorkPool:
    """Attempts items side by side.

    Args:
        list_items: Returns the items to work on, in order, each with the name of its query.
        attempt: Works on an item; raises if that fails.
        size: The most attempts at a time.
    """

    def __init__(
        self,
        list_items: Callable[[], Awaitable[Mapping[WorkItem, str]]],
        attempt: Callable[[WorkItem], Awaitable[None]],
        *,
        size: int,
    ) -> None:
        self._list_items = list_items
        self._attempt = attempt
        self._size = size
        self._retries = RetryQueue[WorkItem]()
        self._changed = asyncio.Event()
        self._must_list = True
        self._listed_at = float("-inf")
        self._due: deque[tuple[WorkItem, str]] = deque()
        self._running: set[_WorkTarget] = set()
        self._has_skipped = False
        self._failures = 0  # consecutive ones that concern all items
        self._held_until = float("-inf")
        self._callers: list[tuple[_WorkTarget, asyncio.Future[None]]] = []  # who have called since the last list
        self._waiting: defaultdict[_WorkTarget, list[asyncio.Future[None]]] = defaultdict(list)

    def wake(self) -> None:
        """There may be new items."""
        self._must_list, self._held_until = True, float("-inf")
        self._changed.set()

    async def attempted(self, item: WorkItem) -> None:
        """Attempt an item as soon as a place is free; returns after the attempt, or if there is nothing to do."""
        self._retries.forget(item)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._callers.append((_target(item), ended))
        self.wake()
        await ended

    async def run(self) -> None:
        """Attempt items, until cancelled."""
        async with asyncio.TaskGroup() as attempts:
            while True:
                self._changed.clear()
                if self._must_list and _now() >= self._held_until:
                    await self._list()
                while self._due and len(self._running) < self._size:
                    item, name = self._due.popleft()
                    self._running.add(_target(item))
                    attempts.create_task(self._run(item, name))
                try:
                    await asyncio.wait_for(self._changed.wait(), self._idle_time())
                except TimeoutError:
                    self._must_list = True

    async def _list(self) -> None:
        """List the items again, and find those that are due."""
        self._must_list = self._has_skipped = False
        self._due.clear()
        callers, self._callers = self._callers, []
        try:
            names = await self._list_items()
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the attempts
            self._hold(error)
        else:
            self._listed_at = _now()
            for item in self._retries.due(names, self._listed_at):
                if _target(item) in self._running:
                    self._has_skipped = True
                else:
                    self._due.append((item, names[item]))
        pending = self._running | {_target(item) for item, _ in self._due}
        for target, caller in callers:
            if target in pending:
                self._waiting[target].append(caller)
            else:
                _end(caller)

    async def _run(self, item: WorkItem, name: str) -> None:
        """Attempt an item. If that fails, only this item waits, unless the failure concerns all items."""
        try:
            await self._attempt(item)
        except Exception as error:  # noqa: BLE001  # it is logged, and the item is attempted again
            self._failed(item, name, error)
        else:
            self._retries.forget(item)
            self._failures = 0
        finally:
            target = _target(item)
            self._running.discard(target)
            self._must_list = self._must_list or self._has_skipped
            self._changed.set()
            for caller in self._waiting.pop(target, []):
                _end(caller)

    def _failed(self, item: WorkItem, name: str, error: Exception) -> None:
        is_new, backoff = item not in self._retries, _backoff(error)
        pause = self._retries.failed(item, _now(), backoff, error.retry_after if isinstance(error, Refused) else None)
        if isinstance(error, OSError) or (isinstance(error, Unreachable) and is_away(error)):
            self._hold(error)
            return
        level = logging.ERROR if is_new or backoff.limit == MAX_PAUSE_REFUSED else logging.DEBUG
        ours = None if isinstance(error, ReticentError) else error
        _log.log(level, "%s; retry in %.1f s: %s", _failure(item, name), pause, error, exc_info=ours)

    def _hold(self, error: Exception) -> None:
        """Let all items wait, because of a failure that is not one item's."""
        self._must_list = True
        self._due.clear()
        for callers in self._waiting.values():
            for caller in callers:
                _end(caller)
        self._waiting.clear()
        if _now() < self._held_until:  # by another attempt, which failed at the same time
            return
        self._failures += 1
        pause = Backoff(MIN_PAUSE, MAX_PAUSE).delay(self._failures)
        self._held_until = _now() + pause
        if isinstance(error, ReticentError):
            _log.debug("retry in %.1f s: %s", pause, error)
        elif isinstance(error, OSError):
            _log.error("the key server's reply cannot be stored; retry in %.1f s: %s", pause, error)
        else:
            _log.error("asking the key server failed; retry in %.1f s", pause, exc_info=error)

    def _idle_time(self) -> float | None:
        """Seconds until there is something to do; None if only another item or the end of an attempt changes that."""
        if self._must_list:
            return max(0.0, self._held_until - _now())
        return None if self._due else self._retries.next_due(_now(), after=self._listed_at)


def is_temporary(refused: Refused) -> bool:
    """Whether the same request may succeed later, at most after the operator has corrected certificates."""
    return refused.refusal.remedy in {Remedy.TIME, Remedy.PERMISSION}


def is_away(error: Unreachable) -> bool:
    """Whether the key server cannot be reached at all: then other requests fail, too."""
    cause = error.__cause__
    return isinstance(cause, TimeoutError) or (
        isinstance(cause, grpc.aio.AioRpcError) and cause.code() is grpc.StatusCode.UNAVAILABLE
    )


def _backoff(error: Exception) -> Backoff:
    """The pauses of an item that fails like this."""
    if isinstance(error, Unreachable | OSError) or (isinstance(error, Refused) and is_temporary(error)):
        return Backoff(MIN_PAUSE, MAX_PAUSE)
    if isinstance(error, Refused) and error.refusal in FINAL_REFUSALS:
        return Backoff(MAX_PAUSE_REFUSED, MAX_PAUSE_REFUSED)
    return Backoff(MIN_PAUSE, MAX_PAUSE_REFUSED)


def _failure(item: WorkItem, name: str) -> str:
    if item.cohort is None:
        return f"{name!r} is not countersigned"
    return f"cohort {item.cohort} of {name!r} is not decided"


def _target(item: WorkItem) -> _WorkTarget:
    return _WorkTarget(item.query, item.cohort)


def _end(caller: asyncio.Future[None]) -> None:
    if not caller.done():
        caller.set_result(None)


def _now() -> float:
    return asyncio.get_running_loop().time()
