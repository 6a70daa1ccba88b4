"""The key server on its network: one listener for phones, and one for the aggregation server."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar

from google.protobuf.message import Message

from reticent.address import network
from reticent.errors import ReticentError
from reticent.protocol import Refusal, Refused
from reticent.protocol.channels import AGGREGATION_SERVER
from reticent.rpc import (
    MAX_CALLS_OF_PHONE,
    Admission,
    Caller,
    Limits,
    RateLimit,
    RateLimits,
    stream_in,
    stream_out,
    unary,
)
from reticent.rpc.admission import Handler
from reticent.rpc.listener import Listener
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent_keys.server import KeyServer

__all__ = ["DECIDING", "ENROLMENT", "Service"]

ENROLMENT = "reticent.v1.Enrolment"
DECIDING = "reticent.v1.Deciding"

JOINS = RateLimit(per_second=5.0, burst=200.0)
"""The rate limit of joins from one address, or IPv6 network. Many phones may share one; tokens cannot be guessed."""

ADDRESSES = 20_000
FOR_PHONES, FOR_DECISIONS = 4, 4  # threads
RECEIPT_TIMEOUT = 60.0
"""Seconds that a request to decide waits for its next receipts."""

ERASE_EVERY = 600.0
RETRY_AFTER = 1.0
"""Seconds after which a phone tries again when the disk fails."""

_log = logging.getLogger(__name__)

Request = TypeVar("Request", bound=Message)
MAX_PHONE_MESSAGE = 1 << 15
"""In bytes. Messages of phones have a few hundred."""

Reply = TypeVar("Reply")


class Service:
    """Serves a key server to phones and to the aggregation server inside a `with` block.

    Phones sign their requests; the aggregation server authenticates with its certificate. Decisions have threads of
    their own, so that phones do not wait for them.

    Args:
        server: The key server.
        phones: The address for phones, as host:port.
        decisions: The address for the aggregation server.
        certificate: The key server's.
        others: Further services of the listener for phones, by their names.
        joins: The rate limit of joins from one address, or IPv6 network.
        erase_every: Seconds between two erasures of the keys of queries whose deadline has passed.
    """

    def __init__(
        self,
        server: KeyServer,
        *,
        phones: str,
        decisions: str,
        certificate: Certificate,
        others: Mapping[str, Mapping[str, Handler]] | None = None,
        joins: RateLimit = JOINS,
        erase_every: float = ERASE_EVERY,
    ) -> None:
        self._server = server
        self._joins = RateLimits(joins, ADDRESSES)
        self._for_phones = ThreadPoolExecutor(FOR_PHONES, thread_name_prefix="phones")
        self._for_decisions = ThreadPoolExecutor(FOR_DECISIONS, thread_name_prefix="decisions")
        of_phones = Limits(message_bytes=MAX_PHONE_MESSAGE, in_flight_per_connection=MAX_CALLS_OF_PHONE)
        self.phones = Listener(
            phones,
            {ENROLMENT: self._enrolment(Admission(limits=of_phones)), **(others or {})},
            credentials=certificate.server_credentials(mutual=False),
            limits=of_phones,
        )
        self.decisions = Listener(
            decisions,
            {DECIDING: self._deciding(Admission((AGGREGATION_SERVER,)))},
            credentials=certificate.server_credentials(mutual=True),
        )
        self._erase_every = erase_every
        self._entered = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start to listen."""
        async with AsyncExitStack() as entering:
            for threads in (self._for_phones, self._for_decisions):
                entering.push_async_callback(asyncio.to_thread, threads.shutdown)
            erasing = asyncio.create_task(self._erase_overdue())
            entering.callback(erasing.cancel)
            await entering.enter_async_context(self.phones)
            await entering.enter_async_context(self.decisions)
            self._entered = entering.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to listen; calls that have begun may end."""
        await self._entered.aclose()

    async def _erase_overdue(self) -> None:
        while True:
            try:
                await self._for_decision(self._server.erase_overdue)
            except (OSError, ReticentError) as error:  # such as a full disk: the next attempt may succeed
                _log.error("overdue keys of queries cannot be erased", extra={"reason": str(error)})
            await asyncio.sleep(self._erase_every)

    def _enrolment(self, admission: Admission) -> dict[str, Handler]:
        server = self._server

        async def join(request: wire.JoinRequest, caller: Caller) -> wire.Membership:
            wait = self._joins.take(network(caller.address), asyncio.get_running_loop().time())
            if wait:
                raise Refused(Refusal.BUSY, f"{network(caller.address)} joins too often", retry_after=wait)
            membership = await self._for_phone(server.members.join, request)
            _log.info("phone enrolled", extra={"phone": membership.phone.hex()})  # without its address
            return membership

        async def renew(request: wire.RenewRequest, _: Caller) -> wire.Membership:
            return await self._for_phone(server.members.renew, request)

        async def leave(request: wire.LeaveRequest, _: Caller) -> wire.LeaveReply:
            return await self._for_phone(server.members.leave, request)

        return {
            "Join": unary(admission, wire.JoinRequest, join),
            "Renew": unary(admission, wire.RenewRequest, renew),
            "Leave": unary(admission, wire.LeaveRequest, leave),
        }

    def _deciding(self, admission: Admission) -> dict[str, Handler]:
        server = self._server

        async def terms(_: wire.TermsRequest, __: Caller) -> wire.Terms:
            return await self._for_decision(server.terms)

        async def countersign(request: wire.CountersignRequest, _: Caller) -> AsyncIterator[wire.Deal]:
            deals = await self._for_decision(server.dealer.countersign, request.query)
            while (deal := await self._for_decision(next, deals, None)) is not None:
                yield deal

        async def decide(messages: AsyncIterator[wire.DecideRequest], _: Caller) -> wire.Decision:
            first = await anext(messages, None)
            if first is None or first.WhichOneof("part") != "head":
                raise Refused(Refusal.MALFORMED, "a request to decide must begin with its head")
            receipts = _ReceiptStream(messages, asyncio.get_running_loop())
            try:
                return await self._for_decision(server.decider.decide, first.head, receipts)
            finally:
                receipts.stop()

        return {
            "GetTerms": unary(admission, wire.TermsRequest, terms),
            "Countersign": stream_out(admission, wire.CountersignRequest, countersign),
            "Decide": stream_in(admission, wire.DecideRequest, decide),
        }

    async def _for_phone(self, work: Callable[[Request], Reply], request: Request) -> Reply:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._for_phones, work, request)
        except OSError as error:
            _log.error("a membership cannot be written: %s", error)
            raise Refused(Refusal.UNAVAILABLE, retry_after=RETRY_AFTER) from error

    async def _for_decision(self, work: Callable[..., Reply], *arguments: object) -> Reply:
        return await asyncio.get_running_loop().run_in_executor(self._for_decisions, work, *arguments)


class _ReceiptStream:
    """The receipts of a request, for a thread that reads them as fast as it can check them.

    Args:
        messages: The messages of the request, after the head.
        loop: The loop that receives them.
    """

    def __init__(self, messages: AsyncIterator[wire.DecideRequest], loop: asyncio.AbstractEventLoop) -> None:
        self._messages = messages
        self._loop = loop
        self._pending: Future[wire.DecideRequest | None] | None = None
        self._stopped = threading.Event()

    def __iter__(self) -> Iterator[wire.Receipt]:
        """Each receipt, once.

        Raises:
            Refused: MALFORMED: a message holds no receipts. UNAVAILABLE: none came in time.
        """
        while (message := self._next()) is not None:
            if message.WhichOneof("part") != "receipts":
                raise Refused(Refusal.MALFORMED, "only receipts may follow the head")
            yield from message.receipts.receipts

    def stop(self) -> None:
        """Wake the thread: its caller is gone."""
        self._stopped.set()
        if self._pending is not None:
            self._pending.cancel()

    def _next(self) -> wire.DecideRequest | None:
        if self._stopped.is_set():
            raise Refused(Refusal.UNAVAILABLE, "the caller is gone")
        self._pending = asyncio.run_coroutine_threadsafe(self._receive(), self._loop)
        if self._stopped.is_set():  # in the meantime
            self._pending.cancel()
        try:
            return self._pending.result(RECEIPT_TIMEOUT)
        except TimeoutError:
            self._pending.cancel()
            raise Refused(Refusal.UNAVAILABLE, "no receipts came in time") from None
        except CancelledError:
            raise Refused(Refusal.UNAVAILABLE, "the caller is gone") from None

    async def _receive(self) -> wire.DecideRequest | None:
        return await anext(self._messages, None)
