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
from reticent.protocol import Refusal, Refused
from reticent.protocol.channels import AGGREGATION_SERVER
from reticent.rpc import Admission, Caller, Limits, stream_in, stream_out, unary
from reticent.rpc.admission import Handler
from reticent.rpc.listener import Listener
from reticent.rpc.rates import Rate, Rates
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent_keys.server import KeyServer

__all__ = ["DECIDING", "ENROLMENT", "Service"]

ENROLMENT = "reticent.v1.Enrolment"
DECIDING = "reticent.v1.Deciding"

JOINS = Rate(per_second=5.0, burst=200.0)
"""How fast phones of one address, or network, may join: many may share one, and guessing tokens is hopeless anyway."""

ADDRESSES = 20_000
FOR_PHONES, FOR_DECISIONS = 4, 4  # threads
SILENCE = 60.0
"""Seconds that a request to decide may wait for its next receipts."""

_log = logging.getLogger(__name__)

Request = TypeVar("Request", bound=Message)
MAX_PHONE_MESSAGE = 1 << 15
"""The bytes of a message by which a phone joins, renews or leaves; it needs some hundred."""

Reply = TypeVar("Reply")


class Service:
    """Serves a key server to phones and to the aggregation server inside a `with` block.

    Phones show no certificates, they sign; the aggregation server has to show its own. Decisions are made in threads
    of their own, so that phones are served meanwhile.

    Args:
        server: What is served.
        phones: Where phones reach it, as host:port.
        decisions: Where the aggregation server does.
        certificate: The key server's.
        others: Further services that phones' listener has, by their names.
        joins: How fast phones of one address, or IPv6 network, may join.
    """

    def __init__(
        self,
        server: KeyServer,
        *,
        phones: str,
        decisions: str,
        certificate: Certificate,
        others: Mapping[str, Mapping[str, Handler]] | None = None,
        joins: Rate = JOINS,
    ) -> None:
        self._server = server
        self._joins = Rates(joins, ADDRESSES)
        self._for_phones = ThreadPoolExecutor(FOR_PHONES, thread_name_prefix="phones")
        self._for_decisions = ThreadPoolExecutor(FOR_DECISIONS, thread_name_prefix="decisions")
        of_phones = Limits(message_bytes=MAX_PHONE_MESSAGE)
        self.phones = Listener(
            phones,
            {ENROLMENT: self._enrolment(Admission(limits=of_phones)), **(others or {})},
            credentials=certificate.server_credentials(callers_show_theirs=False),
            limits=of_phones,
        )
        self.decisions = Listener(
            decisions,
            {DECIDING: self._deciding(Admission((AGGREGATION_SERVER,)))},
            credentials=certificate.server_credentials(callers_show_theirs=True),
        )
        self._entered = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        async with AsyncExitStack() as entering:
            for threads in (self._for_phones, self._for_decisions):
                entering.push_async_callback(asyncio.to_thread, threads.shutdown)
            await entering.enter_async_context(self.phones)
            await entering.enter_async_context(self.decisions)
            self._entered = entering.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening; what has begun may end."""
        await self._entered.aclose()

    def _enrolment(self, admission: Admission) -> dict[str, Handler]:
        server = self._server

        async def join(request: wire.JoinRequest, caller: Caller) -> wire.Membership:
            wait = self._joins.take(network(caller.address), asyncio.get_running_loop().time())
            if wait:
                raise Refused(Refusal.BUSY, f"{network(caller.address)} joins too often", retry_after=wait)
            made = await self._for_phone(server.join, request)
            _log.info("a phone is a member", extra={"phone": made.phone.hex()})  # and not where it is
            return made

        async def renew(request: wire.RenewRequest, _: Caller) -> wire.Membership:
            return await self._for_phone(server.renew, request)

        async def leave(request: wire.LeaveRequest, _: Caller) -> wire.LeaveReply:
            return await self._for_phone(server.leave, request)

        return {
            "Join": unary(admission, wire.JoinRequest, join),
            "Renew": unary(admission, wire.RenewRequest, renew),
            "Leave": unary(admission, wire.LeaveRequest, leave),
        }

    def _deciding(self, admission: Admission) -> dict[str, Handler]:
        server = self._server

        async def standing(_: wire.StandingRequest, __: Caller) -> wire.Terms:
            return await self._for_decision(server.standing)

        async def countersign(request: wire.CountersignRequest, _: Caller) -> AsyncIterator[wire.Deal]:
            deals = await self._for_decision(server.countersign, request)
            while (deal := await self._for_decision(next, deals, None)) is not None:
                yield deal

        async def decide(messages: AsyncIterator[wire.DecideRequest], _: Caller) -> wire.Decision:
            first = await anext(messages, None)
            if first is None or first.WhichOneof("part") != "head":
                raise Refused(Refusal.MALFORMED, "a request to decide begins with its head")
            receipts = _Receipts(messages, asyncio.get_running_loop())
            try:
                return await self._for_decision(server.decide, first.head, receipts)
            finally:
                receipts.stop()

        return {
            "Standing": unary(admission, wire.StandingRequest, standing),
            "Countersign": stream_out(admission, wire.CountersignRequest, countersign),
            "Decide": stream_in(admission, wire.DecideRequest, decide),
        }

    async def _for_phone(self, work: Callable[[Request], Reply], request: Request) -> Reply:
        return await asyncio.get_running_loop().run_in_executor(self._for_phones, work, request)

    async def _for_decision(self, work: Callable[..., Reply], *arguments: object) -> Reply:
        return await asyncio.get_running_loop().run_in_executor(self._for_decisions, work, *arguments)


class _Receipts:
    """What comes in, for a thread that reads it as fast as it can check it.

    Args:
        messages: Where it comes in.
        loop: What brings it.
    """

    def __init__(self, messages: AsyncIterator[wire.DecideRequest], loop: asyncio.AbstractEventLoop) -> None:
        self._messages = messages
        self._loop = loop
        self._awaited: Future[wire.DecideRequest | None] | None = None
        self._over = threading.Event()

    def __iter__(self) -> Iterator[wire.Receipt]:
        """All of them, each once.

        Raises:
            Refused: Something else came, or nothing did for long.
        """
        while (message := self._next()) is not None:
            if message.WhichOneof("part") != "receipts":
                raise Refused(Refusal.MALFORMED, "after the head come receipts")
            yield from message.receipts.receipts

    def stop(self) -> None:
        """Have the thread wait no longer: nobody waits for it any more."""
        self._over.set()
        if self._awaited is not None:
            self._awaited.cancel()

    def _next(self) -> wire.DecideRequest | None:
        if self._over.is_set():
            raise Refused(Refusal.UNAVAILABLE, "the caller has hung up")
        self._awaited = asyncio.run_coroutine_threadsafe(self._following(), self._loop)
        if self._over.is_set():  # since it was asked
            self._awaited.cancel()
        try:
            return self._awaited.result(SILENCE)
        except TimeoutError:
            self._awaited.cancel()
            raise Refused(Refusal.UNAVAILABLE, "the receipts stopped coming") from None
        except CancelledError:
            raise Refused(Refusal.UNAVAILABLE, "the caller has hung up") from None

    async def _following(self) -> wire.DecideRequest | None:
        return await anext(self._messages, None)
