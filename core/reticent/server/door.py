"""Where calls come in: who may, how often, how many at a time; and how refusals go out.

Requests are taken as bytes and read here, when it is known that their sender may call, so that a message that cannot
be read is refused like any other. A call without its message counts as one that is inside, and has not long to bring
it: for gRPC, therefore, all that comes in are streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias, TypeVar, cast
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message

from reticent.protocol.calls import REFUSAL, RETRY_AFTER, STATUS
from reticent.protocol.refusals import Refusal, Refused
from reticent.server.address import network
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
        in_flight_of_one: Calls at a time, of one address.
        message_bytes: The size of a message.
        patience: Seconds that a message may take to come.
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
        self._inside: Counter[str] = Counter()  # by address
        self._number = 0

    @property
    def inside(self) -> int:
        """How many calls are inside."""
        return self._number

    @contextmanager
    def entered(self, context: Context) -> Iterator[Caller]:
        """The caller, while it is inside.

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
        if self._number >= self.limits.in_flight or self._inside[whose] >= self.limits.in_flight_of_one:
            raise Refused(Refusal.BUSY, "too many calls at a time", retry_after=1.0)
        self._number += 1
        self._inside[whose] += 1
        try:
            yield caller
        finally:
            self._number -= 1
            self._inside[whose] -= 1
            if not self._inside[whose]:
                del self._inside[whose]


def unary(door: Door, kind: type[Asked], answer: Callable[[Asked, Caller], Awaitable[Message]]) -> Handler:
    """One message in, one out."""

    async def handle(_: AsyncIterator[bytes], context: Context) -> bytes:
        try:
            with door.entered(context) as caller:
                return (await answer(await _only(door, kind, context), caller)).SerializeToString()
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets a status
            await _refuse(context, kind, error)

    return grpc.stream_unary_rpc_method_handler(cast("Any", handle))


def stream_out(door: Door, kind: type[Asked], answer: Callable[[Asked, Caller], AsyncIterator[Message]]) -> Handler:
    """One message in, many out."""

    async def handle(_: AsyncIterator[bytes], context: Context) -> None:
        try:
            with door.entered(context) as caller:
                answers = cast("AsyncGenerator[Message]", answer(await _only(door, kind, context), caller))
                async with aclosing(answers):  # at once, also when the caller has gone
                    async for each in answers:
                        with _unless_gone():
                            await context.write(each.SerializeToString())
        except Exception as error:  # noqa: BLE001  # as above
            await _refuse(context, kind, error)

    return grpc.stream_stream_rpc_method_handler(cast("Any", handle))


def stream_in(
    door: Door, kind: type[Asked], answer: Callable[[AsyncIterator[Asked], Caller], Awaitable[Message]]
) -> Handler:
    """Many messages in, one out.

    A caller that goes away looks like one that has sent all. What comes must say itself when it is whole.
    """

    async def handle(_: AsyncIterator[bytes], context: Context) -> bytes:
        async def read() -> AsyncIterator[Asked]:
            while (content := await _content(door, context)) is not None:
                yield _read(kind, content)

        try:
            with door.entered(context) as caller:
                return (await answer(read(), caller)).SerializeToString()
        except Exception as error:  # noqa: BLE001  # as above
            await _refuse(context, kind, error)

    return grpc.stream_unary_rpc_method_handler(cast("Any", handle))


async def _only(door: Door, kind: type[Asked], context: Context) -> Asked:
    content = await _content(door, context)
    if content is None:
        raise Refused(Refusal.MALFORMED, f"there is no {kind.DESCRIPTOR.name}")
    return _read(kind, content)


async def _content(door: Door, context: Context) -> bytes | None:
    """The next message; None where the caller has sent all."""
    try:
        with _unless_gone():
            async with asyncio.timeout(door.limits.patience):
                content = await context.read()
    except TimeoutError:
        raise Refused(Refusal.BUSY, "the message took too long to come", retry_after=door.limits.patience) from None
    return None if content is grpc.aio.EOF else cast("bytes", content)


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
