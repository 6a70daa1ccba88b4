"""Where calls come in: who may, how often, how many at a time; and how refusals go out.

Requests are taken as bytes and read here, when it is known that their sender may call, so that a message that cannot
be read is refused like any other. A call without its message, or whose answer is not taken, counts as one that is
inside, has not long to do its part, and gives way to others: for gRPC, therefore, all that comes in and out is a
stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from time import monotonic
from typing import Any, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message

from reticent.protocol.calls import REFUSAL, RETRY_AFTER, STATUS
from reticent.protocol.refusals import Refusal, Refused
from reticent.rpc.call_limits import Crowd, Visit
from reticent.rpc.connections import CONNECTIONS, Peer
from reticent.rpc.rates import Rate, Rates
from reticent.rpc.reply_limits import Outgoing

__all__ = ["Caller", "Door", "Handler", "Limits", "stream_in", "stream_out", "unary"]

_log = logging.getLogger(__name__)

REMEMBERED = 20_000
"""Addresses whose calls are counted; the least lately seen are forgotten."""

_MAX_DETAIL = 400  # characters: what goes out with a refusal must fit a header

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Trailing: TypeAlias = tuple[tuple[str, str], ...]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Asked = TypeVar("Asked", bound=Message)
Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True)
class Caller:
    """Who calls.

    Args:
        address: Of its machine.
        name: The common name of its certificate; None where it showed none.
    """

    address: str
    name: str | None = None


@dataclass(frozen=True)
class Limits:
    """What a door stands.

    Args:
        address: The calls of one address, or IPv6 network; many phones may share one.
        in_flight: Calls at a time, of all.
        in_flight_of_one: Calls at a time, of one address. Of these and of all, calls that wait for their callers
            give way.
        message_bytes: The size of a message that comes in. What is larger is refused before it is parsed.
        patience: Seconds that a message may take to come, and an answer to be taken. The connection of an answer that
            is not taken by then is cut.
        outgoing_bytes: Of the answers that are not taken yet, of all. At this limit connections are cut, those first
            that have waited longest, of the network with the most.
        outgoing_bytes_of_one: Of the answers that are not taken yet, of one connection. At this limit the connection
            is refused, and nobody else. A single answer may be larger than either limit, where there is no other.
        connections: At a time, of all; a listener takes fewer where the system allows the process fewer open files.
        connections_of_one: At a time, of one address. A listener looks about once a second, and cuts those beyond this
            limit that have no call inside.
    """

    address: Rate = field(default_factory=lambda: Rate(2000.0, 4000.0))
    in_flight: int = 1024
    in_flight_of_one: int = 512
    message_bytes: int = 1 << 20
    patience: float = 30.0
    outgoing_bytes: int = 64 << 20
    outgoing_bytes_of_one: int = 4 << 20
    connections: int = 4096
    connections_of_one: int = 1024

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not (isinstance(value, Rate) or value > 0):
                raise ValueError(f"{each.name} must be positive: got {value}")


class Door:
    """Lets calls in.

    Args:
        names: Who may come in, by the common name of their certificates, which a name of their own may follow after a
            blank; None for anybody.
        limits: What the door stands.
    """

    def __init__(self, names: tuple[str, ...] | None = None, limits: Limits | None = None) -> None:
        self.names = names
        self.limits = limits or Limits()
        self._rates = Rates(self.limits.address, REMEMBERED)
        self._crowd = Crowd(self.limits.in_flight, self.limits.in_flight_of_one)
        self._outgoing = Outgoing(
            self.limits.outgoing_bytes, self.limits.outgoing_bytes_of_one, cut=CONNECTIONS.cut, now=monotonic
        )

    @contextmanager
    def entered(self, context: Context) -> Iterator[tuple[Caller, Visit]]:
        """The caller and its call, while it is inside.

        Raises:
            Refused: It may not come in now, or at all.
        """
        peer = Peer.parse(context.peer())
        caller = Caller(peer.address, _name(context))
        if self.names is not None and not any(_is_called(caller.name, name) for name in self.names):
            raise Refused(Refusal.NOT_PERMITTED)
        wait = self._rates.take(peer.network, asyncio.get_running_loop().time())
        if wait:
            raise Refused(Refusal.BUSY, f"{peer.network} calls too often", retry_after=wait)
        self._outgoing.check(peer)
        with CONNECTIONS.entered(peer), self._crowd.entered(peer) as visit:
            yield caller, visit

    async def content(self, visit: Visit, context: Context) -> bytes | None:
        """The next message of a call that is inside; None where the caller has sent all.

        Raises:
            Refused: It takes too long to come, or the call has to give way.
        """
        async with visit.waiting(self.limits.patience):
            with _unless_gone():
                content = await context.read()
        self._crowd.goes_on(visit)
        return None if content is grpc.aio.EOF else cast("bytes", content)

    async def tell(self, visit: Visit, context: Context, content: Message) -> None:
        """Send a message. A connection that does not take it in time is cut.

        Raises:
            Refused: There is no room for the message among those that are not taken yet.
        """
        written = self._outgoing.add(visit.peer, content.ByteSize())
        writing = context.write(content.SerializeToString())
        del content  # the bytes are enough to hold
        self._crowd.waits(visit)
        try:
            async with visit.waiting(self.limits.patience):
                await self._finished(visit.peer, writing, written)
        except Refused as refused:
            self._outgoing.cut(visit.peer)  # gRPC has no other way to take back what it was to write
            raise asyncio.CancelledError from refused
        self._crowd.goes_on(visit)

    async def serve(self, context: Context, kind: type[Message], call: Awaitable[None]) -> None:
        """Have a call be served, or refused with a reason that the caller may know."""
        told = await _failure(kind, call)
        if told is not None:
            await self._refuse(context, *told)

    async def _refuse(self, context: Context, status: grpc.StatusCode, detail: str, trailing: Trailing) -> None:
        peer = Peer.parse(context.peer())
        written = self._outgoing.add_refusal(peer)
        await self._finished(peer, context.abort(status, detail, trailing), written)

    async def _finished(self, peer: Peer, writing: Coroutine[Any, Any, None], written: Callable[[], None]) -> None:
        """Wait for what gRPC writes. It goes on also where nobody waits for it any more.

        A connection that does not take it in time is cut, also where the caller has cancelled the call meanwhile.
        """
        task = asyncio.ensure_future(writing)
        cutting = asyncio.get_running_loop().call_later(self.limits.patience, self._outgoing.cut, peer)
        task.add_done_callback(partial(_ended, cutting, written))
        with _unless_gone():
            await asyncio.shield(task)


def unary(
    door: Door,
    kind: type[Asked],
    answer: Callable[[Asked, Caller], Awaitable[Message]],
    *,
    message_bytes: int | None = None,
) -> Handler:
    """One message in, one out.

    Args:
        door: Lets the call in.
        kind: What comes in.
        answer: Makes what goes out.
        message_bytes: The size of what comes in, where it is less than the limits of the door allow.
    """

    async def call(context: Context) -> None:
        with door.entered(context) as (caller, visit):
            asked = await _only(door, kind, visit, context, message_bytes)
            await door.tell(visit, context, await answer(asked, caller))

    return _handler(door, kind, call)


def stream_out(door: Door, kind: type[Asked], answer: Callable[[Asked, Caller], AsyncIterator[Message]]) -> Handler:
    """One message in, many out."""

    async def call(context: Context) -> None:
        with door.entered(context) as (caller, visit):
            asked = await _only(door, kind, visit, context)
            answers = cast("AsyncGenerator[Message]", answer(asked, caller))
            async with aclosing(answers):  # at once, also when the caller has gone
                async for each in answers:
                    await door.tell(visit, context, each)

    return _handler(door, kind, call)


def stream_in(
    door: Door, kind: type[Asked], answer: Callable[[AsyncIterator[Asked], Caller], Awaitable[Message]]
) -> Handler:
    """Many messages in, one out.

    A caller that goes away looks like one that has sent all. What comes must say itself when it is whole.
    """

    async def read(visit: Visit, context: Context) -> AsyncIterator[Asked]:
        while (content := await door.content(visit, context)) is not None:
            yield _read(kind, content, door.limits.message_bytes)

    async def call(context: Context) -> None:
        with door.entered(context) as (caller, visit):
            await door.tell(visit, context, await answer(read(visit, context), caller))

    return _handler(door, kind, call)


def _handler(door: Door, kind: type[Message], call: Callable[[Context], Awaitable[None]]) -> Handler:
    async def handle(_: AsyncIterator[bytes], context: Context) -> None:
        await door.serve(context, kind, call(context))

    return grpc.stream_stream_rpc_method_handler(cast("Any", handle))


async def _only(
    door: Door, kind: type[Asked], visit: Visit, context: Context, message_bytes: int | None = None
) -> Asked:
    content = await door.content(visit, context)
    if content is None:
        raise Refused(Refusal.MALFORMED, f"there is no {kind.DESCRIPTOR.name}")
    return _read(kind, content, min(message_bytes or door.limits.message_bytes, door.limits.message_bytes))


def _read(kind: type[Asked], content: bytes, message_bytes: int) -> Asked:
    if len(content) > message_bytes:
        detail = f"{kind.DESCRIPTOR.name} may have {message_bytes} bytes: got {len(content)}"
        raise Refused(Refusal.OVERSIZED, detail)
    message = kind()
    try:
        message.ParseFromString(content)
    except DecodeError:
        raise Refused(Refusal.MALFORMED, f"this is no {kind.DESCRIPTOR.name}") from None
    return message


@contextmanager
def _unless_gone() -> Iterator[None]:
    """Have a call whose caller has gone end like one that was cancelled: that is nobody's fault."""
    try:
        yield
    except grpc.aio.InternalError as error:  # a message can be neither taken nor sent
        raise asyncio.CancelledError from error


