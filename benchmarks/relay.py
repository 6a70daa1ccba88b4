"""A relay before a server, which counts the bytes of both directions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

__all__ = ["Relay", "relay"]

CHUNK = 1 << 16


@dataclass
class Relay:
    """The address of a relay, and the bytes that its callers have sent and received."""

    address: str = ""
    sent: int = 0
    received: int = 0


@contextlib.asynccontextmanager
async def relay(address: str) -> AsyncIterator[Relay]:
    """Relay connections to this address."""
    found = Relay()
    host, _, port = address.rpartition(":")

    def sent(size: int) -> None:
        found.sent += size

    def received(size: int) -> None:
        found.received += size

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        with contextlib.suppress(asyncio.CancelledError):  # the relay ends before its callers
            await asyncio.gather(_copied(reader, back, sent), _copied(there, writer, received))

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        found.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield found


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[int], None]) -> None:
    with contextlib.suppress(ConnectionError):
        while content := await reader.read(CHUNK):
            note(len(content))
            writer.write(content)
            await writer.drain()
    with contextlib.suppress(ConnectionError):
        writer.close()
        await writer.wait_closed()
