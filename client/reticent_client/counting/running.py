"""A participant on the network: it asks, answers, waits and comes back, and nothing that fails on the way is lost."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reticent.clock import Clock
from reticent.protocol import Refusal, Refused, Unreachable
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.backoff import Backoff
from reticent_client.counting.conditions import Declined, Situation
from reticent_client.counting.enrolment import BadMembership
from reticent_client.counting.participant import ForeignAnswer, Participant
from reticent_client.counting.records import UNDECIDED, Record, State
from reticent_client.counting.servers import Servers

__all__ = ["AGAIN", "Round", "enrol", "run", "take_part"]

_log = logging.getLogger(__name__)

AGAIN = dt.timedelta(minutes=5)
"""When to ask again where the server has not said."""

SOONEST, LATEST = dt.timedelta(seconds=1), dt.timedelta(hours=6)
"""A server that says to come back sooner or later than this is not believed."""

AT_ONCE = 100
"""Decisions that are asked for in one message."""

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
        declined: Those that it has not.
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
        Refused: It refuses. A phone that is no member any more, by its word, knows so from now on.
        Unreachable: No answer came.
        BadMembership: What came is no membership of this phone's.
    """
    enrolment = participant.enrolment
    asked = enrolment.owed()
    try:
        if isinstance(asked, wire.JoinRequest):
            enrolment.joined(await servers.join(asked))
        elif isinstance(asked, wire.RenewRequest):
            enrolment.joined(await servers.renew(asked))
        elif isinstance(asked, wire.LeaveRequest):
            await servers.leave(asked)
            enrolment.left()
    except Refused as refused:
        if refused.refusal is Refusal.CONFLICT and isinstance(asked, wire.RenewRequest) and enrolment.member:
            # Its answers were lost too often: joining again tells how it stands.
            enrolment.joined(await servers.join(enrolment.join(enrolment.member.invitation)))
            return
        if refused.refusal not in _GONE:
            raise
        if isinstance(asked, wire.LeaveRequest):
            enrolment.left()  # there is nothing left to leave
        else:
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
    tell: Callable[[Round], None],
) -> None:
    """Take part until told to stop.

    Args:
        participant: Who takes part.
        servers: Both of them.
        clock: What time it is.
        situation: Asked before each round how the phone is.
        stop: Set to have it end.
        backoff: How much longer to wait, after rounds in which a server was not there.
        tell: Told what came of each round.
    """
    failures = 0
    while not stop.is_set():
        done = await take_part(participant, servers, situation())
        tell(done)
        failures = failures + 1 if done.troubles else 0
        wait = done.again
        if failures:  # sooner than without the trouble, and later each time
            wait = max(done.not_before, min(wait, backoff.wait(failures)))
        # Phones that were told the same do not come back all at the same time.
        await _wait(clock, clock.now() + wait * (1 + float(backoff.rng.random()) / 10), stop)


class _Visit:
    """One round, and what has come of it so far."""

    def __init__(self, participant: Participant, servers: Servers, situation: Situation) -> None:
        self._participant = participant
        self._servers = servers
        self._situation = situation
        self._answered: list[bytes] = []
        self._declined: list[Declined] = []
        self._decided: list[bytes] = []
        self._troubles: list[Trouble] = []
        self._keys: dict[bytes, bytes] = {}
        self._again = AGAIN

    async def run(self) -> Round:
        with self._trouble("the membership", self._servers.keys):
            await enrol(self._participant, self._servers)
        with self._trouble("announcements", self._servers.aggregation):
            async for announcement in self._announcements():
                await self._answer(announcement)
        for contribution in self._participant.due(self._situation):
            await self._send(contribution)
        with self._trouble("decisions", self._servers.aggregation):
            await self._take_decisions()
        return Round(
            self._records(self._answered),
            tuple(self._declined),
            self._records(self._decided),
            tuple(self._participant.records.within(UNDECIDED)),
            tuple(self._troubles),
            self._again,
        )

    async def _announcements(self) -> AsyncIterator[wire.Announcement]:
        member = self._participant.enrolment.current
        if member is None:
            return
        reply = await self._servers.announcements(member.phone)
        if reply.again_in_ms:
            asked = dt.timedelta(milliseconds=min(reply.again_in_ms, LATEST // dt.timedelta(milliseconds=1)))
            self._again = max(SOONEST, asked)
        for announcement in reply.announcements:
            yield announcement

    async def _answer(self, announcement: wire.Announcement) -> None:
        wanted = self._participant.key_wanted(announcement)
        if wanted is not None and wanted not in self._keys:
            self._keys[wanted] = await self._servers.key(wanted)
        key = b"" if wanted is None else self._keys[wanted]
        try:
            said = await asyncio.to_thread(self._participant.asked, announcement, key, self._situation)
        except Declined as declined:
            self._declined.append(declined)
        else:
            self._answered.append(said.query)

    async def _send(self, contribution: wire.Contribution) -> None:
        try:
            self._participant.acknowledged(await self._servers.contribute(contribution))
        except (Refused, Unreachable) as error:
            self._participant.not_taken(contribution.query, error)
            for record in self._records([contribution.query]):
                if record.state is State.STORED:  # or it was refused for good, as its state says
                    self._note(f"the answer to {record.id!r}", self._servers.aggregation, error)
        except ForeignAnswer as error:
            self._participant.not_taken(contribution.query, Unreachable(str(error)))
            self._note("an acknowledgement", self._servers.aggregation, error)

    async def _take_decisions(self) -> None:
        wanted = self._participant.wanted()
        for start in range(0, len(wanted), AT_ONCE):
            for decision in await self._servers.decisions(wanted[start : start + AT_ONCE]):
                with self._trouble("a decision", self._servers.aggregation):
                    self._participant.decided(decision)
                    self._decided.append(decision.query)

    def _records(self, queries: Sequence[bytes]) -> tuple[Record, ...]:
        found = (self._participant.records.of(query) for query in queries)
        return tuple(record for record in found if record is not None)

    @contextlib.contextmanager
    def _trouble(self, what: str, server: str) -> Iterator[None]:
        try:
            yield
        except (Refused, Unreachable, ForeignAnswer, BadMembership) as error:
            self._note(what, server, error)

    def _note(self, what: str, server: str, error: Refused | Unreachable | ForeignAnswer | BadMembership) -> None:
        trouble = Trouble(what, server, error)
        _log.info("%r", str(trouble))  # what a server says may hold anything
        self._troubles.append(trouble)


async def _wait(clock: Clock, instant: dt.datetime, stop: asyncio.Event) -> None:
    """Until the instant, or until told to stop."""
    waiting = {asyncio.ensure_future(clock.wait_until(instant)), asyncio.ensure_future(stop.wait())}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