def _ended(cutting: asyncio.TimerHandle, written: Callable[[], None], writing: asyncio.Future[None]) -> None:
    cutting.cancel()
    written()
    if not writing.cancelled():
        writing.exception()  # that the connection has ended is nobody's fault


def _name(context: Context) -> str | None:
    """The common name of a caller's certificate."""
    names = list(context.auth_context().get("x509_common_name") or ())
    return names[0].decode(errors="replace") if len(names) == 1 else None


def _is_called(name: str | None, wanted: str) -> bool:
    return name is not None and (name == wanted or name.startswith(f"{wanted} "))


async def _failure(kind: type[Message], call: Awaitable[None]) -> tuple[grpc.StatusCode, str, Trailing] | None:
    """How a call is refused: the status, a detail, and trailing metadata; None where it is not.

    Its exception ends here: the frames of its traceback hold messages, which are not to lie about while the caller
    does not take the refusal.
    """
    try:
        await call
    except Refused as refused:
        trailing = [(REFUSAL, refused.refusal.name)]
        if refused.retry_after is not None:
            trailing.append((RETRY_AFTER, str(int(refused.retry_after * 1000) + 1)))
        return STATUS[refused.refusal], refused.detail[:_MAX_DETAIL], tuple(trailing)
    except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets a status
        _log.error("a call failed", exc_info=error, extra={"asked": kind.DESCRIPTOR.name})
        return grpc.StatusCode.INTERNAL, "the server has a fault of its own", ()
    return None
