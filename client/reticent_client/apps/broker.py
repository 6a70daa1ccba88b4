"""The gRPC service for apps in any language, with the releases of a phone: protos/reticent/v1/phone.proto."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import socket
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message

from reticent.address import AddressError, bind, is_local
from reticent.clock import Clock
from reticent.protocol.calls import RETRY_AFTER
from reticent.rpc import RateLimit, RateLimits
from reticent.v1 import phone_pb2
from reticent_client.ads.messages import MAX_QUERY, ShownAd, encode_shown
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.apps.stream import Stream
from reticent_client.apps.tokens import App, Apps
from reticent_client.errors import (
    AdsNotAllowed,
    Closed,
    CounterNotAllowed,
    CounterOutOfBounds,
    FileError,
    LeftBehind,
    TooManyReports,
)

SERVICE = "reticent.v1.Phone"

STREAMS_PER_APP = 8
ADS_PER_APP = 8
"""Simultaneous requests of an app for ads: all are decided in the last moments before their replies leave, in time."""
RATE = RateLimit(per_second=20.0, burst=100.0)
"""Calls of an app. All callers without a token share one such rate."""
REFUSAL_DELAY = 0.25
"""Seconds before a call above the rate is refused: this slows down a caller that retries at once."""
APPS_READ_EVERY = 1.0
"""Seconds after which a stream reads again which apps have a token."""
GRACE = 2.0
"""Seconds that calls have to end when the broker stops."""

ANONYMOUS_CALL = "a token is needed, in the metadata 'authorization: Bearer TOKEN'"
UNKNOWN_CALLER = "no app has this token: it is mistyped, of another phone, or was revoked"

_OPTIONS = (
    ("grpc.max_receive_message_length", 4096),
    ("grpc.max_metadata_size", 8192),
    ("grpc.max_concurrent_streams", 128),  # per connection
    ("grpc.max_connection_idle_ms", 300_000),  # without a call; each connection keeps a file open
    ("grpc.keepalive_time_ms", 60_000),  # detects a dead peer
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),  # a second broker on the same port is an error
)

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Request = TypeVar("Request", bound=Message)


class Served(Protocol):
    """The interface that a broker serves: a `reticent_client.Phone`."""

    apps: Apps
    clock: Clock
    mask: MaskRunner | None

    async def wait(self) -> None:
        """Return when it has stopped."""

    def report(self, app: str, counters: Mapping[str, float]) -> None:
        """Keep what an app has counted; raises `AppRefused` where the user does not allow it."""

    async def show_ad(self, app: str, query: str, arrived: dt.datetime) -> ShownAd | None:
        """The ad for an app's request, a fixed time after it; raises `AppRefused` where the user does not allow it."""

    def clicked(self, app: str, showing: str) -> None:
        """Note a click on an ad that an app has shown."""


