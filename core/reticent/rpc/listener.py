"""A gRPC server at one address, with services for one group of callers and a health service."""

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

from reticent.address import bind, is_local
from reticent.protocol import Refusal, Refused
from reticent.rpc._connections import CONNECTIONS, ConnectionLimits
from reticent.rpc.admission import Admission, Caller, Handler, Limits, unary

__all__ = ["Listener"]

_log = logging.getLogger(__name__)

OVERSIZED_MARGIN = 64 << 10
"""Bytes by which a message may exceed its limit and still be refused by name. gRPC ends the call of a larger one with
a bare status. Each admitted call may use this much more memory."""

GRACE = 5.0
"""Seconds that calls have to end when a server stops."""

_LAST_MOMENT = 0.05
"""Seconds for cancelled calls to end before their resources are closed."""

HEALTH = "grpc.health.v1.Health"
"""The health service: one call for each check, no streams."""

HELD_PER_ADMITTED = 8
"""Calls that gRPC may hold for each call that may be admitted. It also holds calls whose replies are unread."""

HEALTH_IN_FLIGHT = 64
"""Concurrent health checks: they take no room from the services' calls."""

HEALTH_BYTES = 1024
"""Size of a health check, which names a service."""

IDLE = 30.0
"""Seconds after which an idle connection is closed; gRPC reopens it for the next call."""

CHECK_INTERVAL = 1.0
"""Least number of seconds between two checks of the connections per network."""

_CHECK_SHARE = 4
"""The pause after a check, at least, in multiples of its duration."""

ROOM = 8
"""One in this many connections is left for new connections between two checks."""

_OWN_FILES = 128
"""Open files that a process needs for itself."""

_LISTENERS = 2
"""Listeners of a process: neither may take the files that the other needs."""

PENDING = 4096
"""Calls of all callers that may wait for admission. gRPC drops more, with the status CANCELLED: so each connection's
calls are limited."""

Methods = Mapping[str, Handler]


class Listener:
    """Serves some services at an address inside a `with` block.

    Args:
        address: host:port; port 0 takes a free one.
        services: Methods by the full name of their service.
        credentials: The server's; without them the address must be local.
        limits: Of the services at this address.
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
        self._limiting: asyncio.Task[None] | None = None
        self.address = address
        """The address, with its actual port."""

    async def __aenter__(self) -> Self:
        """Start listening."""
        limits = self._limits
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", limits.message_bytes + OVERSIZED_MARGIN),
                ("grpc.max_metadata_size", 8192),
                ("grpc.http2.bdp_probe", 0),  # else the window of a connection grows with the callers' speed
                ("grpc.server_handshake_timeout_ms", 10_000),
                ("grpc.max_concurrent_streams", min(limits.in_flight, limits.in_flight_per_connection)),
                ("grpc.max_connection_idle_ms", int(1000 * IDLE)),
                ("grpc.max_allowed_incoming_connections", _connections(limits)),
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
                # Or gRPC drops calls without a status, which admission would have refused with a retry delay.
                ("grpc.server.max_pending_requests", PENDING),
                ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING),
                ("grpc.so_reuseport", 0),  # a second server at the same port is an error
            ),
            compression=grpc.Compression.NoCompression,
            maximum_concurrent_rpcs=HELD_PER_ADMITTED * limits.in_flight,
        )
        address = bind(server, self._wanted, self._credentials)
        port = 0 if address.startswith("unix") else int(address.rpartition(":")[2])
        for name, methods in {**self._services, HEALTH: {"Check": self._health()}}.items():
            handlers = {method: handler(port) for method, handler in methods.items()}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        await server.start()
        self._server, self.address = server, address
        if port:
            self._limiting = asyncio.create_task(self._limit_connections(port))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening; admitted calls may finish."""
        if self._server is not None:
            _log.info("stopped listening at %s", self.address)
            await self._server.stop(GRACE)
            await asyncio.sleep(_LAST_MOMENT)
        if self._limiting is not None:
            self._limiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._limiting

    async def _limit_connections(self, port: int) -> None:
        """Keep the connections within their limits."""
        total = _connections(self._limits)
        limits = ConnectionLimits(port, total - total // ROOM, self._limits.connections_per_network, CONNECTIONS)
        pause = CHECK_INTERVAL
        while True:
            await asyncio.sleep(pause)
            started = monotonic()
            try:
                await asyncio.to_thread(limits.enforce)
            except OSError as error:
                _log.warning("connections cannot be limited now: %s", error)
            pause = max(CHECK_INTERVAL, _CHECK_SHARE * (monotonic() - started))

    def _health(self) -> Handler:
        async def check(request: health_pb2.HealthCheckRequest, _: Caller) -> health_pb2.HealthCheckResponse:
            if request.service not in {"", HEALTH, *self._services}:
                raise Refused(Refusal.UNAVAILABLE, "there is no such service here")
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

        limits = replace(self._limits, in_flight=min(HEALTH_IN_FLIGHT, self._limits.in_flight))
        return unary(Admission(limits=limits), health_pb2.HealthCheckRequest, check, message_bytes=HEALTH_BYTES)


def _connections(limits: Limits) -> int:
    """Connections that a listener accepts; it closes the next one at once."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return limits.connections
    return min(limits.connections, max(1, (files - _OWN_FILES) // _LISTENERS))
