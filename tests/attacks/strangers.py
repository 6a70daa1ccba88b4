"""Strangers at a server's listeners, beside an honest caller of the same address: is that one still answered?"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator

import grpc
from grpc_health.v1 import health_pb2

from tests.attacks.deaf import Deaf, careless
from tests.attacks.target import Finding

__all__ = ["MAX_WAIT", "hold_connections", "take_no_answers"]

MAX_WAIT = 5.0
"""Seconds after which an honest caller counts as kept out."""
ATTACKER = "127.0.0.1"
"""The address of both: as behind a NAT."""


class Honest:
    """A caller that asks ten times a second, each time on a connection of its own.

    Args:
        address: Of the listener.
        credentials: What it shows.
    """

    def __init__(self, address: str, credentials: grpc.ChannelCredentials) -> None:
        self._address = address
        self._credentials = credentials
        self.longest = 0.0
        """Seconds until the slowest answer."""
        self.answers = 0

    @contextlib.asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        calls = asyncio.create_task(self._call())
        try:
            yield
            await self._once()
        finally:
            calls.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await calls

    async def _call(self) -> None:
        while True:
            await self._once()
            await asyncio.sleep(0.1)

    async def _once(self) -> None:
        began = time.monotonic()
        while True:
            options = (("grpc.use_local_subchannel_pool", 1),)
            async with grpc.aio.secure_channel(self._address, self._credentials, options=options) as channel:
                check = channel.unary_unary(
                    "/grpc.health.v1.Health/Check",
                    request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                    response_deserializer=health_pb2.HealthCheckResponse.FromString,
                )
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await check(health_pb2.HealthCheckRequest(), timeout=MAX_WAIT)
                    break
            if time.monotonic() - began > 2 * MAX_WAIT:
                break
        self.longest = max(self.longest, time.monotonic() - began)
        self.answers += 1


async def take_no_answers(
    address: str,
    credentials: grpc.ChannelCredentials,
    *,
    path: str = Deaf.path,
    message: bytes = b"",
    calls: int = 600,
    times: int = 3,
    pause: float = 2.0,
) -> Finding:
    """Make many calls on one connection, take no answer, and come again: an honest caller is to be kept out.

    Args:
        address: Of a listener that asks for no certificate.
        credentials: Of the honest caller.
        path: The method.
        message: What is asked.
        calls: On one connection.
        times: How often a connection is opened.
        pause: Seconds for which each one stays.
    """
    port, honest = int(address.rpartition(":")[2]), Honest(address, credentials)

    class Attacker(Deaf):
        pass

    Attacker.path = path
    async with honest.calling():
        for _ in range(times):
            async with Attacker.connected(ATTACKER, port, careless()) as deaf:
                await deaf.call(message, calls)
                await asyncio.sleep(pause)
    return _found("answers not taken", honest, f"{times} times {calls} calls")


async def hold_connections(
    address: str, credentials: grpc.ChannelCredentials, *, count: int = 2000, seconds: float = 5.0
) -> Finding:
    """Open many connections that say nothing, and keep them: an honest caller is to find no place.

    Args:
        address: Of a listener.
        credentials: Of the honest caller.
        count: Connections.
        seconds: For which they are held.
    """
    port, honest = int(address.rpartition(":")[2]), Honest(address, credentials)
    async with honest.calling():
        held: list[socket.socket] = []
        try:
            for number in range(count):
                one = socket.socket()
                one.setblocking(False)
                held.append(one)
                with contextlib.suppress(OSError):
                    await asyncio.wait_for(asyncio.get_running_loop().sock_connect(one, (ATTACKER, port)), MAX_WAIT)
                if number % 100 == 0:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(seconds)
        finally:
            for one in held:
                one.close()
    return _found("connections", honest, f"{count} connections")


def _found(attack: str, honest: Honest, what: str) -> Finding:
    sentence = f"{what}; of {honest.answers} honest calls the slowest took {honest.longest:.2f} s"
    return Finding(attack, honest.longest > MAX_WAIT, sentence)
