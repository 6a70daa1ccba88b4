"""Where calls come in: who may, how often, how many at a time; and how refusals go out.

Requests are taken as bytes and read here, when it is known that their sender may call, so that a message that cannot
be read is refused like any other. A call without its message, or whose answer is not taken, counts as one that is
inside, has not long to do its part, and gives way to others: for gRPC, therefore, all that comes in and out is a
stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, TypeAlias, TypeVar, cast
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message

from reticent.address import network
from reticent.protocol.calls import REFUSAL, RETRY_AFTER, STATUS
from reticent.protocol.refusals import Refusal, Refused
from reticent.server.crowd import Crowd, Visit
from reticent.server.rates import Rate, Rates

__all__ = ["Caller", "Door", "Handler", "Limits", "stream_in", "stream_out", "unary"]

_log = logging.getLogger(__name__)

REMEMBERED = 20_000
"""Addresses whose calls are counted; the least lately seen are forgotten."""

_LONGEST_DETAIL = 400  # characters: what goes out with a refusal must fit a header

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
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
        message_bytes: The size of a message.
        patience: Seconds that a message may take to come, and an answer to be taken.
        connections: At a time, of all; a listener takes fewer where the system allows the process fewer open files.
    """

    address: Rate = field(default_factory=lambda: Rate(2000.0, 4000.0))
    in_flight: int = 1024
    in_flight_of_one: int = 512
    message_bytes: int = 1 << 20
    patience: float = 30.0
    connections: int = 8192

    def __post_init__(self) -> None:
        for name in ("in_flight", "in_flight_of_one", "message_bytes", "patience", "connections"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive: got {getattr(self, name)}")


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

    @contextmanager
    def entered(self, context: Context) -> Iterator[tuple[Caller, Visit]]:
        """The caller and its call, while it is inside.

        Raises:
            Refused: It may not come in now, or at all.
        """
        caller = _caller(context)
        if self.names is not None and not any(_is_called(caller.name, name) for name in self.names):
            raise Refused(Refusal.NOT_PERMITTED)
        whose = network(caller.address)
        wait = self._rates.take(whose, asyncio.get_running_loop().time())
        if wait:
            raise Refused(Refusal.BUSY, f"{whose} calls too often", retry_after=wait)
        with self._crowd.entered(whose) as visit:
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
        """Send a message. Who does not take it is given up: nothing else can be told it before."""
        self._crowd.waits(visit)
        writing = asyncio.ensure_future(context.write(content.SerializeToString()))
        try:
            async with visit.waiting(self.limits.patience):
                with _unless_gone():
                    await asyncio.shield(writing)
        except Refused as refused:
            raise asyncio.CancelledError from refused
        finally:
            if not writing.done():  # gRPC has no way to take it back
                self._crowd.left(visit)
                writing.add_done_callback(partial(self._taken_back, visit))
        self._crowd.goes_on(visit)

    def _taken_back(self, visit: Visit, writing: asyncio.Future[None]) -> None:
        self._crowd.gone(visit)
        if not writing.cancelled():
            writing.exception()  # that the connection has ended is nobody's fault


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
        message_bytes: The size of what comes in, where it is less than the listener lets through for other methods.
            What is larger is refused before it is parsed.
    """

    async def handle(_: AsyncIterator[bytes], context: Context) -> None:
        try:
            with door.entered(context) as (caller, visit):
                asked = await _only(door, kind, visit, context, message_bytes)
                await door.tell(visit, context, await answer(asked, caller))
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets a status
            await _refuse(context, kind, error)

    return grpc.stream_stream_rpc_method_handler(cast("Any", handle))


def stream_out(door: Door, kind: type[Asked], answer: Callable[[Asked, Caller], AsyncIterator[Message]]) -> Handler:
    """One message in, many out."""

    async def handle(_: AsyncIterator[bytes], context: Context) -> None:
        try:
            with door.entered(context) as (caller, visit):
                asked = await _only(door, kind, visit, context)
                answers = cast("AsyncGenerator[Message]", answer(asked, caller))
                async with aclosing(answers):  # at once, also when the caller has gone
                    async for each in answers:
                        await door.tell(visit, context, each)
        except Exception as error:  # noqa: BLE001  # as above
            await _refuse(context, kind, error)

    return grpc.stream_stream_rpc_method_handler(cast("Any", handle))


def stream_in(
    door: Door, kind: type[Asked], answer: Callable[[AsyncIterator[Asked], Caller], Awaitable[Message]]
) -> Handler:
    """Many messages in, one out.

    A caller that goes away looks like one that has sent all. What comes must say itself when it is whole.
    """

    async def handle(_: AsyncIterator[bytes], context: Context) -> None:
        async def read(visit: Visit) -> AsyncIterator[Asked]:
            while (content := await door.content(visit, context)) is not None:
                yield _read(kind, content)

        try:
            with door.entered(context) as (caller, visit):
                await door.tell(visit, context, await answer(read(visit), caller))
        except Exception as error:  # noqa: BLE001  # as above
            await _refuse(context, kind, error)

    return grpc.stream_stream_rpc_method_handler(cast("Any", handle))


async def _only(
    door: Door, kind: type[Asked], visit: Visit, context: Context, message_bytes: int | None = None
) -> Asked:
    content = await door.content(visit, context)
    if content is None:
        raise Refused(Refusal.MALFORMED, f"there is no {kind.DESCRIPTOR.name}")
    if message_bytes is not None and len(content) > message_bytes:
        detail = f"{kind.DESCRIPTOR.name} may have {message_bytes} bytes: got {len(content)}"
        raise Refused(Refusal.OVERSIZED, detail)
    return _read(kind, content)


def _read(kind: type[Asked], content: bytes) -> Asked:
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


def _caller(context: Context) -> Caller:
    # As in ipv4:127.0.0.1:5000, ipv6:%5B::1%5D:5000, and unix: without more.
    kind, _, rest = unquote(context.peer()).partition(":")
    address = rest.rpartition(":")[0].strip("[]") if kind.startswith("ip") else kind
    names = list(context.auth_context().get("x509_common_name") or ())
    return Caller(address, names[0].decode(errors="replace") if len(names) == 1 else None)


def _is_called(name: str | None, wanted: str) -> bool:
    return name is not None and (name == wanted or name.startswith(f"{wanted} "))


async def _refuse(context: Context, kind: type[Message], error: Exception) -> NoReturn:
    """Give up, with a reason that the caller may know."""
    status, detail, trailing = grpc.StatusCode.INTERNAL, "the server has a fault of its own", []
    if isinstance(error, Refused):
        status, detail = STATUS[error.refusal], error.detail[:_LONGEST_DETAIL]
        trailing.append((REFUSAL, error.refusal.name))
        if error.retry_after is not None:
            trailing.append((RETRY_AFTER, str(int(error.retry_after * 1000) + 1)))
    else:
        _log.error("a call failed", exc_info=error, extra={"asked": kind.DESCRIPTOR.name})
    with _unless_gone():
        await context.abort(status, detail, tuple(trailing))
