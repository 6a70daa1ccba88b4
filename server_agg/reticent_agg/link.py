"""The way to the key server: what it is asked, again and again until it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

import grpc

from reticent.errors import ReticentError
from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import answered, failure_of
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_agg.server import AggregationServer

__all__ = ["Link"]

_log = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.1, 30.0
"""Seconds from one attempt to the next."""
PATIENCE = 10.0
"""Seconds that somebody waits who could come back."""
PASSING = {Refusal.BUSY, Refusal.UNAVAILABLE, Refusal.NOT_PERMITTED}
"""What is no answer to the question: it is asked again, the last when the operator has mended the certificates."""

Result = TypeVar("Result")


class Link:
    """Has queries countersigned, and cohorts decided.

    Args:
        server: Whose questions these are.
        channel: The way to the key server.
        writer: The thread in which the server works.
        began: Called when phones can be asked something new.
    """

    def __init__(
        self, server: AggregationServer, channel: grpc.aio.Channel, writer: Executor, began: Callable[[], None]
    ) -> None:
        self._server = server
        self._deciding = counting_pb2_grpc.DecidingStub(channel)
        self._writer = writer
        self._began = began
        self._one_at_a_time = asyncio.Lock()
        self._to_countersign = asyncio.Event()
        self._to_decide = asyncio.Event()

    async def standing(self) -> wire.Terms:
        """Who could be asked now, and under which key, which is kept.

        Raises:
            Refused: The key server refuses, or cannot be reached.
        """
        try:
            terms = await answered(self._deciding.Standing(wire.StandingRequest(), timeout=PATIENCE))
        except Unreachable as error:
            raise Refused(Refusal.UNAVAILABLE, "the key server cannot be reached") from error
        await self._work(self._server.learned, terms)
        return terms

    async def countersign(self) -> None:
        """Have countersigned what waits for it, and do not wait long: what is not done in time is done later."""
        self._to_countersign.set()  # whatever becomes of this attempt
        try:
            await asyncio.wait_for(self._countersign_all(), PATIENCE)
        except (TimeoutError, ReticentError) as error:
            _log.info("a query waits for its countersignature: %s", error)

    def decide(self) -> None:
        """Have decided what waits for it."""
        self._to_decide.set()

    async def run(self) -> None:
        """Ask what has to be asked, for ever."""
        await asyncio.gather(
            _again_and_again(self._to_countersign, self._countersign_all),
            _again_and_again(self._to_decide, self._decide_all),
        )

    async def _countersign_all(self) -> bool:
        async with self._one_at_a_time:
            for query in await self._work(self._server.uncountersigned):
                await self._countersign(query)
        return True

    async def _countersign(self, query: Query) -> None:
        asked = wire.CountersignRequest(query=query.to_bytes())
        try:
            deals = [deal async for deal in self._deciding.Countersign(asked)]
        except grpc.RpcError as error:
            failure = failure_of(error)
            if isinstance(failure, Unreachable) or failure.refusal in PASSING:
                raise failure from error
            _log.warning("%r is not countersigned: %s", query.id, failure)
            await self._work(self._server.refused, query, failure)
            return
        await self._work(self._server.countersigned, query, deals)
        _log.info("%r is countersigned, and collects", query.id)
        self._began()

    async def _decide_all(self) -> bool:
        """Whether all is decided that was to be."""
        complete = True
        for head in await self._work(self._server.requests):
            try:
                decision = await answered(self._deciding.Decide(self._messages(head)))
            except Refused as refused:
                if refused.refusal in PASSING:
                    raise
                _log.error("cohort %d is not decided: %s", head.cohort, refused)
                await self._work(self._server.not_decided, head, refused)
                complete = False
            else:
                await self._work(self._server.decided, decision)
        return complete

    async def _messages(self, head: wire.DecideHead) -> AsyncIterator[wire.DecideRequest]:
        messages = self._server.asking(head)
        while (message := await self._work(next, messages, None)) is not None:
            yield message

    async def _work(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._writer, function, *arguments)


async def _again_and_again(wanted: asyncio.Event, attempt: Callable[[], Awaitable[bool]]) -> None:
    """Attempt it whenever it is wanted, until it is done; at first in any case."""
    pause = SHORTEST
    while True:
        wanted.clear()
        try:
            done = await attempt()
        except (ReticentError, OSError) as error:
            _log.warning("the key server is asked again in %.1f s: %s", pause, error)
            done = False
        except Exception:  # noqa: BLE001  # a fault of ours in one question must not keep the next from being asked
            _log.exception("asking the key server failed")
            done = False
        if done:
            pause = SHORTEST
            await wanted.wait()
        else:
            await asyncio.sleep(pause)
            pause = min(LONGEST, 2 * pause)
