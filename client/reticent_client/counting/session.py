"""A participant on the network: rounds of calls to both servers. A call that fails is made again in a later round."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from reticent.clock import Clock
from reticent.protocol import BadCertificate, Refusal, Refused, Remedy, Unreachable
from reticent.retry import Backoff
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.consent import Situation
from reticent_client.counting.participant import Participant
from reticent_client.counting.records import UNDECIDED, ContributionState, Record
from reticent_client.counting.servers import Servers
from reticent_client.errors import BadMembership, Declined, ForeignReply, Reason

__all__ = ["DEFAULT_INTERVAL", "Round", "enrol", "run", "take_part"]

Result = TypeVar("Result")
AnError = TypeVar("AnError", bound=BaseException)

_log = logging.getLogger(__name__)

DEFAULT_INTERVAL = dt.timedelta(minutes=5)
"""The time between two rounds, where the server names none."""

MIN_INTERVAL, MAX_INTERVAL = dt.timedelta(seconds=1), dt.timedelta(hours=6)
"""Whatever interval a server names, it is kept within these."""

MAX_DECISIONS = 100
"""Decisions that one message requests."""

MAX_ANNOUNCEMENTS = 1000
"""Announcements of a page that are looked at; of a round, besides those to which the phone has contributed."""

MAX_PAGES = 100
"""Pages of announcements that a round requests."""

PAGES_TIMEOUT = 60.0
"""Seconds after which a round requests no further page."""

_threads = ThreadPoolExecutor(32, "counting")


class Failed(NamedTuple):
    """A call that failed; it is made again."""

    what: str
    server: str
    error: Refused | Unreachable | ForeignReply | BadMembership

    def __str__(self) -> str:
        if isinstance(self.error, BadCertificate):
            return f"{self.what} failed: {self.server} replies, but {self.error}"
        if isinstance(self.error, Unreachable):
            return f"{self.what} failed: {self.server} is unreachable ({self.error})"
        return f"{self.what} failed: {self.error}"


@dataclass(frozen=True)
class Round:
    """The results of one round.

    Args:
        contributions: To announced queries, made now or before.
        declined: Announced queries that the phone declines; all those without a countersignature are one of them.
        decided: Contributions whose decision came in this round.
        undecided: All contributions whose decision has not come.
        failures: Calls that failed.
        next_in: The time to the next round.
    """

    contributions: tuple[Record, ...]
    declined: tuple[Declined, ...]
    decided: tuple[Record, ...]
    undecided: tuple[Record, ...]
    failures: tuple[Failed, ...]
    next_in: dt.timedelta

    @property
    def retry_after(self) -> dt.timedelta:
        """The longest delay that a server asked for."""
        delays = [each.error.retry_after or 0.0 for each in self.failures if isinstance(each.error, Refused)]
        return dt.timedelta(seconds=min(MAX_INTERVAL.total_seconds(), max(delays, default=0.0)))


async def enrol(participant: Participant, servers: Servers) -> None:
    """Make the request that the membership needs now, if any: to join, to renew or to leave.

    Raises:
        Refused: The key server refuses. A phone that it no longer knows is expelled from now on. If it calls the
            membership expired, it is believed when the phone's clock agrees: its own may be ahead.
        Unreachable: No reply came.
        BadMembership: The reply is no membership of this phone.
    """
    enrolment = participant.enrolment
    request = enrolment.request()
    try:
        if isinstance(request, wire.JoinRequest):
            await _transact(participant, enrolment.joined, await servers.join(request))
        elif isinstance(request, wire.RenewRequest):
            await _transact(participant, enrolment.joined, await servers.renew(request))
        elif isinstance(request, wire.LeaveRequest):
            await servers.leave(request)
            await _transact(participant, enrolment.left)
    except Refused as refused:
        if refused.refusal is Refusal.CONFLICT and isinstance(request, wire.RenewRequest) and enrolment.member:
            # Its replies were lost too often: joining again returns the present membership.
            enrolment.joined(await servers.join(enrolment.join(enrolment.member.invitation)))
            return
        if refused.refusal is Refusal.INVITATION and isinstance(request, wire.JoinRequest):
            enrolment.refused()
        if refused.refusal.remedy is not Remedy.MEMBERSHIP:
            raise
        if isinstance(request, wire.LeaveRequest):
            enrolment.left()  # the key server has no such phone
            return
        if refused.refusal is not Refusal.EXPIRED or enrolment.current is None:
            enrolment.expelled()
        raise


async def take_part(
    participant: Participant, servers: Servers, situation: Situation, *, announcements: bool = True
) -> Round:
    """One round: renew the membership, contribute to announced queries, and take decisions.

    Contributions that were not acknowledged are sent again. A call that fails raises nothing: it is made again in
    another round. Contributions are made in a thread, which also calls the participant's counters. Where this is
    cancelled, a contribution that is being made is finished first.

    Args:
        participant: The phone's side.
        servers: Both servers.
        situation: How the phone is at present.
        announcements: Request announcements. A phone that only waits for decisions needs none.
    """
    return await _RoundRun(participant, servers, situation).run(announcements=announcements)


async def run(
    next_round: Callable[[], Awaitable[Round | None]],
    *,
    clock: Clock,
    backoff: Backoff,
    on_round: Callable[[Round], None] | None = None,
) -> None:
    """Run rounds until one returns None, or until it is cancelled, within a round as well.

    Args:
        next_round: One round, such as `take_part`.
        clock: What time it is.
        backoff: The delays after rounds with failures.
        on_round: Called with what came of each round.
    """
    failures = 0
    while (done := await next_round()) is not None:
        if on_round is not None:
            on_round(done)
        failures = failures + 1 if done.failures else 0
        wait = done.next_in.total_seconds()
        if failures:  # sooner than without failures, and later each time
            wait = max(done.retry_after.total_seconds(), min(wait, backoff.delay(failures)))
        again = clock.now() + dt.timedelta(seconds=backoff.spread(wait))
        await clock.wait_until(again)


class _RoundRun:
    """One round, and its results so far."""

    def __init__(self, participant: Participant, servers: Servers, situation: Situation) -> None:
        self._participant = participant
        self._servers = servers
        self._situation = situation
        self._contributions: dict[bytes, None] = {}  # as a set that keeps its order
        self._declined: dict[bytes, Declined] = {}
        self._not_countersigned = 0
        self._decided: dict[bytes, None] = {}
        self._failures: dict[str, Failed] = {}
        self._next_in = DEFAULT_INTERVAL

    async def run(self, *, announcements: bool) -> Round:
        with self._noting("membership request", self._servers.keys):
            await enrol(self._participant, self._servers)
        with self._noting("request for announcements", self._servers.aggregation):
            for announcement in await self._announcements() if announcements else ():
                await self._contribute(announcement)
        self._decline_not_countersigned()
        for contribution in self._participant.due(self._situation):
            await self._send(contribution)
        with self._noting("request for decisions", self._servers.aggregation):
            await self._take_decisions()
        return Round(
            self._records(self._contributions),
            tuple(self._declined.values()),
            self._records(self._decided),
            tuple(self._participant.records.within(UNDECIDED)),
            tuple(self._failures.values()),
            self._next_in,
        )

    async def _announcements(self) -> Sequence[wire.Announcement]:
        """All announcements; first those of the queries that close first. If a page fails, those before it."""
        member = self._participant.enrolment.current
        if member is None:
            return ()
        found: list[wire.Announcement] = []
        room, after = MAX_ANNOUNCEMENTS, 0
        now = asyncio.get_running_loop().time
        end = now() + PAGES_TIMEOUT
        with self._noting("request for announcements", self._servers.aggregation):
            for _ in range(MAX_PAGES):
                reply = await self._servers.announcements(member.phone, after)
                self._set_interval(reply)
                for each in reply.announcements[:MAX_ANNOUNCEMENTS]:
                    room -= self._participant.records.of(each.query) is None
                    if room < 0:
                        break
                    found.append(each)
                if room <= 0 or reply.next <= after or now() > end:
                    break
                after = reply.next
        return sorted(found, key=lambda each: each.closes_in_ms)

    def _set_interval(self, reply: wire.AnnouncementsReply) -> None:
        if reply.again_in_ms:
            interval = dt.timedelta(milliseconds=min(reply.again_in_ms, MAX_INTERVAL // dt.timedelta(milliseconds=1)))
            self._next_in = max(MIN_INTERVAL, interval)

    async def _contribute(self, announcement: wire.Announcement) -> None:
        query = await self._query(announcement)
        key_id = self._participant.key_id(announcement, query)
        key = b"" if key_id is None else await self._servers.key(key_id)
        try:
            contribution = await _in_thread(self._participant.contribute, announcement, query, key, self._situation)
        except Declined as declined:
            if declined.reason is Reason.NOT_COUNTERSIGNED:
                self._not_countersigned += 1
            else:
                self._declined[announcement.query] = _bare(declined)
        else:
            self._contributions[contribution.query] = None

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

    def _decline_not_countersigned(self) -> None:
        """Report how many announcements have no countersignature, and keep nothing of them."""
        if self._not_countersigned:
            sentence = (
                f"{Reason.NOT_COUNTERSIGNED.value}, nor {self._not_countersigned - 1} others"
                if self._not_countersigned > 1
                else ""
            )
            self._declined[b""] = Declined(Reason.NOT_COUNTERSIGNED, sentence)

    async def _send(self, contribution: wire.Contribution) -> None:
        try:
            acknowledgement = await self._servers.contribute(contribution)
            await _transact(self._participant, self._participant.acknowledged, acknowledgement)
        except (Refused, Unreachable) as error:
            await _transact(self._participant, self._participant.not_delivered, contribution.query, error)
            for record in self._records([contribution.query]):
                if record.state is ContributionState.STORED:  # or it was refused for good, as its state says
                    self._note(f"contribution to {record.id!r}", self._servers.aggregation, error)
        except ForeignReply as error:
            unreachable = Unreachable(str(error))
            await _transact(self._participant, self._participant.not_delivered, contribution.query, unreachable)
            self._note("an acknowledgement", self._servers.aggregation, error)

    async def _take_decisions(self) -> None:
        wanted = self._participant.awaited()
        for start in range(0, len(wanted), MAX_DECISIONS):
            batch = wanted[start : start + MAX_DECISIONS]
            decisions = await self._servers.decisions(batch)
            for decision in decisions[: len(batch)]:
                with self._noting("check of a decision", self._servers.aggregation):
                    await self._participant.take_decision(decision)
                    self._decided[decision.query] = None

    def _records(self, queries: Iterable[bytes]) -> tuple[Record, ...]:
        found = (self._participant.records.of(query) for query in queries)
        return tuple(record for record in found if record is not None)

    @contextlib.contextmanager
    def _noting(self, what: str, server: str) -> Iterator[None]:
        try:
            yield
        except (Refused, Unreachable, ForeignReply, BadMembership) as error:
            self._note(what, server, error)

    def _note(self, what: str, server: str, error: Refused | Unreachable | ForeignReply | BadMembership) -> None:
        failed = Failed(what, server, _bare(error))
        if self._failures.setdefault(str(failed), failed) is failed:
            _log.info("%r", str(failed))  # what a server says may hold anything


async def _transact(participant: Participant, change: Callable[..., None], *arguments: Any) -> None:
    """Make a small change in one transaction with those of other phones of the same file."""
    await participant.store.transact(partial(change, *arguments))


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


def _bare(error: AnError) -> AnError:
    """The exception without where it came from, which would hold what was being looked at."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
