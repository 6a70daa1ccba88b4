"""The aggregation server on the network: phones call one address, analysts another, and it calls the key server."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from reticent.clock import Clock, first_of
from reticent.privacy import Query
from reticent.protocol import Refusal, Refused
from reticent.protocol.channels import ANALYST
from reticent.protocol.layout import MAX_CONTRIBUTION_BYTES
from reticent.retry import Backoff
from reticent.rpc import MAX_CALLS_OF_PHONE, Admission, Caller, Limits, RateLimit, RateLimits, unary
from reticent.rpc.admission import Handler
from reticent.rpc.listener import Listener
from reticent.v1 import counting_pb2 as wire
from reticent_agg import metrics
from reticent_agg.counting.batches import Batches
from reticent_agg.counting.closing import abort
from reticent_agg.counting.collection import ContributionResult, refuse_odd_phone
from reticent_agg.counting.replies import refuse_too_many
from reticent_agg.driver import Driver
from reticent_agg.errors import BadStore
from reticent_agg.health import check_clock, check_while_serving
from reticent_agg.retention import prune_while_serving
from reticent_agg.server import AggregationServer
from reticent_agg.store import QueryLocked

__all__ = ["COLLECTING", "COUNTING", "AggregationService"]

_log = logging.getLogger(__name__)

COLLECTING = "reticent.v1.Collecting"
COUNTING = "reticent.v1.Counting"

PHONE_RATE = RateLimit(per_second=20.0, burst=100.0)
"""Contributions of a phone from one address, so that no other address can use up the phone's rate."""
MAX_PHONES_TRACKED = 4096
"""Phones whose rate is limited; the least recently seen are dropped."""
MAX_REQUEST_BYTES = 1 << 16
"""Bytes of a phone's other requests: enough for the largest request for decisions."""
CLOSE_AGAIN = Backoff(first=1.0, limit=10.0)
"""The delays before closing is tried again after a failure."""
LOCKED_PAUSE = 1.0
"""Seconds before closing is tried again while other processes have locked queries."""
MAX_LOCKED = 5
"""Such attempts in a row, from which on a process warns: another one that closes a query needs no longer."""

Methods = Mapping[str, Handler]
Result = TypeVar("Result")


