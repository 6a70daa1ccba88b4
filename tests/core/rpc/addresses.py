"""Calls to a listener from other addresses of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import grpc

from reticent.rpc.listener import Listener
from tests.core.rpc.services import Calls, calling_at
from tests.parties.forwarder import forwarder


@contextlib.asynccontextmanager
async def calling_from(address: str, listener: Listener, credentials: grpc.ChannelCredentials) -> AsyncIterator[Calls]:
    """The calls of a caller at an address like 127.0.0.2."""
    port = int(listener.address.rpartition(":")[2])
    async with forwarder(address, port) as forwarding, calling_at(forwarding, credentials) as calls:
        yield calls
