"""Callers at other addresses of this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc

from reticent.rpc.listener import Listener
from tests.core.rpc.services import Calls, calling_at


@contextlib.asynccontextmanager
async def calling_from(address: str, listener: Listener, credentials: grpc.ChannelCredentials) -> AsyncIterator[Calls]:
    """The calls of one that comes from an address like 127.0.0.2: all of them are this machine's, on Linux.

    gRPC does not let its callers choose theirs; so what they send passes through somebody who can.
    """
    port = int(listener.address.rpartition(":")[2])

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        with contextlib.suppress(OSError):
            await asyncio.gather(_copied(reader, back), _copied(there, writer))

    forwarder = await asyncio.start_server(forward, "127.0.0.1", 0)
    own = forwarder.sockets[0].getsockname()[1]
    try:
        async with calling_at(f"localhost:{own}", credentials) as calls:
            yield calls
    finally:
        forwarder.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on all that comes."""
    try:
        while content := await reader.read(1 << 16):
            writer.write(content)
            await writer.drain()
    finally:
        writer.close()
