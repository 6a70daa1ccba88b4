"""The way to the key server: what it is asked, again and again until it answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

import grpc

from reticent.errors import ReticentError
from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import answered
from reticent.protocol.phases import KEY_SERVER_AWAY
from reticent.retry import Backoff
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_agg.counting.closing import NEVER, Undecided
from reticent_agg.retry_queue import Name, Turns
from reticent_agg.server import AggregationServer

__all__ = ["Link"]

_log = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.1, 30.0
"""Seconds from one attempt to the next."""
RAREST = 3600.0
"""And to the next where the key server has refused to decide, the longer the more often it has."""
PATIENCE = 10.0
"""Seconds that somebody waits who could come back."""
MAX_ANSWER = 3600.0
"""Seconds that the key server may take to countersign a query, or to decide a cohort.

Many times what the receipts of a million phones need; one that hangs, though it is there, keeps nobody for ever.
"""

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
        self._to_countersign = asyncio.Event()
        self._to_decide = asyncio.Event()
        self._trouble: ReticentError | None = None
        self._uncountersigned = Turns[bytes]()  # by the digests of queries
        self._undecided = Turns[Undecided]()
        self._waiting: list[asyncio.Future[None]] = []  # for the end of an attempt to have queries countersigned

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
            raise Refused(Refusal.UNAVAILABLE, KEY_SERVER_AWAY) from error
        except ReticentError as error:
            self._heard(error)
            raise
        self._heard(None)
        return terms

    async def countersigned(self, query: Query) -> None:
        """Have a query countersigned, and do not wait long: what is not done in time is done later."""
        self._uncountersigned.forget(query.digest)  # somebody wants it now
        attempted = asyncio.get_running_loop().create_future()
        self._waiting.append(attempted)
        self.countersign()
        try:
            await asyncio.wait_for(attempted, PATIENCE)
        except TimeoutError:
            _log.info("%r waits for its countersignature", query.id)

    def countersign(self) -> None:
        """Have countersigned what waits for it."""
        self._to_countersign.set()

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
        """See whether the key server is there, how many phones are, and whether anything was left undone."""
        while True:
            try:
                await self.standing()
            except (ReticentError, OSError) as error:
                _log.debug("who could be asked is not known: %s", error)
            except Exception:  # noqa: BLE001  # a fault of ours must not end the looking
                _log.exception("asking the key server failed")
            self.countersign()
            self.decide()
            self._began()
            await asyncio.sleep(LONGEST)

    def _heard(self, trouble: ReticentError | None) -> None:
        """Log when the key server goes away, and when it is back; once each."""
        if trouble is not None and self._trouble is None:
            _log.warning("the key server is away, or does not answer as it should, and is asked again: %s", trouble)
        elif trouble is None and self._trouble is not None:
            _log.info("the key server is back")
        self._trouble = trouble

    async def _countersign_all(self) -> float | None:
        """The seconds until something is to be asked again; None where all is countersigned."""
        waiting, self._waiting = self._waiting, []
        try:
            queries = {query.digest: query for query in await self._work(self._server.uncountersigned)}
            for digest in self._uncountersigned.due(queries, _now()):
                query = queries[digest]
                what = partial("{!r} is not countersigned".format, query.id)
                await self._attempted(self._uncountersigned, digest, what, self._countersign(query))
            return self._uncountersigned.left(_now())
        finally:
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    async def _countersign(self, query: Query) -> None:
        asked = wire.CountersignRequest(query=query.to_bytes())
        try:
            deals = await answered(_all(self._deciding.Countersign(asked, timeout=MAX_ANSWER)))
        except Refused as refused:
            if _may_pass(refused):
                raise
            _log.warning("%r is not countersigned: %s", query.id, refused)
            await self._work(self._server.refused, query, refused)
            return
        await self._work(self._server.countersigned, query, deals)
        _log.info("%r is countersigned, and collects", query.id)
        self._began()
        self.decide()  # where it was aborted before

    async def _decide_all(self) -> float | None:
        """The seconds until something is to be asked again; None where all is decided that was to be."""
        for cohort in self._undecided.due(await self._work(self._server.undecided), _now()):
            what = partial(self._not_decided, cohort)
            await self._attempted(self._undecided, cohort, what, self._decide(cohort))
        return self._undecided.left(_now())

    async def _decide(self, cohort: Undecided) -> None:
        head = await self._work(self._server.request, cohort.query, cohort.cohort)  # it may be aborted meanwhile
        if head is not None:
            await self._ask_to_decide(head)

    async def _ask_to_decide(self, head: wire.DecideHead) -> None:
        faults: list[Exception] = []
        try:
            decision = await answered(self._deciding.Decide(self._messages(head, faults), timeout=MAX_ANSWER))
        except Refused as refused:
            await self._work(self._server.not_decided, head, refused)
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if faults and task is not None and not task.cancelling():
                raise faults[0] from None  # where gRPC cannot read what it is to send, it cancels the call
            raise
        await self._work(self._server.decided, decision)

    async def _messages(self, head: wire.DecideHead, faults: list[Exception]) -> AsyncIterator[wire.DecideRequest]:
        try:
            messages = self._server.asking(head)
            while (message := await self._work(next, messages, None)) is not None:
                yield message
        except Exception as error:
            faults.append(error)
            raise

    def _not_decided(self, cohort: Undecided) -> str:
        return f"cohort {cohort.cohort} of {self._server.name(cohort.query)!r} is not decided"

    async def _attempted(
        self, turns: Turns[Name], name: Name, what: Callable[[], str], attempt: Awaitable[None]
    ) -> None:
        """Attempt something. Where it fails, only that is put off, unless nobody is there, or the disk fails."""
        try:
            await attempt
        except OSError:
            # It may be because of this one: the others come first.
            turns.failed(name, _now(), Backoff(SHORTEST, LONGEST))
            raise
        except Exception as error:
            is_new, backoff = name not in turns, _backoff(error)
            pause = turns.failed(name, _now(), backoff)
            if isinstance(error, Unreachable) and _is_away(error):
                self._heard(error)
                raise
            level = logging.ERROR if is_new or backoff.limit == RAREST else logging.DEBUG
            ours = None if isinstance(error, ReticentError) else error
            _log.log(level, "%s, asked again in %.1f s: %s", await self._work(what), pause, error, exc_info=ours)
        else:
            turns.forget(name)
            self._heard(None)

    async def _work(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._writer, function, *arguments)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _backoff(error: Exception) -> Backoff:
    """How long to leave something alone that has failed."""
    if isinstance(error, Unreachable) or (isinstance(error, Refused) and _may_pass(error)):
        return Backoff(SHORTEST, LONGEST)
    if isinstance(error, Refused) and error.refusal in NEVER:
        return Backoff(RAREST, RAREST)
    return Backoff(SHORTEST, RAREST)


def _may_pass(refused: Refused) -> bool:
    """Whether to retry as if the key server were away: also until the operator has mended the certificates."""
    return refused.refusal.retry or refused.refusal is Refusal.NOT_PERMITTED


def _is_away(error: Unreachable) -> bool:
    """Whether nobody is there, which says nothing of what was asked: there is no use in asking more."""
    cause = error.__cause__
    return isinstance(cause, grpc.aio.AioRpcError) and cause.code() is grpc.StatusCode.UNAVAILABLE


async def _all(stream: AsyncIterable[Result]) -> list[Result]:
    return [each async for each in stream]


async def _again_and_again(wanted: asyncio.Event, attempt: Callable[[], Awaitable[float | None]]) -> None:
    """Attempt it whenever it is wanted, and when it says; where it fails, after longer and longer pauses."""
    failures = 0
    while True:
        wanted.clear()
        try:
            again, failures = await attempt(), 0
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the asking
            failures += 1
            again = Backoff(SHORTEST, LONGEST).delay(failures)
            _tell_of(error, again)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wanted.wait(), again)


def _tell_of(error: Exception, again: float) -> None:
    if isinstance(error, ReticentError):
        _log.debug("the key server is asked again in %.1f s: %s", again, error)
    elif isinstance(error, OSError):
        _log.error("what the key server says cannot be kept, and is asked again in %.1f s: %s", again, error)
    else:
        _log.exception("asking the key server failed")
