"""Callers of the echo service that read no replies."""

from __future__ import annotations

from reticent.v1 import counting_pb2 as wire
from tests.core.rpc.services import SERVICE
from tests.parties import nonreader
from tests.parties.nonreader import unverified_tls

__all__ = ["NonReader", "unverified_tls"]


class NonReader(nonreader.NonReader):
    """Asks the echo for what it is to be answered with."""

    path = f"/{SERVICE}/Once"

    async def call(self, message: bytes = b"hello", times: int = 1) -> None:
        await super().call(wire.KeyRequest(key_id=message).SerializeToString(), times)
