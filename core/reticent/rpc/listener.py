"""A gRPC server at one address, with the services of one circle of callers, and a health service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic
from types import TracebackType
from typing import Self

import grpc
from grpc_health.v1 import health_pb2

from reticent.address import bound, is_local
from reticent.protocol.refusals import Refusal, Refused
from reticent.rpc.admission import Caller, Door, Handler, Limits, unary
from reticent.rpc.connections import CONNECTIONS, Watcher

__all__ = ["Listener"]

_log = logging.getLogger(__name__)

OVERSIZED_MARGIN = 64 << 10
"""Bytes by which a message may exceed its limit and still be refused by name. gRPC ends the call of a larger one with
a bare status. As many bytes more may each call that is inside make a server hold."""

GRACE = 5.0
"""Seconds that calls have to end when a server stops."""

_LAST_MOMENT = 0.05
"""Seconds for those that were cut off to notice, before what they use is closed."""

HEALTH = "grpc.health.v1.Health"
"""The service by which others ask whether a service is there: one call for each question, none that stay."""

AS_MANY = 8
"""As many calls as may be inside does gRPC hold at a time. It holds those, too, whose answers are not taken."""

HEALTH_IN_FLIGHT = 64
"""Questions for it at a time: they need no room that the services' calls could have."""

HEALTH_BYTES = 1024
"""The size of a question, which is the name of a service."""

IDLE = 30.0
"""Seconds after which a connection without a call is closed; whoever has one opens another when there is a call."""

LOOK = 1.0
"""Seconds between two looks at who has how many connections, at least."""

_SHARE_OF_LOOKS = 4
"""As many times as long as a look took is the time until the next one, at least."""

ROOM = 8
"""One of so many connections is left to newcomers, between two looks."""

_OWN_FILES = 128
"""Open files that a process needs for itself."""

_LISTENERS = 2
"""Of a process: neither may take the files that the other needs."""

PENDING = 4096
"""Calls that wait until somebody looks at them."""

Methods = Mapping[str, Handler]


class Listener:
    """Serves some services at an address, for as long as it is entered.

    Args:
        address: host:port, where port 0 takes a free one.
        services: Each one's methods, by its full name.
        credentials: The server's; only this machine can be spoken to in the clear.
        limits: What its doors stand.
    """

    def __init__(
        self,
        address: str,
        services: Mapping[str, Methods],
        *,
        credentials: grpc.ServerCredentials | None,
        limits: Limits | None = None,
    ) -> None:
        if credentials is None and not is_local(address):
            raise ValueError(f"{address} can be reached from other machines: it needs certificates")
        self._wanted = address
        self._services = services
        self._credentials = credentials
        self._limits = limits or Limits()
        self._server: grpc.aio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self.address = address
        """Where it listens: with the port that it got."""

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        limits = self._limits
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", limits.message_bytes + OVERSIZED_MARGIN),
                ("grpc.max_metadata_size", 8192),
                ("grpc.http2.bdp_probe", 0),  # or what a connection may send ahead grows with the callers' speed
                ("grpc.server_handshake_timeout_ms", 10_000),
                ("grpc.max_concurrent_streams", limits.in_flight),
                ("grpc.max_connection_idle_ms", int(1000 * IDLE)),
                ("grpc.max_allowed_incoming_connections", _connections(limits)),
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
                # Or gRPC lets go of calls without a word, of which the door would have said that they are to come back.
                ("grpc.server.max_pending_requests", PENDING),
                ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING),
                ("grpc.so_reuseport", 0),  # a second server at the same port is an error
            ),
            compression=grpc.Compression.NoCompression,
            maximum_concurrent_rpcs=AS_MANY * limits.in_flight,
        )
        for name, methods in {**self._services, HEALTH: {"Check": self._health()}}.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, dict(methods)),))
        address = bound(server, self._wanted, self._credentials)
        await server.start()
        self._server, self.address = server, address
        if not address.startswith("unix"):
            self._watching = asyncio.create_task(self._watch(int(address.rpartition(":")[2])))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening; calls that are inside may end."""
        if self._server is not None:
            _log.info("no more calls at %s", self.address)
            await self._server.stop(GRACE)
            await asyncio.sleep(_LAST_MOMENT)
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching

    async def _watch(self, port: int) -> None:
        """Keep the connections within their limits, for ever."""
        most = _connections(self._limits)
        watcher = Watcher(port, most - most // ROOM, self._limits.connections_of_one, CONNECTIONS)
        pause = LOOK
        while True:
            await asyncio.sleep(pause)
            began = monotonic()
            await asyncio.to_thread(watcher.look)
            pause = max(LOOK, _SHARE_OF_LOOKS * (monotonic() - began))

    def _health(self) -> Handler:
        async def check(request: health_pb2.HealthCheckRequest, _: Caller) -> health_pb2.HealthCheckResponse:
            if request.service not in {"", HEALTH, *self._services}:
                raise Refused(Refusal.UNAVAILABLE, "there is no such service here")
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

        limits = replace(self._limits, in_flight=min(HEALTH_IN_FLIGHT, self._limits.in_flight))
        return unary(Door(limits=limits), health_pb2.HealthCheckRequest, check, message_bytes=HEALTH_BYTES)


def _connections(limits: Limits) -> int:
    """How many a listener takes: the next one is closed at once, rather than that nobody is served."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return limits.connections
    return min(limits.connections, max(1, (files - _OWN_FILES) // _LISTENERS))
