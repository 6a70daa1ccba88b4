"""The way to the key server: what it is asked, again and again until it answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple, TypeVar

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
RAREST = 3600.0
"""And to the next where the key server has refused to decide, the longer the more often it has."""
PATIENCE = 10.0
"""Seconds that somebody waits who could come back."""
PASSING = {Refusal.BUSY, Refusal.UNAVAILABLE, Refusal.NOT_PERMITTED}
"""What is no answer to the question: it is asked again, the last when the operator has mended the certificates."""

Result = TypeVar("Result")


class _Refused(NamedTuple):
    """A cohort that the key server has refused to decide."""

    again: float  # when to ask again, by the loop's clock
    pause: float  # seconds, since it was asked last


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
        self._trouble: ReticentError | None = None
        self._refused: dict[tuple[bytes, int], _Refused] = {}

    async def standing(self) -> wire.Terms:
        """Who could be asked now, and under which key, which is kept.

        Raises:
            Refused: The key server refuses, or cannot be reached.
        """
        try:
            terms = await answered(self._deciding.Standing(wire.StandingRequest(), timeout=PATIENCE))
            await self._work(self._server.learned, terms)
        except Unreachable as error:
            self._heard(error)
            raise Refused(Refusal.UNAVAILABLE, "the key server cannot be reached") from error
        except ReticentError as error:
            self._heard(error)
            raise
        self._heard(None)
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
            self._look_now_and_then(),
        )

    async def _look_now_and_then(self) -> None:
        """See whether the key server is there, and how many phones are, also while there is nothing else to ask."""
        while True:
            try:
                await self.standing()
            except (ReticentError, OSError) as error:
                _log.debug("who could be asked is not known: %s", error)
            except Exception:  # noqa: BLE001  # a fault of ours must not end the looking
                _log.exception("asking the key server failed")
            await asyncio.sleep(LONGEST)

    def _heard(self, trouble: ReticentError | None) -> None:
        """Log when the key server goes away, and when it is back; once each."""
        if trouble is not None and self._trouble is None:
            _log.warning("the key server is away, or does not answer as it should, and is asked again: %s", trouble)
        elif trouble is None and self._trouble is not None:
            _log.info("the key server is back")
        self._trouble = trouble

    async def _countersign_all(self) -> float | None:
        """None: all is done that was to be."""
        async with self._one_at_a_time:
            try:
                for query in await self._work(self._server.uncountersigned):
                    await self._countersign(query)
                    self._heard(None)
            except ReticentError as error:
                self._heard(error)
                raise
        return None

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

    async def _decide_all(self) -> float | None:
        """None where all is decided that was to be; or in how many seconds to ask again."""
        now = asyncio.get_running_loop().time()
        heads = await self._work(self._server.requests)
        places = {(head.query, head.cohort) for head in heads}
        self._refused = {place: each for place, each in self._refused.items() if place in places}
        for head in heads:
            place = (head.query, head.cohort)
            if place in self._refused and self._refused[place].again > now:
                continue
            try:
                decision = await answered(self._deciding.Decide(self._messages(head)))
            except Refused as refused:
                if refused.refusal in PASSING:
                    self._heard(refused)
                    raise
                await self._not_decided(head, refused)
            except Unreachable as error:
                self._heard(error)
                raise
            else:
                await self._work(self._server.decided, decision)
                self._refused.pop(place, None)
            self._heard(None)
        if not self._refused:
            return None
        return max(0.0, min(each.again for each in self._refused.values()) - asyncio.get_running_loop().time())

    async def _not_decided(self, head: wire.DecideHead, refused: Refused) -> None:
        """Ask again later, and rarely where it is of no use."""
        place = (head.query, head.cohort)
        before = self._refused.get(place)
        pause = SHORTEST if before is None else min(RAREST, 2 * before.pause)
        if refused.refusal is Refusal.KEY_RETIRED:
            pause = RAREST
        name = await self._work(self._server.name, head)
        _log.error("cohort %d of %r is not decided, asked again in %.1f s: %s", head.cohort, name, pause, refused)
        await self._work(self._server.not_decided, head, refused)
        self._refused[place] = _Refused(asyncio.get_running_loop().time() + pause, pause)

    async def _messages(self, head: wire.DecideHead) -> AsyncIterator[wire.DecideRequest]:
        messages = self._server.asking(head)
        while (message := await self._work(next, messages, None)) is not None:
            yield message

    async def _work(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._writer, function, *arguments)


async def _again_and_again(wanted: asyncio.Event, attempt: Callable[[], Awaitable[float | None]]) -> None:
    """Attempt it whenever it is wanted, and when it says; where it fails, after longer and longer pauses."""
    pause = SHORTEST
    while True:
        wanted.clear()
        try:
            again = await attempt()
        except ReticentError as error:
            _log.debug("the key server is asked again in %.1f s: %s", pause, error)
        except OSError as error:
            _log.error("what the key server says cannot be kept, and is asked again in %.1f s: %s", pause, error)
        except Exception:  # noqa: BLE001  # a fault of ours in one question must not keep the next from being asked
            _log.exception("asking the key server failed")
        else:
            pause = SHORTEST
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wanted.wait(), again)
            continue
        await asyncio.sleep(pause)
        pause = min(LONGEST, 2 * pause)
