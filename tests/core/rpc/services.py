"""A small echo service, and its certificates."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import grpc

from reticent.protocol import Refusal, Refused
from reticent.protocol.channels import channel
from reticent.rpc import Admission, Caller, Limits, stream_in, stream_out, unary
from reticent.rpc.admission import Handler
from reticent.rpc.listener import HEALTH, Listener
from reticent.tls.certificates import Certificate, create
from reticent.v1 import counting_pb2 as wire
from tests.parties import waiting

HOSTS = ("localhost", "127.0.0.1")
SERVICE = "tests.Echo"
SMALL = 100  # bytes of a message, for one of its methods

LARGE = b"large "
"""Followed by a number of bytes, what is asked for an answer of that size."""

Once: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"


def certified(folder: Path, *analysts: str) -> Path:
    """A folder of certificates for this machine."""
    create(folder, hosts=HOSTS, analysts=analysts, days=2)
    return folder


class Echo:
    """Answers with what it is asked, when it may; keys of its own have it fail, refuse, or answer with many bytes."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.may = asyncio.Event()
        self.may.set()
        self.pause = 0.0
        self.callers: list[Caller] = []
        self.streams_ended = 0
        self.came = 0
        """How many messages have come."""

    @property
    def inside(self) -> int:
        """How many calls are admitted."""
        return self.admission.calls.size

    def services(self) -> dict[str, dict[str, Handler]]:
        return {
            SERVICE: {
                "Once": unary(self.admission, wire.KeyRequest, self._once),
                "Small": unary(self.admission, wire.KeyRequest, self._once, message_bytes=SMALL),
                "Many": stream_out(self.admission, wire.KeyRequest, self._many),
                "Sum": stream_in(self.admission, wire.KeyRequest, self._sum),
            }
        }

    async def _once(self, request: wire.KeyRequest, caller: Caller) -> wire.KeyReply:
        self.callers.append(caller)
        self.came += 1
        if request.key_id == b"disk":
            raise OSError(28, "No space left on device", "the secret place")
        if request.key_id == b"fail":
            raise KeyError("a secret of the server")
        if request.key_id == b"refuse":
            raise Refused(Refusal.BAD_QUERY, "ä\n" * 10_000)
        await self.may.wait()
        large = request.key_id.removeprefix(LARGE)
        return wire.KeyReply(public_key=bytes(int(large)) if large != request.key_id else request.key_id)

    async def _many(self, request: wire.KeyRequest, caller: Caller) -> AsyncIterator[wire.KeyReply]:
        self.came += 1
        try:
            for _ in range(1000):
                yield wire.KeyReply(public_key=request.key_id)
                await self.may.wait()
                await asyncio.sleep(self.pause)
        finally:
            self.streams_ended += 1

    async def _sum(self, requests: AsyncIterator[wire.KeyRequest], caller: Caller) -> wire.KeyReply:
        found = []
        async for each in requests:
            self.came += 1
            if each.key_id == b"refuse":
                raise Refused(Refusal.BAD_QUERY)
            found.append(each.key_id)
        return wire.KeyReply(public_key=b"".join(found))


class Calls:
    """What a caller does to it, in bytes or messages."""

    def __init__(self, opened: grpc.aio.Channel) -> None:
        self.raw: Once = opened.unary_unary(f"/{SERVICE}/Once")
        self.once = opened.unary_unary(
            f"/{SERVICE}/Once",
            request_serializer=wire.KeyRequest.SerializeToString,
            response_deserializer=wire.KeyReply.FromString,
        )
        self.small = opened.unary_unary(
            f"/{SERVICE}/Small",
            request_serializer=wire.KeyRequest.SerializeToString,
            response_deserializer=wire.KeyReply.FromString,
        )
        self.many: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = opened.unary_stream(f"/{SERVICE}/Many")
        self.sum: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = opened.stream_unary(f"/{SERVICE}/Sum")
        # A call that may bring its one message late, or never.
        self.open: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = opened.stream_unary(f"/{SERVICE}/Once")
        self.unknown: Once = opened.unary_unary(f"/{SERVICE}/Never")
        self.health: Once = opened.unary_unary(f"/{HEALTH}/Check")
        self.health_open: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = opened.stream_unary(f"/{HEALTH}/Check")


@contextlib.asynccontextmanager
async def served(
    folder: Path, *, names: tuple[str, ...] | None = None, mutual: bool = False, limits: Limits | None = None
) -> AsyncIterator[tuple[Echo, Listener]]:
    """An echo with TLS."""
    echo = Echo(Admission(names, limits))
    credentials = Certificate.load(folder, "keys").server_credentials(mutual)
    async with Listener("127.0.0.1:0", echo.services(), credentials=credentials, limits=limits) as listener:
        yield echo, listener


@contextlib.asynccontextmanager
async def calling(listener: Listener, credentials: grpc.ChannelCredentials | None) -> AsyncIterator[Calls]:
    """The calls of one that comes with these credentials."""
    async with calling_at(listener.address, credentials) as calls:
        yield calls


@contextlib.asynccontextmanager
async def calling_at(address: str, credentials: grpc.ChannelCredentials | None) -> AsyncIterator[Calls]:
    """The calls of one that reaches a listener at this address."""
    async with channel(address, credentials) as opened:
        yield Calls(opened)


until = partial(waiting.until, within=5.0)
