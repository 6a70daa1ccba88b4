"""The calls of a phone to the ad service: anonymous, over one channel, all requests of one size."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from reticent.protocol.calls import reply_of
from reticent.protocol.channels import AD_SERVICE, channel, channel_credentials

__all__ = ["AdService"]

SELECT = "/reticent.v1.Ads/Select"
DEADLINE = 30.0
"""Seconds for a reply. The phone measures them: gRPC would send them to the service, as a header of varying length."""


class AdService:
    """The ad service, while it is entered.

    Args:
        address: Its address.
        authority: The certificate of the authority that certifies it, in PEM; None for a service without TLS on this
            machine.
    """

    def __init__(self, address: str, authority: bytes | None) -> None:
        self.address = address
        self.is_encrypted = authority is not None
        self._credentials = None if authority is None else channel_credentials(authority)

    async def __aenter__(self) -> Self:
        """The connection is made with the first request."""
        self._channel = channel(self.address, self._credentials, AD_SERVICE)
        self._select: Any = self._channel.unary_unary(SELECT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        await self._channel.close()

    async def select(self, request: bytes) -> bytes:
        """The reply to a request.

        Raises:
            Refused: The service refuses it.
            Unreachable: No reply came.
            TimeoutError: None came in time.
        """
        async with asyncio.timeout(DEADLINE):
            return await reply_of(self._select(request))
