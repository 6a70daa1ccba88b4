"""The key server on its network: one listener for phones, and one for the aggregation server."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
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
from reticent_keys.metrics import DECIDE_SECONDS
from reticent_keys.server import KeyServer

__all__ = ["DECIDING", "ENROLMENT", "Service"]

ENROLMENT = "reticent.v1.Enrolment"
DECIDING = "reticent.v1.Deciding"

JOINS = RateLimit(per_second=5.0, burst=200.0)
"""The rate limit of joins from one address, or IPv6 network. Many phones may share one; tokens cannot be guessed."""

ADDRESSES = 20_000
FOR_PHONES, FOR_DECISIONS = 4, 4  # threads
ERASE_EVERY = 600.0
BETWEEN_ROUNDS = 0.1
"""Seconds between two transactions that delete old rows."""
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
    their own, so that phones do not wait for them. No thread waits for receipts to arrive. Queries are countersigned
    one after the other, in a thread that nothing else needs.

    Args:
        server: The key server.
        phones: The address for phones, as host:port.
        decisions: The address for the aggregation server.
        certificate: The key server's.
        others: Further services of the listener for phones, by their names.
        joins: The rate limit of joins from one address, or IPv6 network.
        erase_every: Seconds between two erasures of the keys of queries whose deadline has passed. Then the server also
            rotates its key pair if that is due, and deletes old rows.
        rotate_every: How long a key pair is active; None for ever.
        keep: How long the phones of a decided query are kept; None for ever.
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
        rotate_every: dt.timedelta | None = None,
        keep: dt.timedelta | None = None,
    ) -> None:
        self._server = server
        self._joins = RateLimits(joins, ADDRESSES)
        self._for_phones = ThreadPoolExecutor(FOR_PHONES, thread_name_prefix="phones")
        self._for_decisions = ThreadPoolExecutor(FOR_DECISIONS, thread_name_prefix="decisions")
        self._for_dealing = ThreadPoolExecutor(1, thread_name_prefix="dealing")  # the journal deals one query at a time
        of_phones = Limits(message_bytes=MAX_PHONE_MESSAGE, in_flight_per_connection=MAX_CALLS_OF_PHONE)
        self.admissions = {"phones": Admission(limits=of_phones), "decisions": Admission((AGGREGATION_SERVER,))}
        """Of the calls of each listener."""
        self.phones = Listener(
            phones,
            {ENROLMENT: self._enrolment(self.admissions["phones"]), **(others or {})},
            credentials=certificate.server_credentials(mutual=False),
            limits=of_phones,
        )
        self.decisions = Listener(
            decisions,
            {DECIDING: self._deciding(self.admissions["decisions"])},
            credentials=certificate.server_credentials(mutual=True),
        )
        self._erase_every = erase_every
        self._rotate_every = rotate_every
        self._keep = keep
        self._entered = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start to listen."""
        async with AsyncExitStack() as entering:
            for threads in (self._for_phones, self._for_decisions, self._for_dealing):
                entering.push_async_callback(asyncio.to_thread, threads.shutdown)
            maintenance = asyncio.create_task(self._maintain())
            entering.callback(maintenance.cancel)
            await entering.enter_async_context(self.phones)
            await entering.enter_async_context(self.decisions)
            self._entered = entering.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to listen; calls that have begun may end."""
        await self._entered.aclose()

    async def _maintain(self) -> None:
        while True:
            await self._attempt("overdue keys of queries cannot be erased", self._server.erase_overdue)
            if self._rotate_every is not None:
                rotate = partial(self._server.keyring.rotate_if_due, self._rotate_every)
                await self._attempt("the key cannot be rotated", rotate)
            if self._keep is not None:
                prune = partial(self._server.prune, self._keep)
                while await self._attempt("old phones of queries cannot be deleted", prune):  # noqa: ASYNC110  # rounds
                    await asyncio.sleep(BETWEEN_ROUNDS)
            await asyncio.sleep(self._erase_every)

    async def _attempt(self, failure: str, work: Callable[[], Reply]) -> Reply | None:
        """Work in a thread that nobody waits for."""
        try:
            return await asyncio.to_thread(work)
        except (OSError, ReticentError) as error:  # such as a full disk: the next attempt may succeed
            _log.error(failure, extra={"reason": str(error)})
            return None

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
            loop = asyncio.get_running_loop()
            deals = await loop.run_in_executor(self._for_dealing, server.dealer.countersign, request.query)
            while (deal := await self._for_decision(next, deals, None)) is not None:
                yield deal

        async def decide(messages: AsyncIterator[wire.DecideRequest], _: Caller) -> wire.Decision:
            first = await anext(messages, None)
            if first is None or first.WhichOneof("part") != "head":
                raise Refused(Refusal.MALFORMED, "a request to decide must begin with its head")
            with DECIDE_SECONDS.time():
                request = await self._for_decision(server.decider.begin, first.head)
                try:
                    async for message in messages:
                        if message.WhichOneof("part") != "receipts":
                            raise Refused(Refusal.MALFORMED, "only receipts may follow the head")
                        await self._for_decision(server.decider.add, request, message.receipts.receipts)
                    return await self._for_decision(server.decider.decide, request)
                finally:
                    server.decider.abandon(request)

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
