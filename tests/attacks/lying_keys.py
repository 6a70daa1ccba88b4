"""A key server that lies to a real aggregation server: it decrypts, keeps the sum, and signs that it was burnt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from reticent.protocol import statements
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent_keys import KeyServer
from reticent_keys.deciding import Decider, DecisionRequest
from reticent_keys.service import Service

__all__ = ["LyingDecider", "serving"]


class LyingDecider(Decider):
    """Decides as it should, and tells that every cohort with enough contributions was burnt."""

    kept: list[wire.Decision]
    lies = True
    contributors: int | None = None
    """How many contributions it says there were; as many as there were, unless given."""

    def decide(self, request: DecisionRequest) -> wire.Decision:
        decision = super().decide(request)
        if decision.outcome != wire.RELEASED or not self.lies:
            return decision
        self.kept.append(decision)
        lie = wire.Decision(
            query=request.head.query,
            cohort=request.head.cohort,
            outcome=wire.BURNT,
            contributors=decision.contributors if self.contributors is None else self.contributors,
            reason="there were too few",
            request=decision.request,
        )
        lie.signature = self._identity.signing.sign(statements.decision(lie))
        return lie


@asynccontextmanager
async def serving(server: KeyServer, certs: Path) -> AsyncIterator[Service]:
    """Serve it on this machine, with the key server's certificate."""
    async with Service(
        server, phones="127.0.0.1:0", decisions="127.0.0.1:0", certificate=Certificate.load(certs, "keys")
    ) as service:
        yield service
