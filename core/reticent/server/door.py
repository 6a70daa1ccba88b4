"""Where calls come in: who may, how often, how many at a time; and how refusals go out.

Requests are taken as bytes and read here, when it is known that their sender may call, so that a message that cannot
be read is refused like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message

from reticent.protocol.calls import REFUSAL, RETRY_AFTER, STATUS
from reticent.protocol.refusals import Refusal, Refused
from reticent.server.rates import Rate, Rates

__all__ = ["Caller", "Door", "Handler", "Limits", "stream_in", "stream_out", "unary"]

_log = logging.getLogger(__name__)

REMEMBERED = 20_000
"""Addresses, and phones, whose calls are counted; the least lately seen are forgotten."""

Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]  # generic in its stubs only
else:
    Handler = grpc.RpcMethodHandler
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
        address: The calls of one address; many phones may share one.
        in_flight: Calls at a time, of all.
        message_bytes: The size of a message.
    """

    address: Rate = field(default_factory=lambda: Rate(2000.0, 4000.0))
    in_flight: int = 1024
    message_bytes: int = 1 << 20


class Door:
    """Lets calls in.

    Args:
        names: The beginnings of the certificates' common names that may come in; None for anybody.
        limits: What the door stands.
    """

    def __init__(self, names: tuple[str, ...] | None = None, limits: Limits | None = None) -> None:
        self.names = names
        self.limits = limits or Limits()
        self._rates = Rates(self.limits.address, REMEMBERED)
        self._inside = 0

    @contextmanager
    def entered(self, context: Context) -> Iterator[Caller]:
        """The caller, while it is inside.

        Raises:
            Refused: It may not come in now, or at all.
        """
        caller = _caller(context)
        if self.names is not None and not (caller.name or "").startswith(self.names):
            raise Refused(Refusal.NOT_PERMITTED)
        wait = self._rates.take(caller.address, asyncio.get_running_loop().time())
        if wait:
            raise Refused(Refusal.BUSY, f"{caller.address} calls too often", retry_after=wait)
        if self._inside >= self.limits.in_flight:
            raise Refused(Refusal.BUSY, "too many calls at a time", retry_after=1.0)
        self._inside += 1
        try:
            yield caller
        finally:
            self._inside -= 1


def unary(door: Door, kind: type[Asked], answer: Callable[[Asked, Caller], Awaitable[Message]]) -> Handler:
    """One message in, one out."""

    async def handle(content: bytes, context: Context) -> bytes:
        try:
            with door.entered(context) as caller:
                return (await answer(_read(kind, content), caller)).SerializeToString()
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets a status
            await _refuse(context, error)

    return grpc.unary_unary_rpc_method_handler(cast("Any", handle))


def stream_out(door: Door, kind: type[Asked], answer: Callable[[Asked, Caller], AsyncIterator[Message]]) -> Handler:
    """One message in, many out."""

    async def handle(content: bytes, context: Context) -> AsyncIterator[bytes]:
        try:
            with door.entered(context) as caller:
                async for each in answer(_read(kind, content), caller):
                    yield each.SerializeToString()
        except Exception as error:  # noqa: BLE001  # as above
            await _refuse(context, error)

    return grpc.unary_stream_rpc_method_handler(cast("Any", handle))


def stream_in(
    door: Door, kind: type[Asked], answer: Callable[[AsyncIterator[Asked], Caller], Awaitable[Message]]
) -> Handler:
    """Many messages in, one out."""

    async def handle(contents: AsyncIterator[bytes], context: Context) -> bytes:
        async def read() -> AsyncIterator[Asked]:
            async for content in contents:
                yield _read(kind, content)

        try:
            with door.entered(context) as caller:
                return (await answer(read(), caller)).SerializeToString()
        except Exception as error:  # noqa: BLE001  # as above
            await _refuse(context, error)

    return grpc.stream_unary_rpc_method_handler(cast("Any", handle))


def _read(kind: type[Asked], content: bytes) -> Asked:
    message = kind()
    try:
        message.ParseFromString(content)
    except DecodeError:
        raise Refused(Refusal.MALFORMED, f"this is no {kind.DESCRIPTOR.name}") from None
    return message


def _caller(context: Context) -> Caller:
    # As in ipv4:127.0.0.1:5000, ipv6:%5B::1%5D:5000, and unix: without more.
    kind, _, rest = unquote(context.peer()).partition(":")
    address = rest.rpartition(":")[0] if kind.startswith("ip") else kind
    names = list(context.auth_context().get("x509_common_name") or ())
    return Caller(address, names[0].decode(errors="replace") if names else None)


async def _refuse(context: Context, error: Exception) -> NoReturn:
    """Give up, with a reason that the caller may know."""
    if not isinstance(error, Refused):
        _log.error("a call failed", exc_info=error)
        await context.abort(grpc.StatusCode.INTERNAL, "the server has a fault of its own")
    trailing = [(REFUSAL, error.refusal.name)]
    if error.retry_after is not None:
        trailing.append((RETRY_AFTER, str(int(error.retry_after * 1000) + 1)))
    context.set_trailing_metadata(tuple(trailing))
    await context.abort(STATUS[error.refusal], error.detail)
