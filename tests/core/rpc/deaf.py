"""Callers of the echo service that read no replies."""

from __future__ import annotations

from reticent.v1 import counting_pb2 as wire
from tests.attacks import deaf
from tests.attacks.deaf import careless
from tests.core.rpc.services import SERVICE

__all__ = ["Deaf", "careless"]


class Deaf(deaf.Deaf):
    """Asks the echo for what it is to be answered with."""

    path = f"/{SERVICE}/Once"

    async def call(self, message: bytes = b"hello", times: int = 1) -> None:
        await super().call(wire.KeyRequest(key_id=message).SerializeToString(), times)
