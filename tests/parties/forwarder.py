"""Connections from other addresses of this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def forwarder(source: str, port: int) -> AsyncIterator[str]:
    """The address of a forwarder to this port, which calls from an address like 127.0.0.2: Linux has all of them.

    gRPC's callers cannot choose their address.
    """

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            there, back = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            with contextlib.closing(back):
                await asyncio.gather(_copy(reader, back), _copy(there, writer))

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    try:
        yield f"localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on all that arrives."""
    try:
        while content := await reader.read(1 << 16):
            writer.write(content)
            await writer.drain()
    finally:
        writer.close()
