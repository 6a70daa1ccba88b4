"""An endpoint of a server: its address, and channels to it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2

from reticent.protocol.channels import connection_options
from reticent.retry import Backoff

__all__ = ["Endpoint"]

_CONNECT_TIMEOUT, _CHECK_TIMEOUT = 1.0, 5.0  # seconds
_OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    *connection_options(Backoff(first=0.05, limit=0.2)),  # servers restart
)


@dataclass
class Endpoint:
    """The address at which a server serves one kind of callers.

    Args:
        address: On this machine.
        credentials: Returns those of its usual caller.
    """

    address: str
    credentials: Callable[[], grpc.ChannelCredentials]

    def channel(self, credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
        """A new connection for asyncio, of the usual caller or another one; it reconnects soon after a restart."""
        return grpc.aio.secure_channel(self.address, credentials or self.credentials(), options=_OPTIONS)

    def blocking_channel(self, credentials: grpc.ChannelCredentials | None = None) -> grpc.Channel:
        """The same for blocking calls."""
        return grpc.secure_channel(self.address, credentials or self.credentials(), options=_OPTIONS)

    def is_serving(self, timeout: float) -> bool:
        """Whether the server's health service replies in time that it serves."""
        if not self._accepts_connections():
            return False  # without this look, the channel would wait before it reconnects
        with self.blocking_channel() as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            try:
                reply = check(health_pb2.HealthCheckRequest(), timeout=min(_CHECK_TIMEOUT, timeout))
            except grpc.RpcError:
                return False
        return reply.status == health_pb2.HealthCheckResponse.SERVING

    def _accepts_connections(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT):
                return True
        except OSError:
            return False
