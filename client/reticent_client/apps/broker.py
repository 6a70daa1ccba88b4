"""The gRPC service through which apps, in any language, hear what a phone releases: protos/reticent/v1/phone.proto."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import socket
from collections import Counter
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message

from reticent.address import AddressError, bind, is_local
from reticent.protocol.calls import RETRY_AFTER
from reticent.rpc.rates import Rate, Rates
from reticent.v1 import phone_pb2
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.apps.stream import Stream
from reticent_client.apps.tokens import App, Apps
from reticent_client.errors import Closed, FileError, LeftBehind

SERVICE = "reticent.v1.Phone"

STREAMS_PER_APP = 8
RATE = Rate(per_second=20.0, burst=100.0)
"""Calls of an app. All callers without a token share one such rate."""
REFUSAL_DELAY = 0.25
"""Seconds before a call above the rate is refused: this slows down a caller that retries at once."""
GRACE = 2.0
"""Seconds that calls have to end when the broker stops."""

_OPTIONS = (
    ("grpc.max_receive_message_length", 4096),
    ("grpc.max_metadata_size", 8192),
    ("grpc.max_concurrent_streams", 128),  # per connection
    ("grpc.max_connection_idle_ms", 300_000),  # without a call; whoever keeps connections keeps files open
    ("grpc.keepalive_time_ms", 60_000),  # notices a peer that has gone without a word
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),  # a second broker on the same port is an error
)

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Request = TypeVar("Request", bound=Message)


class Served(Protocol):
    """What a broker serves: a `reticent_client.Phone`."""

    apps: Apps
    mask: MaskRunner | None

    async def wait(self) -> None:
        """Return when it has stopped."""


class Broker:
    """Serves the stream of a phone's mask.

        async with Phone(policy) as phone, Broker(phone, "127.0.0.1:7117") as broker:
            await broker.wait()

    Args:
        phone: The phone.
        address: Where to listen: unix:/path, or host:port (port 0 takes a free one). Only this machine can be spoken to
            in the clear; any other address needs credentials, and so do apps that are trusted unless it is a path.
        credentials: The server's certificate, as `grpc.ssl_server_credentials` makes them.
        streams_per_app: How many streams an app may have at a time.
    """

    def __init__(
        self,
        phone: Served,
        address: str = "127.0.0.1:0",
        *,
        credentials: grpc.ServerCredentials | None = None,
        streams_per_app: int = STREAMS_PER_APP,
    ) -> None:
        if credentials is None and not is_local(address):
            raise ValueError(
                f"{address} can be reached from other machines: give it a certificate, "
                "or listen at 127.0.0.1 or unix:/path"
            )
        self._phone = phone
        self._wanted = address
        self._credentials = credentials
        # Whoever gets hold of a port while the phone is away is sent the tokens of the apps that come back.
        self._private = credentials is not None or address.startswith("unix:")
        self._streams_per_app = streams_per_app
        self._server: grpc.aio.Server | None = None
        self._rates = Rates(RATE)
        self._open: Counter[str] = Counter()  # streams, by app
        self._known: tuple[float, frozenset[App]] = (-1.0, frozenset())
        self.address = address
        """Where it listens: with the port that it got."""

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        if _is_answered(self._wanted):  # gRPC would take the name away from whoever listens there
            raise AddressError(f"cannot listen at {self._wanted}: it is taken")
        server = grpc.aio.server(options=_OPTIONS, compression=grpc.Compression.NoCompression)
        server.add_generic_rpc_handlers((self._handlers(),))
        address = bind(server, self._wanted, self._credentials)
        await server.start()
        self._server, self.address = server, address
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tell everybody that the phone shuts down, and stop listening."""
        if self._phone.mask is not None:
            self._phone.mask.close_streams()
        if self._server is not None:
            await self._server.stop(GRACE)

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return self._open.total()

    async def wait(self) -> None:
        """Return when the phone has stopped."""
        await self._phone.wait()

    def _handlers(self) -> grpc.GenericRpcHandler:
        # Messages are bytes already: written once, whoever and how many read them. Requests still are: they are read
        # when it is known who sent them.
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Subscribe": grpc.unary_stream_rpc_method_handler(cast("Any", self._subscribe)),
                "Current": grpc.unary_unary_rpc_method_handler(cast("Any", self._current)),
            },
        )

    async def _subscribe(self, message: bytes, context: Context) -> None:
        app = await self._caller(context)
        request = await self._understood(phone_pb2.SubscribeRequest(), message, context)
        mask = await self._mask(context)
        if self._open[app.name] >= self._streams_per_app:
            await self._refuse(context, f"{app.name!r} has {self._streams_per_app} streams open already", 1.0)
        self._open[app.name] += 1
        after = request.after if request.HasField("after") else None
        try:
            async with contextlib.aclosing(_stream(mask, app).read(after, since=_granted(mask, app))) as messages:
                await context.send_initial_metadata(())  # the app knows that it will miss nothing from here on
                async for each in messages:
                    if app not in self._apps():
                        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token was taken back")
                    await context.write(each)
        except LeftBehind as error:
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, str(error))
        except Closed as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except (OSError, FileError) as error:
            await self._fail(context, error)
        except grpc.aio.InternalError as error:
            _log.debug("an app was gone before it was told: %s", error)
        finally:
            self._open[app.name] -= 1
            if not self._open[app.name]:
                del self._open[app.name]

    async def _current(self, message: bytes, context: Context) -> bytes:
        app = await self._caller(context)
        await self._understood(phone_pb2.CurrentRequest(), message, context)
        mask = await self._mask(context)
        last = _stream(mask, app).last
        if last is None or last[0] <= _granted(mask, app):
            begins = mask.next_step.instant.isoformat()
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no step has begun yet: the next one does at {begins}")
        return last[1]

    async def _mask(self, context: Context) -> MaskRunner:
        if self._phone.mask is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this phone runs no policy, and has no stream")
        return self._phone.mask

    async def _caller(self, context: Context) -> App:
        """The app that calls, if it may."""
        try:
            app = self._app(context)
        except (OSError, FileError) as error:
            await self._fail(context, error)
        name = None if app is None else app.name
        wait = self._rates.take(name, asyncio.get_running_loop().time())
        if wait:
            await asyncio.sleep(REFUSAL_DELAY)
            await self._refuse(context, "too many calls", wait)
        if app is None:
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED, "a token is needed, in the metadata 'authorization: Bearer TOKEN'"
            )
        if app.trusted and not self._private:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "a trusted app needs unix:/path or TLS")
        return app

    def _app(self, context: Context) -> App | None:
        """The app whose token came with the call."""
        for key, value in context.invocation_metadata() or ():
            if key == "authorization" and isinstance(value, str):
                scheme, _, token = value.partition(" ")
                if scheme.lower() == "bearer":
                    return self._phone.apps.find(token.strip())
        return None

    def _apps(self) -> frozenset[App]:
        """Those that have a token now, at most a second ago."""
        now = asyncio.get_running_loop().time()
        if now - self._known[0] >= 1 or self._known[0] < 0:
            self._known = now, frozenset(self._phone.apps.all())
        return self._known[1]

    async def _understood(self, request: Request, message: bytes, context: Context) -> Request:
        """The request that a message is."""
        try:
            request.ParseFromString(message)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"this is no {request.DESCRIPTOR.name}")
        return request

    async def _fail(self, context: Context, error: Exception) -> NoReturn:
        """Give up for a reason that is the user's to know, and not the app's."""
        _log.error("a call failed: %s", error)
        await context.abort(grpc.StatusCode.INTERNAL, "the phone has a fault of its own")

    async def _refuse(self, context: Context, why: str, wait: float) -> NoReturn:
        context.set_trailing_metadata(((RETRY_AFTER, str(int(wait * 1000) + 1)),))
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)


def _granted(mask: MaskRunner, app: App) -> int:
    """The position up to which an app is sent nothing: what was before it was trusted is not for it."""
    if not app.trusted or app.since is None:
        return -1
    return mask.position_at(dt.datetime.fromisoformat(app.since))


def _stream(mask: MaskRunner, app: App) -> Stream:
    return mask.raw if app.trusted else mask.masked


def _is_answered(address: str) -> bool:
    """Whether somebody listens at a path."""
    if not address.startswith("unix:"):
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address.removeprefix("unix:").removeprefix("//"))
        except OSError:
            return False
    return True
