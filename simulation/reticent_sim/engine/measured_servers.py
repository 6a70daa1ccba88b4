"""The calls of phones to the servers and to the ad service, with their number and bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from reticent.protocol.invitation import Invitation
from reticent_client.ads.service import AdService
from reticent_client.counting.servers import Servers

__all__ = ["MeasuredAdService", "MeasuredServers", "Traffic"]

Reply = TypeVar("Reply")


@dataclass
class Traffic:
    """The calls so far."""

    calls: int = 0
    sent: int = 0
    """Bytes of requests."""
    received: int = 0
    """Bytes of replies."""


class MeasuredServers(Servers):
    """Both servers; what is sent to them is added up.

    Args:
        invitation: Says where they are.
        traffic: Where it is added up.
    """

    def __init__(self, invitation: Invitation, *, traffic: Traffic) -> None:
        super().__init__(invitation)
        self._traffic = traffic

    async def _reply(self, method: Callable[..., Awaitable[Reply]], request: Message) -> Reply:
        self._traffic.calls += 1
        self._traffic.sent += request.ByteSize()
        reply = await super()._reply(method, request)
        self._traffic.received += reply.ByteSize() if isinstance(reply, Message) else 0
        return reply


class MeasuredAdService(AdService):
    """The ad service; what is sent to it is added up.

    Args:
        address: Its address.
        authority: The certificate of the authority that certifies it.
        traffic: Where it is added up.
    """

    def __init__(self, address: str, authority: bytes | None, *, traffic: Traffic) -> None:
        super().__init__(address, authority)
        self._traffic = traffic

    async def select(self, request: bytes) -> bytes:
        """The reply to a request."""
        self._traffic.calls += 1
        self._traffic.sent += len(request)
        reply = await super().select(request)
        self._traffic.received += len(reply)
        return reply
