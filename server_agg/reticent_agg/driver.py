"""The driver of the link to the key server: has queries countersigned and cohorts decided, and retries.

Several drivers may share a store. A driver leases an item before it works on it, renews the lease meanwhile, and
releases it afterwards; the leases of a driver that was killed expire. Leases only save work: the bytes that are sent
are those in the store, so two drivers that send the same request get the same answer, which is kept once.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

import grpc

from reticent.clock import Clock
from reticent.errors import ReticentError
from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, Remedy, Unreachable
from reticent.protocol.calls import reply_of
from reticent.protocol.phases import KEY_SERVER_UNAVAILABLE
from reticent.retry import Backoff
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_agg.counting.closing import FINAL_REFUSALS
from reticent_agg.retry_queue import RetryQueue
from reticent_agg.server import AggregationServer
from reticent_agg.store import Lease, WorkItem

__all__ = ["Driver"]

_log = logging.getLogger(__name__)

MIN_PAUSE, MAX_PAUSE = 0.1, 30.0
"""Seconds between two attempts."""
MAX_PAUSE_REFUSED = 3600.0
"""Seconds between two attempts after the key server has refused to decide; at once if the refusal is final."""
POLL_INTERVAL = 30.0
"""Seconds between two looks for work that nobody has announced: of another driver, or aborted by the operator."""
RETRY_INTERVAL = 5.0
"""The most seconds between two looks for work while the key server is unavailable."""
CALLER_TIMEOUT = 10.0
"""Seconds that a caller waits for the key server."""
REPLY_TIMEOUT = 3600.0
"""Seconds that the key server may take to countersign a query, or to decide a cohort.

