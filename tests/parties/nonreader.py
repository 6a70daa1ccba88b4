"""Callers that never read replies. They speak HTTP/2 themselves, because gRPC always reads."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from itertools import count
from typing import Self, cast

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
CANCEL = 8  # why a stream is reset
ENDS_STREAM, ENDS_HEADERS, IS_ANSWER = 1, 4, 1
WINDOW = 4  # the setting that says how much of an answer may be sent


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def request(stream: int, path: str, message: bytes, scheme: bytes) -> bytes:
    """A whole call."""
    headers = [
        (b":method", b"POST"),
        (b":scheme", scheme),
        (b":path", path.encode()),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    ]
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in headers)
    content = b"\0" + struct.pack(">I", len(message)) + message
    return frame(HEADERS, ENDS_HEADERS, stream, block) + frame(DATA, ENDS_STREAM, stream, content)


def unverified_tls() -> ssl.SSLContext:
    """TLS with any server, whose certificate is not verified."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


class NonReader:
    """A connection whose calls are served and whose replies are never read."""

    path = "/grpc.health.v1.Health/Check"
    """Of what it calls."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, scheme: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self._scheme = scheme
        self._streams = count(1, 2)
        self._refused = 0
        self._staying = asyncio.create_task(self._stay())

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, address: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Self]:
        """A connection from this address of this machine, whose window has no room for an answer."""
        here = address if ":" in address else "127.0.0.1"
        reader, writer = await asyncio.open_connection(here, port, local_addr=(address, 0), ssl=tls)
        writer.write(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", WINDOW, 0)))
        made = cls(reader, writer, b"http" if tls is None else b"https")
        try:
            yield made
        finally:
            made._staying.cancel()
            writer.transport.abort()

    @classmethod
    @contextlib.asynccontextmanager
    async def stuck(cls, address: str, port: int, message: bytes) -> AsyncIterator[Self]:
        """A connection that reads nothing at all, and asks this, whose answer is larger than what the system keeps."""
        async with cls.connected(address, port) as made:
            made._staying.cancel()
            transport = cast("asyncio.Transport", made._writer.transport)
            transport.pause_reading()
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            much = struct.pack(">I", (1 << 31) - (1 << 17))
            made._writer.write(frame(SETTINGS, 0, 0, struct.pack(">H", WINDOW) + much))
            made._writer.write(frame(WINDOW_UPDATE, 0, 0, much))
            await made.call(message)
            yield made

    async def cancel(self) -> None:
        """Want no answer to the first call any more."""
        self._writer.write(frame(RESET, 0, 1, struct.pack(">I", CANCEL)))
        await self._writer.drain()

    async def was_cut(self) -> bool:
        """Whether the server has ended the connection, which a caller who does not read finds out by writing."""
        self._writer.write(frame(PING, IS_ANSWER, 0, bytes(8)))
        await asyncio.sleep(0.01)
        return self._writer.transport.is_closing()

    async def call(self, message: bytes = b"", times: int = 1) -> None:
        """Ask, whether or not that is answered."""
        for _ in range(times):
            self._writer.write(request(next(self._streams), self.path, message, self._scheme))
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def ended(self) -> None:
        """Return when the server has ended the connection."""
        await asyncio.shield(self._staying)

    @property
    def refused(self) -> int:
        """How many calls were refused: the headers of a refusal end its stream."""
        return self._refused

    @property
    def is_open(self) -> bool:
        return not self._staying.done()

    async def _stay(self) -> None:
        """Do what HTTP/2 asks for, so that the connection stays, and nothing else."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await self._reader.readexactly(9)
                content = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                self._refused += head[3] == HEADERS and bool(head[4] & ENDS_STREAM)
                if head[3] in {SETTINGS, PING} and not head[4] & IS_ANSWER:
                    self._writer.write(frame(head[3], IS_ANSWER, 0, content if head[3] == PING else b""))