class AggregationService:
    """Serves phones and analysts inside a `with` block.

    Args:
        server: The aggregation server.
        clock: The server's clock: queries close, and leases expire, by it.
        key_server: The channel to the key server.
        phones: The address for phones, as host:port.
        analysts: The address for analysts.
        phones_credentials: The server's credentials for phones, which have no certificate.
        analysts_credentials: The server's credentials for analysts, who have one. Without it, every caller on this
            machine is an analyst.
        limits: The limits of each listener.
        others: Further services at the analysts' address.
        lease_owner: The owner of this process's leases of work for the key server; a new name unless given. Two
            processes that run over one store must have different names.
        keep: How long it is kept which phones contributed, from the decision on; None to keep it.
    """

    def __init__(
        self,
        server: AggregationServer,
        *,
        clock: Clock,
        key_server: grpc.aio.Channel,
        phones: str,
        analysts: str,
        phones_credentials: grpc.ServerCredentials | None,
        analysts_credentials: grpc.ServerCredentials | None,
        limits: Limits | None = None,
        others: Mapping[str, Methods] | None = None,
        lease_owner: str | None = None,
        keep: dt.timedelta | None = None,
    ) -> None:
        self._keep = keep
        self._server = server
        self._clock = clock
        self._writer = ThreadPoolExecutor(1, "writer")
        self._reader = ThreadPoolExecutor(1, "reader")
        self._batches = Batches(partial(self._write, self._collect))
        self._must_close = asyncio.Event()
        self._must_check = asyncio.Event()
        self._driver = Driver(
            server,
            key_server,
            self._writer,
            clock=clock,
            owner=lease_owner or secrets.token_hex(8),
            on_collecting=self._must_close.set,
        )
        metrics.KEY_SERVER_UP.set_function(lambda: not self._driver.is_key_server_unavailable)
        self._rates = RateLimits(PHONE_RATE, MAX_PHONES_TRACKED)
        of_phones = limits or Limits(message_bytes=MAX_CONTRIBUTION_BYTES, in_flight_per_connection=MAX_CALLS_OF_PHONE)
        names = None if analysts_credentials is None else (ANALYST,)
        self.admissions = {"phones": Admission(limits=of_phones), "analysts": Admission(names, limits)}
        """Of the calls of each listener."""
        self._phones = Listener(
            phones,
            {COLLECTING: self._collecting(self.admissions["phones"])},
            credentials=phones_credentials,
            limits=of_phones,
        )
        self._analysts = Listener(
            analysts,
            {COUNTING: self._counting(self.admissions["analysts"]), **(others or {})},
            credentials=analysts_credentials,
            limits=limits,
        )
        self._stack = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def phones_address(self) -> str:
        """The address for phones, with the port that the system chose."""
        return self._phones.address

    @property
    def analysts_address(self) -> str:
        """The address for analysts, with the port that the system chose."""
        return self._analysts.address

    async def __aenter__(self) -> Self:
        """Start the listeners, and the driver of the link to the key server."""
        self._loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            # In a thread, because the loop has to end the calls for which these two work.
            stack.push_async_callback(asyncio.to_thread, self._reader.shutdown, cancel_futures=True)
            stack.push_async_callback(asyncio.to_thread, self._writer.shutdown)
            await self._write(check_clock, self._server.store, self._clock)
            checking = check_while_serving(self._server.store, self._write, self._clock, self._must_check)
            working = (self._driver.run(), self._close_in_time(), checking)
            self._tasks = [asyncio.create_task(each) for each in working]
            if self._keep is not None:
                pruning = prune_while_serving(self._server.store, self._write, self._clock, self._keep)
                self._tasks.append(asyncio.create_task(pruning))
            stack.push_async_callback(self._stop_tasks)
            await stack.enter_async_context(self._phones)
            await stack.enter_async_context(self._analysts)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Answer the admitted calls, and stop."""
        await self._stack.aclose()

    async def wait(self) -> None:
        """Wait for an error that a retry cannot correct, and raise it."""
        await asyncio.shield(asyncio.gather(*self._tasks))

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _collecting(self, admission: Admission) -> Methods:
        """The methods for phones."""

        async def announcements(request: wire.AnnouncementsRequest, _: Caller) -> wire.AnnouncementsReply:
            return await self._read(self._server.replies.announcements, request)

        async def query(request: wire.QueryRequest, _: Caller) -> wire.QueryReply:
            return await self._read(self._server.replies.query, request)

        async def key(request: wire.KeyRequest, _: Caller) -> wire.KeyReply:
            return await self._read(self._server.replies.key, request)

        async def contribute(sent: wire.Contribution, caller: Caller) -> wire.Acknowledgement:
            refuse_odd_phone(sent.phone)  # before its rate is kept by its id
            wait = self._rates.take((caller.address, sent.phone), asyncio.get_running_loop().time())
            if wait:
                raise Refused(Refusal.BUSY, "the phone calls too often", retry_after=wait)
            return await self._batches.add(sent)

        async def decisions(request: wire.DecisionsRequest, _: Caller) -> wire.DecisionsReply:
            refuse_too_many(request.wanted)  # at once, because all others wait for the one reader
            return await self._read(self._server.replies.decisions, request)

        return {
            "Announcements": unary(
                admission, wire.AnnouncementsRequest, announcements, message_bytes=MAX_REQUEST_BYTES
            ),
            "Query": unary(admission, wire.QueryRequest, query, message_bytes=MAX_REQUEST_BYTES),
            "Key": unary(admission, wire.KeyRequest, key, message_bytes=MAX_REQUEST_BYTES),
            "Contribute": unary(admission, wire.Contribution, contribute),
            "Decisions": unary(admission, wire.DecisionsRequest, decisions, message_bytes=MAX_REQUEST_BYTES),
        }

    def _counting(self, admission: Admission) -> Methods:
        """The methods for analysts."""

        async def terms(_: wire.TermsRequest, _caller: Caller) -> wire.Terms:
            return await self._driver.terms()

        async def status(request: wire.StatusRequest, caller: Caller) -> wire.QueryStatus:
            return await self._status(request, caller)

        async def queries(request: wire.ListRequest, caller: Caller) -> wire.ListReply:
            reply = await self._read(self._server.replies.list_queries, caller.name, request.after)
            for each in reply.queries:
                self._note_outage(each)
            return reply

        return {
            "GetTerms": unary(admission, wire.TermsRequest, terms),
            "Announce": unary(admission, wire.AnnounceRequest, self._announce),
            "Status": unary(admission, wire.StatusRequest, status),
            "Abort": unary(admission, wire.AbortRequest, self._abort),
            "List": unary(admission, wire.ListRequest, queries),
        }

    async def _announce(self, request: wire.AnnounceRequest, caller: Caller) -> wire.QueryStatus:
        query = await self._read(_query_of, request)
        if not await self._write(self._server.queries.can_judge, query):
            await self._driver.terms()  # there may be a new key, or more phones
        await self._write(
            self._and_then, self._driver.countersign, self._server.queries.announce, request.query, caller.name
        )
        wanted = wire.StatusRequest(id=query.id)
        status = await self._status(wanted, caller)
        if status.phase != wire.ANNOUNCED:
            return status
        _log.info("%r is announced by %s", query.id, caller.name or "a local caller")
        await self._driver.countersign_now(query)
        return await self._status(wanted, caller)

    async def _abort(self, request: wire.AbortRequest, caller: Caller) -> wire.QueryStatus:
        await self._read(self._server.replies.status, request, caller.name)  # refuses another analyst's query
        _log.warning("%r is aborted by %s", request.id, caller.name or "a local caller")
        await self._write(self._and_then, self._driver.decide, abort, self._server.store, request.id)
        return await self._status(request, caller)

    async def _status(self, request: wire.StatusRequest | wire.AbortRequest, caller: Caller) -> wire.QueryStatus:
        status = await self._read(self._server.replies.status, request, caller.name)
        self._note_outage(status)
        return status

    def _note_outage(self, status: wire.QueryStatus) -> None:
        """Tell the analyst if a query waits for a key server that cannot be reached."""
        if status.phase in {wire.ANNOUNCED, wire.COLLECTING, wire.CLOSING}:
            status.key_server_unavailable = self._driver.is_key_server_unavailable

    def _and_then(self, notify: Callable[[], None], write: Callable[..., object], *arguments: object) -> None:
        """Run by the writer: write, and notify whoever acts on it, even if the caller has hung up meanwhile."""
        write(*arguments)
        self._loop.call_soon_threadsafe(notify)

    def _collect(self, contributions: Sequence[wire.Contribution]) -> list[ContributionResult]:
        """Run by the writer: take contributions. What has enough of them now is closed after the acknowledgements."""
        try:
            results = self._server.collection.contribute(contributions)
        except BadStore:
            self._loop.call_soon_threadsafe(self._must_check.set)  # which ends the process
            raise
        self._loop.call_soon_threadsafe(self._must_close.set)
        return results

    async def _close_in_time(self) -> None:
        """Close each query when its time is over, or when it has enough contributions, until cancelled."""
        failures = locked = 0
        while True:
            self._must_close.clear()
            try:
                if await self._write(self._server.closing.close_due):
                    self._driver.decide()
                due = await self._write(self._server.closing.next_due)
            except BadStore:
                raise
            except QueryLocked as error:
                self._driver.decide()  # others may be closed
                locked += 1
                if locked == MAX_LOCKED:
                    _log.warning("queries cannot be closed now: %s", error)
                await asyncio.sleep(LOCKED_PAUSE)
                continue
            except Exception:  # noqa: BLE001  # a fault of ours must not end the closing
                _log.exception("queries cannot be closed")
                self._driver.decide()  # others may be closed
                failures += 1
                await asyncio.sleep(CLOSE_AGAIN.delay(failures))
                continue
            failures = locked = 0
            await first_of(self._must_close.wait(), *([] if due is None else [self._clock.wait_until(due)]))

    async def _write(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._writer, function, *arguments)

    async def _read(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._reader, function, *arguments)


def _query_of(request: wire.AnnounceRequest) -> Query:
    try:
        return Query.from_bytes(request.query)
    except ValueError as error:
        raise Refused(Refusal.BAD_QUERY, str(error)) from error