Many times what the receipts of a million phones need. A key server that never answers one request delays the others
by no more.
"""
LEASE, RENEWAL = dt.timedelta(seconds=60), dt.timedelta(seconds=20)
"""How long a lease lasts, and after what time it is renewed."""

Result = TypeVar("Result")


class Driver:
    """Has queries countersigned, and cohorts decided.

    Args:
        server: Whose queries and cohorts these are.
        channel: The channel to the key server.
        writer: The thread in which the server works.
        clock: By which leases expire.
        owner: The owner of this driver's leases. No other driver that runs may have the same.
        on_collecting: Called when a query begins to collect, and now and then.
    """

    def __init__(
        self,
        server: AggregationServer,
        channel: grpc.aio.Channel,
        writer: Executor,
        *,
        clock: Clock,
        owner: str,
        on_collecting: Callable[[], None],
    ) -> None:
        self._server = server
        self._channel = channel
        self._deciding = counting_pb2_grpc.DecidingStub(channel)
        self._writer = writer
        self._clock = clock
        self._owner = owner
        self._on_collecting = on_collecting
        self._must_countersign = asyncio.Event()
        self._must_decide = asyncio.Event()
        self._trouble: ReticentError | None = None
        self._became_unavailable = asyncio.Event()
        self._uncountersigned = RetryQueue[WorkItem]()
        self._undecided = RetryQueue[WorkItem]()
        self._waiting: list[asyncio.Future[None]] = []  # for the end of an attempt to have queries countersigned

    @property
    def is_key_server_unavailable(self) -> bool:
        """Whether the last call did not reach the key server."""
        return isinstance(self._trouble, Unreachable)

    async def terms(self) -> wire.Terms:
        """Ask for the key server's terms, and keep them.

        Raises:
            Refused: The key server refuses, or cannot be reached.
        """
        try:
            terms = await reply_of(self._deciding.GetTerms(wire.TermsRequest(), timeout=CALLER_TIMEOUT))
            await self._write(self._server.queries.learn, terms)
        except Unreachable as error:
            self._note(error)
            raise Refused(Refusal.UNAVAILABLE, KEY_SERVER_UNAVAILABLE) from error
        except ReticentError as error:
            self._note(error)
            raise
        self._note(None)
        return terms

    async def countersign_now(self, query: Query) -> None:
        """Have a query countersigned. If that takes long, it happens later."""
        self._uncountersigned.forget(WorkItem(query.digest))
        attempted = asyncio.get_running_loop().create_future()
        self._waiting.append(attempted)
        self.countersign()
        try:
            await asyncio.wait_for(attempted, CALLER_TIMEOUT)
        except TimeoutError:
            _log.info("%r waits for its countersignature", query.id)

    def countersign(self) -> None:
        """There is something to countersign."""
        self._must_countersign.set()

    def decide(self) -> None:
        """There is something to decide."""
        self._must_decide.set()

    async def run(self) -> None:
        """Work, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_repeat(self._must_countersign, self._countersign_all))
            tasks.create_task(_repeat(self._must_decide, self._decide_all))
            tasks.create_task(self._poll())

    async def _poll(self) -> None:
        """Ask for terms, and look for work, now and then."""
        failures = 0
        while True:
            try:
                await self.terms()
            except (ReticentError, OSError) as error:
                _log.debug("the key server's terms are unknown: %s", error)
            except Exception:  # noqa: BLE001  # a fault of ours must not end the polling
                _log.exception("asking the key server failed")
            self.countersign()
            self.decide()
            self._on_collecting()
            failures = failures + 1 if self.is_key_server_unavailable else 0
            await self._until_next_poll(failures)

    async def _until_next_poll(self, failures: int) -> None:
        """Wait; shorter while the key server is unavailable, so that its return is noticed without any other call."""
        self._became_unavailable.clear()
        if not self.is_key_server_unavailable:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._became_unavailable.wait(), POLL_INTERVAL)
        if self.is_key_server_unavailable:
            await asyncio.sleep(Backoff(MIN_PAUSE, RETRY_INTERVAL).delay(max(1, failures)))

    def _note(self, trouble: ReticentError | None) -> None:
        """Log when the key server becomes unavailable, and when it is back; once each."""
        if trouble is not None and self._trouble is None:
            _log.warning("the key server is unavailable or fails; retrying: %s", trouble)
        elif trouble is None and self._trouble is not None:
            _log.info("the key server is back")
        self._trouble = trouble
        if self.is_key_server_unavailable:
            self._became_unavailable.set()

    async def _countersign_all(self) -> float | None:
        """Try all queries that are due. Returns the seconds until the next one is due; None if none has failed."""
        waiting, self._waiting = self._waiting, []
        try:
            queries = dict(await self._write(self._server.queries.to_countersign))
            for item in self._uncountersigned.due(queries, _now()):
                query = queries[item]
                failure = f"{query.id!r} is not countersigned"
                await self._attempt(self._uncountersigned, item, failure, self._countersign(item, query))
            return self._uncountersigned.next_due(_now())
        finally:
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    async def _countersign(self, item: WorkItem, query: Query) -> None:
        async with self._leased(item) as request:
            if not isinstance(request, wire.CountersignRequest):
                return
            try:
                deals = await reply_of(_all(self._deciding.Countersign(request, timeout=REPLY_TIMEOUT)))
            except Refused as refused:
                if _is_temporary(refused):
                    raise
                _log.warning("the key server refuses to countersign %r: %s", query.id, refused)
                await self._write(self._server.store.reject, query.digest, refused)
                return
            await self._write(self._server.queries.countersign, query, deals)
        _log.info("%r is countersigned, and collects", query.id)
        self._on_collecting()
        self.decide()  # if it was aborted before

    async def _decide_all(self) -> float | None:
        """Try all cohorts that are due. Returns the seconds until the next one is due; None if none has failed."""
        for item in self._undecided.due(await self._write(self._server.store.to_decide), _now()):
            announced = await self._write(self._server.queries.announced, item.query)
            failure = f"cohort {item.cohort} of {announced.query.id!r} is not decided"
            await self._attempt(self._undecided, item, failure, self._decide(item))
        return self._undecided.next_due(_now())

    async def _connected(self) -> None:
        """Wait until the key server is connected: from its lease on, a request counts as sent."""
        try:
            async with asyncio.timeout(CALLER_TIMEOUT):
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise Unreachable(KEY_SERVER_UNAVAILABLE) from error

    async def _decide(self, item: WorkItem) -> None:
        await self._connected()
        async with self._leased(item) as head:
            if not isinstance(head, wire.DecideHead):
                return
            faults: list[Exception] = []
            try:
                decision = await reply_of(self._deciding.Decide(self._messages(head, faults), timeout=REPLY_TIMEOUT))
            except Refused as refused:
                await self._write(self._server.closing.refuse, head, refused)
                raise
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if faults and task is not None and not task.cancelling():
                    raise faults[0] from None  # gRPC cancels a call whose messages it cannot read
                raise
            await self._write(self._server.closing.decide, decision)

    async def _messages(self, head: wire.DecideHead, faults: list[Exception]) -> AsyncIterator[wire.DecideRequest]:
        try:
            messages = self._server.closing.messages(head)
            while (message := await self._write(next, messages, None)) is not None:
                yield message
        except Exception as error:
            faults.append(error)
            raise

    @contextlib.asynccontextmanager
    async def _leased(self, item: WorkItem) -> AsyncIterator[wire.CountersignRequest | wire.DecideHead | None]:
        """Lease an item, and renew the lease, within the block. None if it is done, or leased to another driver."""
        renewal: asyncio.Task[None] | None = None
        try:
            request = await self._write(self._claim, item)
            if request is not None:
                renewal = asyncio.create_task(self._renew(item))
            yield request
        finally:
            if renewal is not None:
                renewal.cancel()
            await self._write(self._server.store.release, item, self._owner)

    async def _renew(self, item: WorkItem) -> None:
        request: object = item
        while request is not None:
            await self._clock.wait_until(self._clock.now() + RENEWAL)
            with contextlib.suppress(OSError):  # then the next renewal may still be in time
                request = await self._write(self._claim, item)

    def _claim(self, item: WorkItem) -> wire.CountersignRequest | wire.DecideHead | None:
        now = self._clock.now()
        return self._server.store.claim(item, Lease(self._owner, milliseconds(now), milliseconds(now + LEASE)))

    async def _attempt(
        self, queue: RetryQueue[WorkItem], item: WorkItem, failure: str, work: Coroutine[Any, Any, None]
    ) -> None:
        """Work on an item. If that fails, only this item waits, unless the key server is away, or the disk fails."""
        try:
            await work
        except OSError:
            queue.failed(item, _now(), Backoff(MIN_PAUSE, MAX_PAUSE))  # the disk may fail because of this one
            raise
        except Exception as error:
            is_new, backoff = item not in queue, _backoff(error)
            pause = queue.failed(item, _now(), backoff, error.retry_after if isinstance(error, Refused) else None)
            if isinstance(error, Unreachable) and _is_away(error):
                self._note(error)
                raise
            level = logging.ERROR if is_new or backoff.limit == MAX_PAUSE_REFUSED else logging.DEBUG
            ours = None if isinstance(error, ReticentError) else error
            _log.log(level, "%s; retry in %.1f s: %s", failure, pause, error, exc_info=ours)
        else:
            queue.forget(item)
            self._note(None)

    async def _write(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._writer, function, *arguments)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _backoff(error: Exception) -> Backoff:
    """The pauses of an item that fails like this."""
    if isinstance(error, Unreachable) or (isinstance(error, Refused) and _is_temporary(error)):
        return Backoff(MIN_PAUSE, MAX_PAUSE)
    if isinstance(error, Refused) and error.refusal in FINAL_REFUSALS:
        return Backoff(MAX_PAUSE_REFUSED, MAX_PAUSE_REFUSED)
    return Backoff(MIN_PAUSE, MAX_PAUSE_REFUSED)


