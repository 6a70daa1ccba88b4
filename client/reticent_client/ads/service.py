"""The calls of a phone to the ad service: anonymous, over one channel, all requests of one size."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from reticent.protocol.calls import reply_of
from reticent.protocol.channels import AD_SERVICE, channel, channel_credentials
from reticent_client.shared import SharedObjects

__all__ = ["AdService"]

SELECT = "/reticent.v1.Ads/Select"
DEADLINE = 30.0
"""Seconds for a reply. The phone measures them: gRPC would send them to the service, as a header of varying length."""
CONCURRENT_CALLS = 8
"""Calls at a time over a channel that phones share."""


class _AdChannel:
    """The channel to an ad service, for all phones of an event loop that use it."""

    def __init__(self, address: str, authority: bytes | None) -> None:
        credentials = None if authority is None else channel_credentials(authority)
        self.channel = channel(address, credentials, AD_SERVICE)
        self.select: Any = self.channel.unary_unary(SELECT)
        self.calls = asyncio.Semaphore(CONCURRENT_CALLS)

    async def close(self) -> None:
        await self.channel.close()


_shared: SharedObjects[_AdChannel] = SharedObjects()


class AdService:
    """The ad service, while it is entered. Phones of one event loop share a channel to it.

    Args:
        address: Its address.
        authority: The certificate of the authority that certifies it, in PEM; None for a service without TLS on this
            machine.
    """

    def __init__(self, address: str, authority: bytes | None) -> None:
        self.address = address
        self.is_encrypted = authority is not None
        self._authority = authority
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """The connection is made with the first request."""
        name = self.address, self._authority
        self._shared = await self._open.enter_async_context(_shared.use(name, lambda: _AdChannel(*name)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up, where no other phone needs the channel."""
        await self._open.__aexit__(kind, error, trace)

    async def wait(self) -> None:
        """Return when the service can be reached."""
        await self._shared.channel.channel_ready()

    async def select(self, request: bytes) -> bytes:
        """The reply to a request.

        Raises:
            Refused: The service refuses it.
            Unreachable: No reply came.
            TimeoutError: None came in time.
        """
        async with self._shared.calls, asyncio.timeout(DEADLINE):  # the wait for other phones does not count
            return await reply_of(self._shared.select(request))
