"""The client of the broker, for apps in Python: it blocks, and reconnects."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self, cast

import grpc
from google.protobuf.message import Message

from reticent.protocol import Refused
from reticent.protocol.calls import failure_of
from reticent.protocol.channels import connection_options
from reticent.retry import Attempts, Backoff
from reticent.v1 import phone_pb2
from reticent_client.ads.messages import ShownAd
from reticent_client.apps.broker import SERVICE
from reticent_client.apps.messages import Step
from reticent_client.errors import AppRefused

_DEADLINE = 10.0  # seconds for a reply
_BACKOFF = Backoff(first=0.2, limit=5.0, retry_after_limit=math.inf)

_KEEPALIVE = 30.0  # seconds: detects a phone that disappeared

# A broker answers apps in any language with plain gRPC statuses, which phone.proto lists, and names no `Refusal`. These
# come from gRPC itself, or from a phone that shuts down.
_UNREACHABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}


class Connection:
    """A connection to a phone: iterate over `stream()`, or call `current()`."""

    def __init__(self, channel: grpc.Channel, token: str, *, timeout: float) -> None:
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._timeout = timeout
        self._closed = threading.Event()
        self._subscribe = channel.unary_stream(
            f"/{SERVICE}/Subscribe",
            request_serializer=phone_pb2.SubscribeRequest.SerializeToString,
            response_deserializer=Step.decode,
        )
        self._current = channel.unary_unary(
            f"/{SERVICE}/Current",
            request_serializer=phone_pb2.CurrentRequest.SerializeToString,
            response_deserializer=Step.decode,
        )
        self._report = channel.unary_unary(
            f"/{SERVICE}/Report",
            request_serializer=phone_pb2.ReportRequest.SerializeToString,
            response_deserializer=phone_pb2.ReportReply.FromString,
        )
        self._show_ad = channel.unary_unary(
            f"/{SERVICE}/ShowAd",
            request_serializer=phone_pb2.ShowAdRequest.SerializeToString,
            response_deserializer=phone_pb2.ShowAdReply.FromString,
        )

    def stream(self, after: int | None = None) -> Iterator[Step]:
        """Each step when it begins, until the connection is closed. Steps missed during an outage follow after it.

        Args:
            after: The position of the last step that the app has; by default only new steps follow.

        Raises:
            AppRefused: The token is invalid, the steps after that one are no longer held, or the app has had too many
                streams or calls for longer than the timeout.
            ConnectionError: The phone was unreachable for longer than the timeout.
        """
        attempts = Attempts(_BACKOFF, now=time.monotonic, timeout=self._timeout)
        while not self._closed.is_set():
            call: Any = None
            pause: float | None = _BACKOFF.first
            try:
                if after is None:  # from here on nothing is missed, whatever happens to the line
                    last = self._ask()
                    after = 0 if last is None else last.position
                call = self._subscribe(phone_pb2.SubscribeRequest(after=after), metadata=self._metadata)
                call.initial_metadata()
                if call.is_active():  # the phone has answered
                    attempts.succeeded()
                for step in call:
                    after = step.position
                    yield step
            except (grpc.RpcError, ValueError) as error:
                if self._closed.is_set():
                    return
                if not isinstance(error, grpc.RpcError):
                    raise
                retry_after = _retry_after(error)
                pause = None if retry_after is None else attempts.failed(retry_after)
                if pause is None:
                    raise _error_of(error) from error
            finally:
                if call is not None:
                    call.cancel()
            self._closed.wait(pause)

    def current(self) -> Step | None:
        """The step that began last; None if none has.

        Raises:
            AppRefused: The token is invalid.
            ConnectionError: The phone is unreachable.
        """
        try:
            return self._ask()
        except grpc.RpcError as error:
            raise _error_of(error) from error

    def report(self, counters: Mapping[str, float]) -> None:
        """Report what the app has counted, for private counts that the phone takes part in: all of it is kept, or none.

        Raises:
            AppRefused: The user does not let this app report one of these counters, its number, or so often.
            ConnectionError: The phone is unreachable.
        """
        self._reply(self._report, phone_pb2.ReportRequest(counters=counters))

    def show_ad(self, query: str = "") -> ShownAd | None:
        """An ad for the user's situation; None if none may be shown. The reply takes a fixed time, a second by default.

        Args:
            query: What the user searches for in the app.

        Raises:
            AppRefused: The user does not let this app show ads, or not so often.
            ConnectionError: The phone is unreachable.
        """
        return ShownAd.of(self._reply(self._show_ad, phone_pb2.ShowAdRequest(query=query)))

    def clicked(self, showing: str) -> None:
        """Report a click on an ad, for the user's private log.

        Args:
            showing: The ad's `showing`.

        Raises:
            AppRefused: The token is invalid.
            ConnectionError: The phone is unreachable.
        """
        self._reply(self._report, phone_pb2.ReportRequest(clicked=showing))

    def close(self) -> None:
        """Close the connection, from any thread; streams end."""
        self._closed.set()
        self._channel.close()

    def __enter__(self) -> Self:
        """The connection itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    def _reply(self, method: Any, request: Message) -> Any:
        try:
            return method(request, metadata=self._metadata, timeout=_DEADLINE)
        except grpc.RpcError as error:
            raise _error_of(error) from error

    def _ask(self) -> Step | None:
        try:
            return self._current(phone_pb2.CurrentRequest(), metadata=self._metadata, timeout=_DEADLINE)
        except grpc.RpcError as error:
            if cast("grpc.Call", error).code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise


def _retry_after(error: grpc.RpcError) -> float | None:
    """Seconds after which the same call may succeed; None if it never will."""
    if cast("grpc.Call", error).code() in _UNREACHABLE:
        return 0.0
    failure = failure_of(error)
    return failure.retry_after if isinstance(failure, Refused) and failure.refusal.retry else None


def _error_of(error: grpc.RpcError) -> AppRefused | ConnectionError:
    """A failed call as an app sees it."""
    call = cast("grpc.Call", error)
    if call.code() in _UNREACHABLE:
        return ConnectionError(f"the phone is unreachable: {call.details()}")
    return AppRefused(f"the phone refused: {call.details()}")


def connect(address: str, token: str, *, root_certificates: bytes | None = None, timeout: float = 60.0) -> Connection:
    """Connect an app to a phone.

        for step in connect("127.0.0.1:7117", token).stream():
            print(step.time, step.context)

    Args:
        address: The address of the phone's broker.
        token: The app's token, from the user.
        root_certificates: Root certificates in PEM, if the broker uses TLS.
        timeout: The number of seconds that the phone may be unreachable.
    """
    options = connection_options(_BACKOFF, _KEEPALIVE)
    if root_certificates is None:
        channel = grpc.insecure_channel(address, options)
    else:
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(root_certificates), options)
    return Connection(channel, token, timeout=timeout)