def _is_temporary(refused: Refused) -> bool:
    """Whether the same request may succeed later, at most after the operator has corrected certificates."""
    return refused.refusal.remedy in {Remedy.TIME, Remedy.PERMISSION}


def _is_away(error: Unreachable) -> bool:
    """Whether the key server cannot be reached at all: then other requests fail, too."""
    cause = error.__cause__
    return isinstance(cause, TimeoutError) or (
        isinstance(cause, grpc.aio.AioRpcError) and cause.code() is grpc.StatusCode.UNAVAILABLE
    )


async def _all(stream: AsyncIterable[Result]) -> list[Result]:
    return [each async for each in stream]


async def _repeat(wanted: asyncio.Event, attempt: Callable[[], Awaitable[float | None]]) -> None:
    """Attempt it whenever it is wanted, and after the seconds that it returns; after a failure, with longer pauses."""
    failures = 0
    while True:
        wanted.clear()
        try:
            wait, failures = await attempt(), 0
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the attempts
            failures += 1
            wait = Backoff(MIN_PAUSE, MAX_PAUSE).delay(failures)
            _log_failure(error, wait)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wanted.wait(), wait)


def _log_failure(error: Exception, wait: float) -> None:
    if isinstance(error, ReticentError):
        _log.debug("retry in %.1f s: %s", wait, error)
    elif isinstance(error, OSError):
        _log.error("the key server's reply cannot be stored; retry in %.1f s: %s", wait, error)
    else:
        _log.exception("asking the key server failed")
