"""An honest caller of a service under attack, from an address of its own choice: how long does it wait for a reply?"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc

from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import reply_of
from tests.attacks.target import Finding
from tests.parties.forwarder import forwarder

__all__ = ["MAX_WAIT", "Honest", "Service"]

MAX_WAIT = 5.0
"""Seconds after which an honest caller counts as kept out."""
PAUSE = 0.1
"""Seconds between its calls."""


@dataclass(frozen=True)
class Service:
    """A service under attack, and a call that its honest callers make.

    Args:
        address: Of its listener.
        credentials: Of the honest caller.
        method: Of the service itself: the health service has limits of its own.
        message: The request.
    """

    address: str
    credentials: grpc.ChannelCredentials
    method: str
    message: bytes = b""

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


class Honest:
    """A caller that calls ten times a second, each time on a new connection, and retries until it has a reply.

    A refusal that only this request deserves is a reply. BUSY is none, and neither is a dropped call or connection.

    Args:
        service: What it calls.
        source: The address that it calls from.
    """

    def __init__(self, service: Service, source: str) -> None:
        self._service = service
        self._source = source
        self.longest = 0.0
        """Seconds until the slowest reply."""
        self.replies = 0
        self.failures = 0
        """Calls that were refused as BUSY, dropped, or not answered in time."""

    @property
    def is_kept_out(self) -> bool:
        """Whether it once waited too long, or more of its calls failed than not."""
        return self.longest > MAX_WAIT or self.failures > self.replies

    def finding(self, attack: str, what: str) -> Finding:
        """Whether the attack has kept it out."""
        sentence = (
            f"{what}; an honest caller at {self._source} got {self.replies} replies, the slowest after "
            f"{self.longest:.2f} s, and {self.failures} of its calls failed"
        )
        return Finding(attack, self.is_kept_out, sentence)

    @contextlib.asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        """Call inside this block."""
        async with forwarder(self._source, self._service.port) as address:
            calls = asyncio.create_task(self._call(address))
            began = time.monotonic()
            try:
                yield
                await self._reply(address)
            finally:
                calls.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await calls
        assert self.replies or self.failures, f"no call in {time.monotonic() - began:.1f} s"

    async def _call(self, address: str) -> None:
        while True:
            await self._reply(address)
            await asyncio.sleep(PAUSE)

    async def _reply(self, address: str) -> None:
        """Call until there is a reply, or the caller is kept out."""
        began = time.monotonic()
        while not (is_served := await self._is_served(address)) and time.monotonic() - began < 2 * MAX_WAIT:
            self.failures += 1
            await asyncio.sleep(PAUSE)
        self.replies += is_served
        self.longest = max(self.longest, time.monotonic() - began)

    async def _is_served(self, address: str) -> bool:
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
        async with grpc.aio.secure_channel(address, self._service.credentials, options=options) as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(self._service.method)
            try:
                await reply_of(call(self._service.message, timeout=MAX_WAIT))
            except Refused as refused:
                return refused.refusal is not Refusal.BUSY
            except Unreachable as error:
                if "UNIMPLEMENTED" in str(error):
                    raise
                return False
        return True
