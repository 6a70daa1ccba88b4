"""A participant on the network: it asks, answers, waits and comes back, and nothing that fails on the way is lost."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from reticent.clock import Clock, first_of
from reticent.protocol import Refusal, Refused, Unreachable
from reticent.retry import Backoff
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.consent import Situation
from reticent_client.counting.participant import Participant
from reticent_client.counting.records import UNDECIDED, ContributionState, Record
from reticent_client.counting.servers import Servers
from reticent_client.errors import BadMembership, Declined, ForeignAnswer, Reason

__all__ = ["AGAIN", "Round", "enrol", "run", "take_part"]

Result = TypeVar("Result")
Failure = TypeVar("Failure", bound=BaseException)

_log = logging.getLogger(__name__)

AGAIN = dt.timedelta(minutes=5)
"""When to ask again where the server has not said."""

SOONEST, LATEST = dt.timedelta(seconds=1), dt.timedelta(hours=6)
"""A server that says to come back sooner or later than this is not believed."""

AT_ONCE = 100
"""Decisions that are asked for in one message."""

MAX_ANNOUNCEMENTS = 1000
"""How many of one answer are looked at."""

_threads = ThreadPoolExecutor(32, "counting")

_GONE = {Refusal.UNKNOWN_PHONE, Refusal.REVOKED, Refusal.EXPIRED}


class Trouble(NamedTuple):
    """Something that did not get through, and will be tried again."""

    what: str
    server: str
    error: Refused | Unreachable | ForeignAnswer | BadMembership

    def __str__(self) -> str:
        if isinstance(self.error, Unreachable):
            return f"{self.what}: {self.server} is not there ({self.error})"
        return f"{self.what}: {self.error}"


@dataclass(frozen=True)
class Round:
    """What came of asking once.

    Args:
        answered: The queries that were announced, which this phone has answered, now or before.
        declined: Those that it has not; all that the key server has not countersigned are one of them.
        decided: Those of which a decision has come.
        waiting: All that this phone has answered, and of which none has come.
        troubles: What did not get through.
        again: When to ask again.
    """

    answered: tuple[Record, ...]
    declined: tuple[Declined, ...]
    decided: tuple[Record, ...]
    waiting: tuple[Record, ...]
    troubles: tuple[Trouble, ...]
    again: dt.timedelta

    @property
    def not_before(self) -> dt.timedelta:
        """How long the servers ask to be left alone."""
        asked = [each.error.retry_after or 0.0 for each in self.troubles if isinstance(each.error, Refused)]
        return dt.timedelta(seconds=min(LATEST.total_seconds(), max(asked, default=0.0)))


async def enrol(participant: Participant, servers: Servers) -> None:
    """Tell the key server what it has to be told now: that this phone joins, stays, or leaves.

    Raises:
        Refused: It refuses. A phone that is no member any more, by its word, knows so from now on. That a membership is
            over is believed when the phone's own clock says so too: that of a key server may be ahead for a while.
        Unreachable: No answer came.
        BadMembership: What came is no membership of this phone's.
    """
    enrolment = participant.enrolment
    asked = enrolment.request()
    try:
        if isinstance(asked, wire.JoinRequest):
            await _in_thread(enrolment.joined, await servers.join(asked))
        elif isinstance(asked, wire.RenewRequest):
            await _in_thread(enrolment.joined, await servers.renew(asked))
        elif isinstance(asked, wire.LeaveRequest):
            await servers.leave(asked)
            await _in_thread(enrolment.left)
    except Refused as refused:
        if refused.refusal is Refusal.CONFLICT and isinstance(asked, wire.RenewRequest) and enrolment.member:
            # Its answers were lost too often: joining again tells how it stands.
            enrolment.joined(await servers.join(enrolment.join(enrolment.member.invitation)))
            return
        if refused.refusal is Refusal.INVITATION and isinstance(asked, wire.JoinRequest):
            enrolment.refused()
        if refused.refusal not in _GONE:
            raise
        if isinstance(asked, wire.LeaveRequest):
            enrolment.left()  # there is nothing left to leave
            return
        if refused.refusal is not Refusal.EXPIRED or enrolment.current is None:
            enrolment.expelled()
        raise


async def take_part(participant: Participant, servers: Servers, situation: Situation) -> Round:
    """One round: stay a member, answer what is asked, send what was not taken, and take decisions.

    What does not get through is no error: it is tried again in another round. Answers are made in a thread, and so the
    app is asked for its counters there.

    Args:
        participant: Who takes part.
        servers: Both of them.
        situation: How the phone is at present.
    """
    return await _Visit(participant, servers, situation).run()


async def run(
    participant: Participant,
    servers: Servers,
    *,
    clock: Clock,
    situation: Callable[[], Situation],
    stop: asyncio.Event,
    backoff: Backoff,
    on_round: Callable[[Round], None] | None = None,
) -> None:
    """Take part until told to stop, in the midst of a round as well; only an answer that is being made is made first.

    Args:
        participant: Who takes part.
        servers: Both of them.
        clock: What time it is.
        situation: Asked before each round how the phone is.
        stop: Set to have it end.
        backoff: How much longer to wait, after rounds in which a server was not there.
        on_round: Called with what came of each round.
    """
    failures = 0
    while not stop.is_set():
        visit = _Visit(participant, servers, situation())
        await first_of(visit.run(), stop.wait())
        done = visit.done
        if done is None:
            return
        if on_round is not None:
            on_round(done)
        failures = failures + 1 if done.troubles else 0
        wait = done.again.total_seconds()
        if failures:  # sooner than without the trouble, and later each time
            wait = max(done.not_before.total_seconds(), min(wait, backoff.delay(failures)))
        again = clock.now() + dt.timedelta(seconds=backoff.spread(wait))
        await first_of(clock.wait_until(again), stop.wait())


class _Visit:
    """One round, and what has come of it so far."""

    def __init__(self, participant: Participant, servers: Servers, situation: Situation) -> None:
        self._participant = participant
        self._servers = servers
        self._situation = situation
        self._answered: dict[bytes, None] = {}  # as a set that keeps its order
        self._declined: dict[bytes, Declined] = {}
        self._strange = 0
        self._decided: dict[bytes, None] = {}
        self._troubles: dict[str, Trouble] = {}
        self._again = AGAIN
        self.done: Round | None = None
        """What came of it, once it is over."""

    async def run(self) -> Round:
        with self._trouble("the membership", self._servers.keys):
            await enrol(self._participant, self._servers)
        with self._trouble("announcements", self._servers.aggregation):
            for announcement in await self._announcements():
                await self._answer(announcement)
        self._decline_strange()
        for contribution in self._participant.due(self._situation):
            await self._send(contribution)
        with self._trouble("decisions", self._servers.aggregation):
            await self._take_decisions()
        self.done = Round(
            self._records(self._answered),
            tuple(self._declined.values()),
            self._records(self._decided),
            tuple(self._participant.records.within(UNDECIDED)),
            tuple(self._troubles.values()),
            self._again,
        )
        return self.done

    async def _announcements(self) -> Sequence[wire.Announcement]:
        member = self._participant.enrolment.current
        if member is None:
            return ()
        reply = await self._servers.announcements(member.phone)
        if reply.again_in_ms:
            asked = dt.timedelta(milliseconds=min(reply.again_in_ms, LATEST // dt.timedelta(milliseconds=1)))
            self._again = max(SOONEST, asked)
        return reply.announcements[:MAX_ANNOUNCEMENTS]

    async def _answer(self, announcement: wire.Announcement) -> None:
        query = await self._query(announcement)
        key = await self._key(self._participant.key_id(announcement, query))
        try:
            said = await _in_thread(self._participant.contribute, announcement, query, key, self._situation)
        except Declined as declined:
            if declined.reason is Reason.NOT_COUNTERSIGNED:
                self._strange += 1
            else:
                self._declined[announcement.query] = _bare(declined)
        else:
            self._answered[said.query] = None

    async def _query(self, announcement: wire.Announcement) -> bytes:
        """The query of an announcement, where the phone needs it, and the server has it."""
        request = self._participant.query_request(announcement, self._situation)
        if request is None:
            return b""
        try:
            return await self._servers.query(request)
        except Refused as refused:
            if refused.refusal.retry:
                raise
            self._note("a query", self._servers.aggregation, refused)
            return b""

    async def _key(self, key_id: bytes | None) -> bytes:
        """The public key of an id."""
        if key_id is None:
            return b""
        return await self._servers.key(key_id)

    def _decline_strange(self) -> None:
        """Say that there was something, and keep nothing of it: the key server knows nothing of it."""
        if self._strange:
            sentence = f"{Reason.NOT_COUNTERSIGNED.value}, nor {self._strange - 1} others" if self._strange > 1 else ""
            self._declined[b""] = Declined(Reason.NOT_COUNTERSIGNED, sentence)

    async def _send(self, contribution: wire.Contribution) -> None:
        try:
            acknowledgement = await self._servers.contribute(contribution)
            await _in_thread(self._participant.acknowledged, acknowledgement)
        except (Refused, Unreachable) as error:
            await _in_thread(self._participant.not_delivered, contribution.query, error)
            for record in self._records([contribution.query]):
                if record.state is ContributionState.STORED:  # or it was refused for good, as its state says
                    self._note(f"the answer to {record.id!r}", self._servers.aggregation, error)
        except ForeignAnswer as error:
            await _in_thread(self._participant.not_delivered, contribution.query, Unreachable(str(error)))
            self._note("an acknowledgement", self._servers.aggregation, error)

    async def _take_decisions(self) -> None:
        wanted = self._participant.awaited()
        for start in range(0, len(wanted), AT_ONCE):
            asked = wanted[start : start + AT_ONCE]
            decisions = await self._servers.decisions(asked)
            for decision in decisions[: len(asked)]:
                with self._trouble("a decision", self._servers.aggregation):
                    await _in_thread(self._participant.decided, decision)
                    self._decided[decision.query] = None

    def _records(self, queries: Iterable[bytes]) -> tuple[Record, ...]:
        found = (self._participant.records.of(query) for query in queries)
        return tuple(record for record in found if record is not None)

    @contextlib.contextmanager
    def _trouble(self, what: str, server: str) -> Iterator[None]:
        try:
            yield
        except (Refused, Unreachable, ForeignAnswer, BadMembership) as error:
            self._note(what, server, error)

    def _note(self, what: str, server: str, error: Refused | Unreachable | ForeignAnswer | BadMembership) -> None:
        trouble = Trouble(what, server, _bare(error))
        if self._troubles.setdefault(str(trouble), trouble) is trouble:
            _log.info("%r", str(trouble))  # what a server says may hold anything


async def _in_thread(work: Callable[..., Result], *arguments: Any) -> Result:
    """Have a thread do work that computes or writes, and wait for it, also where this is cancelled meanwhile.

    The files are open until it is done. Threads that write at the same time
    share a commit.
    """
    future = asyncio.get_running_loop().run_in_executor(_threads, partial(work, *arguments))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.gather(future, return_exceptions=True)
        raise


def _bare(error: Failure) -> Failure:
    """The exception without where it came from, which would hold what was being looked at."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