class Broker:
    """Serves the stream of a phone's mask.

        async with Phone(policy) as phone, Broker(phone, "127.0.0.1:7117") as broker:
            await broker.wait()

    Args:
        phone: The phone.
        address: The address to listen at: unix:/path, or host:port (port 0 takes a free one). An address that other
            machines can reach needs credentials. So do trusted apps, unless the address is a path.
        credentials: The server's certificate, as `grpc.ssl_server_credentials` makes them.
        streams_per_app: The most open streams of an app.
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
        self._requested_address = address
        self._credentials = credentials
        # A program that takes the port while the phone is away receives the tokens of reconnecting apps.
        self._private = credentials is not None or address.startswith("unix:")
        self._streams_per_app = streams_per_app
        self._server: grpc.aio.Server | None = None
        self._rates = RateLimits(RATE)
        self._open: Counter[str] = Counter()  # streams, by app
        self._choosing: Counter[str] = Counter()  # requests for ads, by app
        self._apps_read: tuple[float, frozenset[App]] = (-1.0, frozenset())
        self.address = address
        """The address that it listens at, with the actual port."""

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        if _is_taken(self._requested_address):  # gRPC would take the path from the present listener
            raise AddressError(f"cannot listen at {self._requested_address}: it is taken")
        server = grpc.aio.server(options=_OPTIONS, compression=grpc.Compression.NoCompression)
        server.add_generic_rpc_handlers((self._handlers(),))
        address = bind(server, self._requested_address, self._credentials)
        await server.start()
        self._server, self.address = server, address
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all streams and stop listening."""
        if self._phone.mask is not None:
            self._phone.mask.close_streams()
        if self._server is not None:
            await self._server.stop(GRACE)

    @property
    def streams(self) -> int:
        """The number of open streams."""
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
                "Report": grpc.unary_unary_rpc_method_handler(cast("Any", self._report)),
                "ShowAd": grpc.unary_unary_rpc_method_handler(cast("Any", self._show_ad)),
            },
        )

    async def _subscribe(self, message: bytes, context: Context) -> None:
        app = await self._caller(context)
        request = await self._parsed(phone_pb2.SubscribeRequest(), message, context)
        mask = await self._mask(context)
        if self._open[app.name] >= self._streams_per_app:
            await self._refuse(context, f"{app.name!r} has {self._streams_per_app} streams open already", 1.0)
        self._open[app.name] += 1
        after = request.after if request.HasField("after") else None
        try:
            async with contextlib.aclosing(_stream(mask, app).read(after, since=_granted(mask, app))) as messages:
                await context.send_initial_metadata(())  # from here on the app misses nothing
                async for each in messages:
                    if app not in self._apps():
                        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token was revoked")
                    await context.write(each)
        except LeftBehind as error:
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, str(error))
        except Closed as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except (OSError, FileError) as error:
            await self._fail(context, error)
        except grpc.aio.InternalError as error:
            _log.debug("an app disconnected before the error was sent: %s", error)
        finally:
            self._open[app.name] -= 1
            if not self._open[app.name]:
                del self._open[app.name]

    async def _current(self, message: bytes, context: Context) -> bytes:
        app = await self._caller(context)
        await self._parsed(phone_pb2.CurrentRequest(), message, context)
        mask = await self._mask(context)
        last = _stream(mask, app).last
        if last is None or last[0] <= _granted(mask, app):
            begins = mask.next_step.instant.isoformat()
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no step has begun yet: the next one does at {begins}")
        return last[1]

    async def _report(self, message: bytes, context: Context) -> bytes:
        app = await self._caller(context)
        request = await self._parsed(phone_pb2.ReportRequest(), message, context)
        is_click = request.HasField("clicked")
        try:
            if request.counters or not is_click:
                await asyncio.to_thread(self._phone.report, app.name, dict(request.counters))
            if is_click:
                await asyncio.to_thread(self._phone.clicked, app.name, request.clicked)
        except CounterNotAllowed as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except CounterOutOfBounds as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except TooManyReports as error:
            await self._refuse(context, str(error), error.retry_after.total_seconds())
        except (OSError, FileError) as error:
            await self._fail(context, error)
        return phone_pb2.ReportReply().SerializeToString()

    async def _show_ad(self, message: bytes, context: Context) -> bytes:
        arrived = self._phone.clock.now()
        app = await self._caller(context)
        request = await self._parsed(phone_pb2.ShowAdRequest(), message, context)
        if len(request.query.encode()) > MAX_QUERY:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"a query has at most {MAX_QUERY} bytes")
        if self._choosing[app.name] >= ADS_PER_APP:
            await self._refuse(context, f"{app.name!r} waits for {ADS_PER_APP} ads already", 1.0)
        self._choosing[app.name] += 1
        try:
            return encode_shown(await self._phone.show_ad(app.name, request.query, arrived))
        except AdsNotAllowed as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except (OSError, FileError) as error:
            await self._fail(context, error)
        finally:
            self._choosing[app.name] -= 1

    async def _mask(self, context: Context) -> MaskRunner:
        if self._phone.mask is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this phone runs no policy, and has no stream")
        return self._phone.mask

    async def _caller(self, context: Context) -> App:
        """The authenticated app of a call; others are refused."""
        token = _token(context)
        try:
            app = None if token is None else self._phone.apps.find(token)
        except (OSError, FileError) as error:
            await self._fail(context, error)
        name = None if app is None else app.name
        wait = self._rates.take(name, asyncio.get_running_loop().time())
        if wait:
            await asyncio.sleep(REFUSAL_DELAY)
            await self._refuse(context, "too many calls", wait)
        if app is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, ANONYMOUS_CALL if token is None else UNKNOWN_CALLER)
        if app.trusted and not self._private:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "a trusted app needs unix:/path or TLS")
        return app

    def _apps(self) -> frozenset[App]:
        """The apps with a token, as they were read at most `APPS_READ_EVERY` ago."""
        now = asyncio.get_running_loop().time()
        if now - self._apps_read[0] >= APPS_READ_EVERY or self._apps_read[0] < 0:
            self._apps_read = now, frozenset(self._phone.apps.all())
        return self._apps_read[1]

    async def _parsed(self, request: Request, message: bytes, context: Context) -> Request:
        """The request in a message."""
        try:
            request.ParseFromString(message)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"this is no {request.DESCRIPTOR.name}")
        return request

    async def _fail(self, context: Context, error: Exception) -> NoReturn:
        """Fail the call, and log a cause that the app must not see."""
        _log.error("a call failed: %s", error)
        await context.abort(grpc.StatusCode.INTERNAL, "the phone has a fault of its own")

    async def _refuse(self, context: Context, why: str, wait: float) -> NoReturn:
        context.set_trailing_metadata(((RETRY_AFTER, str(int(wait * 1000) + 1)),))
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)


def _token(context: Context) -> str | None:
    """The token of a call."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            if scheme.lower() == "bearer":
                return token.strip() or None
    return None


def _granted(mask: MaskRunner, app: App) -> int:
    """The position up to which an app is sent nothing: what was before it was trusted is not for it."""
    if not app.trusted or app.since is None:
        return -1
    return mask.position_at(dt.datetime.fromisoformat(app.since))


def _stream(mask: MaskRunner, app: App) -> Stream:
    return mask.raw if app.trusted else mask.masked


def _is_taken(address: str) -> bool:
    """Whether a program listens at a path."""
    if not address.startswith("unix:"):
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address.removeprefix("unix:").removeprefix("//"))
        except OSError:
            return False
    return True
