"""The driver of the link to the key server: has queries countersigned and cohorts decided, several at a time.

Several drivers may share a store. A driver leases an item before it works on it, renews the lease meanwhile, and
releases it afterwards; the leases of a driver that was killed expire. Leases only save work: the bytes that are sent
are those in the store, so two drivers that send the same request get the same answer, which is kept once.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor
from time import monotonic
from typing import Any, TypeVar

import grpc

from reticent.clock import Clock
from reticent.errors import ReticentError
from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import reply_of
from reticent.protocol.phases import KEY_SERVER_UNAVAILABLE
from reticent.retry import Backoff
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_agg import metrics
from reticent_agg.server import AggregationServer
from reticent_agg.store import Lease, WorkItem
from reticent_agg.work_pool import WorkPool, is_away, is_temporary

__all__ = ["Driver"]

_log = logging.getLogger(__name__)

MAX_CALLS = 8
"""Queries that are countersigned at a time, and cohorts that are decided at a time."""
POLL_INTERVAL = 30.0
"""Seconds between two looks for work that nobody has announced: of another driver, or aborted by the operator."""
FIRST_RETRY, RETRY_INTERVAL = 0.1, 5.0
"""The fewest and the most seconds between two looks for work while the key server is unavailable."""
CALLER_TIMEOUT = 10.0
"""Seconds that a caller waits for the key server."""
REPLY_TIMEOUT = 3600.0
"""Seconds that the key server may take to countersign a query, or to decide a cohort.

Many times what the receipts of a million phones need. Calls that the key server never answers delay others only if
there are `MAX_CALLS` of them, and by no more than this.
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
        self._countersigning = WorkPool(self._uncountersigned, self._countersign, size=MAX_CALLS)
        self._decisions = WorkPool(self._undecided, self._decide, size=MAX_CALLS)
        self._trouble: ReticentError | None = None
        self._became_unavailable = asyncio.Event()

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
        try:
            await asyncio.wait_for(self._countersigning.attempted(WorkItem(query.digest)), CALLER_TIMEOUT)
        except TimeoutError:
            _log.info("%r waits for its countersignature", query.id)

    def countersign(self) -> None:
        """There is something to countersign."""
        self._countersigning.wake()

    def decide(self) -> None:
        """There is something to decide."""
        self._decisions.wake()

    async def run(self) -> None:
        """Work, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._countersigning.run())
            tasks.create_task(self._decisions.run())
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
            await asyncio.sleep(Backoff(FIRST_RETRY, RETRY_INTERVAL).delay(max(1, failures)))

    def _note(self, trouble: ReticentError | None) -> None:
        """Log when the key server becomes unavailable, and when it is back; once each."""
        if trouble is not None and self._trouble is None:
            _log.warning("the key server is unavailable or fails; retrying: %s", trouble)
        elif trouble is None and self._trouble is not None:
            _log.info("the key server is back")
        self._trouble = trouble
        if self.is_key_server_unavailable:
            self._became_unavailable.set()

    async def _uncountersigned(self) -> Mapping[WorkItem, str]:
        queries = await self._write(self._server.queries.to_countersign)
        return {item: query.id for item, query in queries}

    async def _countersign(self, item: WorkItem) -> None:
        async with self._leased(item) as request:
            if not isinstance(request, wire.CountersignRequest):
                return
            query = Query.from_bytes(request.query)
            try:
                call = self._deciding.Countersign(request, timeout=REPLY_TIMEOUT)
                deals = await self._reply(_all(call))
            except Refused as refused:
                if is_temporary(refused):
                    raise
                _log.warning("the key server refuses to countersign %r: %s", query.id, refused)
                await self._write(self._server.store.reject, query.digest, refused)
                return
            await self._write(self._server.queries.countersign, query, deals)
        _log.info("%r is countersigned, and collects", query.id)
        self._on_collecting()
        self.decide()  # if it was aborted before

    async def _undecided(self) -> Mapping[WorkItem, str]:
        return await self._write(self._server.closing.to_decide)

    async def _connected(self) -> None:
        """Wait until the key server is connected: from its lease on, a request counts as sent."""
        try:
            async with asyncio.timeout(CALLER_TIMEOUT):
                await self._channel.channel_ready()
        except TimeoutError as error:
            unreachable = Unreachable(KEY_SERVER_UNAVAILABLE)
            self._note(unreachable)
            raise unreachable from error

    async def _reply(self, call: Awaitable[Result]) -> Result:
        """The reply to a call, which shows whether the key server can be reached."""
        try:
            reply = await reply_of(call)
        except Unreachable as error:
            if is_away(error):
                self._note(error)
            raise
        self._note(None)
        return reply

    async def _decide(self, item: WorkItem) -> None:
        await self._connected()
        async with self._leased(item) as head:
            if not isinstance(head, wire.DecideHead):
                return
            faults: list[Exception] = []
            started = monotonic()
            try:
                decision = await self._reply(self._deciding.Decide(self._messages(head, faults), timeout=REPLY_TIMEOUT))
            except Refused as refused:
                await self._write(self._server.closing.refuse, head, refused)
                raise
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if faults and task is not None and not task.cancelling():
                    raise faults[0] from None  # gRPC cancels a call whose messages it cannot read
                raise
            await self._write(self._server.closing.decide, decision)
            metrics.DECIDE_SECONDS.observe(monotonic() - started)

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
        is_ours = True
        while is_ours:
            await self._clock.wait_until(self._clock.now() + RENEWAL)
            with contextlib.suppress(OSError):  # then the next renewal may still be in time
                is_ours = await self._write(self._extend, item)
        metrics.LEASES_LOST.inc()
        _log.warning("a lease is lost: it expired, and another process has the request now. Both send the same bytes")

    def _claim(self, item: WorkItem) -> wire.CountersignRequest | wire.DecideHead | None:
        return self._server.store.claim(item, self._lease())

    def _extend(self, item: WorkItem) -> bool:
        """Run by the writer, which may be busy until the lease has almost expired."""
        return self._server.store.renew(item, self._lease())

    def _lease(self) -> Lease:
        now = self._clock.now()
        return Lease(self._owner, milliseconds(now), milliseconds(now + LEASE))

    async def _write(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._writer, function, *arguments)


async def _all(stream: AsyncIterable[Result]) -> list[Result]:
    return [each async for each in stream]
