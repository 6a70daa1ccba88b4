"""Admission of calls: which callers, how often, how many at a time; and how refusals reach them.

Requests arrive as bytes and are parsed here, after the caller is admitted, so that an unreadable message is refused
like any other. A call that waits for its message, or whose reply is not read, counts as admitted, has a timeout, and
may be evicted for others. gRPC therefore sees only streams, in both directions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import partial
from time import monotonic
from typing import Any, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message

from reticent.protocol import Refusal, Refused
from reticent.protocol.calls import REFUSAL, RETRY_AFTER
from reticent.rpc._call_limits import AdmittedCall, CallLimits
from reticent.rpc._connections import CONNECTIONS, Peer
from reticent.rpc._rate_limits import RateLimit, RateLimits
from reticent.rpc._reply_limits import ReplyLimits

__all__ = [
    "INTERNAL",
    "MAX_CALLS_OF_PHONE",
    "Admission",
    "Caller",
    "Handler",
    "Limits",
    "stream_in",
    "stream_out",
    "unary",
]

_log = logging.getLogger(__name__)

MAX_CALLS_OF_PHONE = 16
"""Concurrent calls of a phone's connection: anybody may open one, and all calls wait for admission in one queue.
Clients must make fewer: gRPC counts a call until the server has freed it, and refuses the next one."""

INTERNAL = "INTERNAL"
"""In place of the code of a refusal: an internal error."""
RETRY_AFTER_FAILURE = 1.0
"""Seconds after which a caller tries again when a disk or a database fails."""

_MAX_DETAIL = 400  # characters: the detail of a refusal must fit a header

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Trailing: TypeAlias = tuple[tuple[str, str], ...]
Handler: TypeAlias = "Callable[[int], grpc.RpcMethodHandler[Any, Any]]"
"""A method, for a listener at this port: gRPC does not tell a call which listener it came to."""

Request = TypeVar("Request", bound=Message)


@dataclass(frozen=True)
class Caller:
    """The machine and the certificate that a call comes from.

    Args:
        address: Of its machine.
        name: The common name of its certificate; None without one, and where everybody may call.
    """

    address: str
    name: str | None = None


@dataclass(frozen=True)
class Limits:
    """Limits of one listener. A network is an IPv4 address or an IPv6 /64; many phones may share one.

    Args:
        call_rate: Calls of one network.
        in_flight: Concurrent calls.
        in_flight_per_network: Concurrent calls of one network. At either limit, calls that wait for their callers
            are evicted.
        in_flight_per_connection: Concurrent calls of one connection. A caller that makes so many at a time without a
            pause loses some: gRPC counts a call until the server has freed it.
        message_bytes: Size of a request. A larger one is refused before it is parsed.
        timeout: Seconds for a request to arrive, and for a reply to be read. A connection that does not read a reply
            in time is cut.
        reply_bytes: Unread replies of all connections. At this limit connections are cut: of the network with the
            most unread bytes, the connection that has waited longest.
        reply_bytes_per_connection: Unread replies of one connection. At this limit the connection is refused, and no
            other. A single reply may exceed either limit if no other reply waits.
        connections: Concurrent connections; a listener takes fewer if the process may open fewer files.
        connections_per_network: Concurrent connections of one network. A listener checks about once a second, and
            cuts idle connections above this limit.
    """

    call_rate: RateLimit = field(default_factory=lambda: RateLimit(2000.0, 4000.0))
    in_flight: int = 1024
    in_flight_per_network: int = 512
    in_flight_per_connection: int = 64
    message_bytes: int = 1 << 20
    timeout: float = 30.0
    reply_bytes: int = 64 << 20
    reply_bytes_per_connection: int = 4 << 20
    connections: int = 4096
    connections_per_network: int = 1024

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not (isinstance(value, RateLimit) or value > 0):
                raise ValueError(f"{each.name} must be positive: got {value}")


class Admission:
    """Admits calls.

    Args:
        names: Common names of certificates that may call, each of which may be followed by a space and a name of its
            own; None admits every caller.
        limits: Of its listener.
    """

    def __init__(self, names: tuple[str, ...] | None = None, limits: Limits | None = None) -> None:
        self.names = names
        self.limits = limits or Limits()
        self._rates = RateLimits(self.limits.call_rate)
        self.calls = CallLimits(self.limits.in_flight, self.limits.in_flight_per_network)
        self.replies = ReplyLimits(
            self.limits.reply_bytes, self.limits.reply_bytes_per_connection, cut=CONNECTIONS.cut, now=monotonic
        )
        self.refusals: Counter[str] = Counter()
        """The number of refused calls, by code."""

    @contextmanager
    def admit(self, context: Context, peer: Peer) -> Iterator[tuple[Caller, AdmittedCall]]:
        """The caller and its call, which counts as admitted inside this block.

        Raises:
            Refused: The caller may not call now, or not at all.
        """
        caller = Caller(peer.address, None if self.names is None else _name(context))
        if self.names is not None and not any(_has_role(caller.name, role) for role in self.names):
            raise Refused(Refusal.NOT_PERMITTED)
        wait = self._rates.take(peer.network, asyncio.get_running_loop().time())
        if wait:
            raise Refused(Refusal.BUSY, f"{peer.network} calls too often", retry_after=wait)
        self.replies.check(peer)
        with CONNECTIONS.count_call(peer), self.calls.admit(peer) as call:
            yield caller, call

    async def receive(self, call: AdmittedCall, context: Context) -> bytes | None:
        """The next message of an admitted call; None after the last one.

        Raises:
            Refused: The timeout passed, or the call was evicted.
        """
        async with call.waiting(self.limits.timeout):
            with _cancelled_if_gone():
                content = await context.read()
        self.calls.mark_working(call)
        return None if content is grpc.aio.EOF else cast("bytes", content)

    async def discard(self, call: AdmittedCall, context: Context) -> None:
        """Read the remaining messages of a call that is refused.

        A caller whose message is on its way when the refusal arrives sees an internal error instead: its gRPC
        overwrites the status (grpc/grpc#36066).
        """
        with suppress(Refused, TimeoutError):
            async with asyncio.timeout(self.limits.timeout):
                self.calls.mark_waiting(call)
                while await self.receive(call, context) is not None:
                    self.calls.mark_waiting(call)

    async def reply(self, call: AdmittedCall, context: Context, message: Message | bytes) -> None:
        """Send a message, which may be encoded already. A connection that does not read it in time is cut.

        Raises:
            Refused: Too many replies are unread.
        """
        written = self.replies.add(call.peer, len(message) if isinstance(message, bytes) else message.ByteSize())
        writing = context.write(message if isinstance(message, bytes) else message.SerializeToString())
        del message  # only the bytes are kept
        self.calls.mark_waiting(call)
        try:
            async with call.waiting(self.limits.timeout):
                await self._written(call.peer, writing, written)
        except Refused as refused:
            self.replies.cut(call.peer)  # gRPC cannot take back a message in any other way
            raise asyncio.CancelledError from refused
        self.calls.mark_working(call)

    async def serve(self, context: Context, peer: Peer, request_type: type[Message], handling: Awaitable[None]) -> None:
        """Serve a call, or refuse it with a reason that the caller may know."""
        failure = await _failure(request_type, handling)
        if failure is not None:
            self.refusals[dict(failure[2]).get(REFUSAL, INTERNAL)] += 1
            written = self.replies.add_refusal(peer)
            await self._written(peer, context.abort(*failure), written)

    async def _written(self, peer: Peer, writing: Coroutine[Any, Any, None], written: Callable[[], None]) -> None:
        """Wait until gRPC has written. Writing continues if the waiting is cancelled.

        A connection that does not read in time is cut, even if its caller has cancelled the call.
        """
        task = asyncio.ensure_future(writing)
        cutting = asyncio.get_running_loop().call_later(self.limits.timeout, self.replies.cut, peer)
        task.add_done_callback(partial(_end_writing, cutting, written))
        with _cancelled_if_gone():
            await asyncio.shield(task)


def unary(
    admission: Admission,
    request_type: type[Request],
    respond: Callable[[Request, Caller], Awaitable[Message | bytes]],
    *,
    message_bytes: int | None = None,
) -> Handler:
    """One message in, one out.

    Args:
        admission: Admits the call.
        request_type: Of the message in.
        respond: Makes the message out, or its bytes.
        message_bytes: Size of the request, if less than the limits allow.
    """

    async def handle(context: Context, peer: Peer) -> None:
        with admission.admit(context, peer) as (caller, call):
            request = await _single(admission, request_type, call, context, message_bytes)
            await admission.reply(call, context, await respond(request, caller))

    return _handler(admission, request_type, handle)


def stream_out(
    admission: Admission, request_type: type[Request], respond: Callable[[Request, Caller], AsyncIterator[Message]]
) -> Handler:
    """One message in, many out."""

    async def handle(context: Context, peer: Peer) -> None:
        with admission.admit(context, peer) as (caller, call):
            request = await _single(admission, request_type, call, context)
            replies = cast("AsyncGenerator[Message]", respond(request, caller))
            async with aclosing(replies):  # at once, also when the caller has gone
                async for each in replies:
                    await admission.reply(call, context, each)

    return _handler(admission, request_type, handle)


def stream_in(
    admission: Admission,
    request_type: type[Request],
    respond: Callable[[AsyncIterator[Request], Caller], Awaitable[Message]],
) -> Handler:
    """Many messages in, one out.

    A caller that disconnects looks like one that has sent everything: the messages themselves must tell their end.
    """

    async def requests(call: AdmittedCall, context: Context) -> AsyncIterator[Request]:
        while (content := await admission.receive(call, context)) is not None:
            yield _parsed(request_type, content, admission.limits.message_bytes)

    async def handle(context: Context, peer: Peer) -> None:
        with admission.admit(context, peer) as (caller, call):
            try:
                reply = await respond(requests(call, context), caller)
            except Refused as refused:
                if refused.refusal is not Refusal.BUSY:  # which a caller repeats anyway
                    await admission.discard(call, context)
                raise
            await admission.reply(call, context, reply)

    return _handler(admission, request_type, handle)


def _handler(
    admission: Admission, request_type: type[Message], handle: Callable[[Context, Peer], Awaitable[None]]
) -> Handler:
    def at(port: int) -> grpc.RpcMethodHandler[Any, Any]:
        async def serve(_: AsyncIterator[bytes], context: Context) -> None:
            peer = Peer.parse(context.peer(), port)
            await admission.serve(context, peer, request_type, handle(context, peer))

        return grpc.stream_stream_rpc_method_handler(cast("Any", serve))

    return at


async def _single(
    admission: Admission,
    request_type: type[Request],
    call: AdmittedCall,
    context: Context,
    message_bytes: int | None = None,
) -> Request:
    content = await admission.receive(call, context)
    if content is None:
        raise Refused(Refusal.MALFORMED, f"there is no {request_type.DESCRIPTOR.name}")
    limit = admission.limits.message_bytes
    return _parsed(request_type, content, min(message_bytes or limit, limit))


def _parsed(request_type: type[Request], content: bytes, message_bytes: int) -> Request:
    name = request_type.DESCRIPTOR.name
    if len(content) > message_bytes:
        raise Refused(Refusal.OVERSIZED, f"{name} may have {message_bytes} bytes: got {len(content)}")
    message = request_type()
    try:
        message.ParseFromString(content)
    except DecodeError:
        raise Refused(Refusal.MALFORMED, f"the message is not a {name}") from None
    return message


@contextmanager
def _cancelled_if_gone() -> Iterator[None]:
    """Treat a call whose caller has disconnected as cancelled: it is no error."""
    try:
        yield
    except grpc.aio.InternalError as error:  # a message can be neither read nor written
        raise asyncio.CancelledError from error


def _end_writing(cutting: asyncio.TimerHandle, written: Callable[[], None], writing: asyncio.Future[None]) -> None:
    cutting.cancel()
    written()
    if not writing.cancelled():
        writing.exception()  # a closed connection is no error


def _name(context: Context) -> str | None:
    """The common name of a caller's certificate."""
    names = list(context.auth_context().get("x509_common_name") or ())
    return names[0].decode(errors="replace") if len(names) == 1 else None


def _has_role(name: str | None, role: str) -> bool:
    return name is not None and (name == role or name.startswith(f"{role} "))


def _refusal(refused: Refused) -> tuple[grpc.StatusCode, str, Trailing]:
    trailing = [(REFUSAL, refused.refusal.name)]
    if refused.retry_after is not None:
        trailing.append((RETRY_AFTER, str(int(refused.retry_after * 1000) + 1)))
    return grpc.StatusCode[refused.refusal.status], refused.detail[:_MAX_DETAIL], tuple(trailing)


async def _failure(
    request_type: type[Message], handling: Awaitable[None]
) -> tuple[grpc.StatusCode, str, Trailing] | None:
    """The failure of a call: the status, a detail, and trailing metadata; None if it succeeded.

    The exception ends here: the frames of its traceback hold messages, which must not stay in memory until the caller
    reads the refusal.
    """
    try:
        await handling
    except Refused as refused:
        return _refusal(refused)
    except OSError as error:  # a disk or a database that cannot be used now
        _log.error("a call failed: %s", error, extra={"request": request_type.DESCRIPTOR.name})
        return _refusal(Refused(Refusal.UNAVAILABLE, retry_after=RETRY_AFTER_FAILURE))
    except Exception as error:  # noqa: BLE001  # whatever the error, the caller gets a status
        _log.error("a call failed", exc_info=error, extra={"request": request_type.DESCRIPTOR.name})
        return grpc.StatusCode.INTERNAL, "internal error of the server", ()
    return None
