"""A phone's part in counts as a task: it takes part from its enrolment on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache, partial
from types import TracebackType
from typing import Self

import numpy as np

from reticent.clock import Clock
from reticent.privacy import Cost, Query
from reticent.protocol.invitation import Invitation
from reticent.randomness import secure
from reticent.retry import Backoff
from reticent.storage.sql import InUse
from reticent_client.counting.consent import Participation, Situation
from reticent_client.counting.enrolment import MEMBERSHIP, Enrolment, MembershipState
from reticent_client.counting.participant import Counters, NoiseSource, Participant, first_of
from reticent_client.counting.query_cache import SHARED
from reticent_client.counting.reports import Reports
from reticent_client.counting.servers import Servers
from reticent_client.counting.session import Round, enrol, run, take_part
from reticent_client.counting.settings import BUDGET, kept_budget, kept_participation
from reticent_client.store import PhoneStore

__all__ = ["COUNTING", "CountingRunner"]

COUNTING = "counting"
"""The part of a store that is claimed by whoever takes part in counts: see `PhoneStore.claim`."""
LOOK_INTERVAL = 5.0
"""Seconds after which a phone that takes no part looks again whether another process has enrolled it."""
CLAIM_INTERVAL = 0.5
"""Seconds after which a round is tried again, while another process takes part for the phone."""

_ENROLLED = {MembershipState.JOINING, MembershipState.MEMBER, MembershipState.LEAVING}


class CountingRunner:
    """Takes part in counts while it is entered and the phone is enrolled.

    Args:
        store: The phone's store.
        clock: What time it is.
        counters: What was counted; what apps have reported unless given.
        rates: What the log of ads has for a query of rates; None for every other query.
        participation: What the user allows; what the store has kept unless given.
        budget: What the user spends in all; what the store has kept unless given.
        situation: Asked before each round how the phone is.
        on_round: Called with what came of each round.
        rng: Where the noise comes from; a secure generator unless given.
        simulation: Accept public keys that are only good for simulation.
        polling: Make rounds by the clock. Otherwise, only `round` makes one, for a phone that its system wakes up.
        servers: Makes the connection to both servers.
    """

    def __init__(
        self,
        store: PhoneStore,
        clock: Clock,
        counters: Counters | None = None,
        *,
        rates: Counters | None = None,
        participation: Participation | None = None,
        budget: Cost | None = None,
        situation: Callable[[], Situation] = Situation,
        on_round: Callable[[Round], None] | None = None,
        rng: NoiseSource | None = None,
        simulation: bool = False,
        polling: bool = True,
        servers: Callable[[Invitation], Servers] = Servers,
    ) -> None:
        self.participant: Participant | None = None
        """The phone's side of counting, once it is needed."""
        self._store = store
        self._clock = clock
        self._reports = Reports(store, clock.now)
        self._counters = first_of(rates, self._reported if counters is None else counters)
        self._participation = participation
        self._budget = budget
        self._situation = situation
        self._on_round = on_round
        self._rng = rng
        self._simulation = simulation
        self._polling = polling
        self._servers = servers
        self._alone = asyncio.Lock()  # a round, joining and leaving are made one at a time
        self._joined = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin: with a round, if the phone is enrolled."""
        if self._participation is None:
            kept_participation(self._store)  # what is damaged is reported at once
        else:
            await self._store.transact(partial(kept_participation, self._store, self._participation))
        Enrolment(self._store.slot(MEMBERSHIP), self._clock.now)  # the same
        if self._store.slot(BUDGET).read() is not None:
            self._kept_budget()  # another budget is refused at once
        if self._polling:
            self._running = asyncio.create_task(self._run(), name="counting")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; a contribution that is being made is made first.

        Raises what has ended the phone's part before, if nothing else is raised.
        """
        if self._running is not None:
            self._running.cancel()
            [ended] = await asyncio.gather(self._running, return_exceptions=True)
            if kind is None and isinstance(ended, Exception):
                raise ended

    async def join(self, invitation: Invitation) -> None:
        """Enrol with a key server, and take part from now on. If no reply comes, it is tried again.

        Raises:
            AlreadyJoined, BadMembership, Refused, Unreachable: See `Enrolment.join` and `enrol`.
            InUse: Another process makes a round for this phone.
        """
        async with self._claimed():
            participant = await self._store.transact(partial(self._prepared, invitation))
            self._joined.set()
            async with self._servers(invitation) as servers:
                await enrol(participant, servers)

    async def round(self, *, announcements: bool = True) -> Round | None:
        """Make one round now; None where the phone takes no part.

        Args:
            announcements: See `take_part`.

        Raises:
            InUse: Another process makes a round for this phone.
        """
        async with self._claimed():
            participant = self._opened()
            invitation = _invitation(participant)
            if invitation is None:
                return None
            async with self._servers(invitation) as servers:
                return await take_part(participant, servers, self._situation(), announcements=announcements)

    def report(self, app: str, counters: Mapping[str, float]) -> None:
        """Keep what an app has counted, as far as the user allows: see `Reports.add`. From any thread."""
        self._reports.add(app, counters, kept_participation(self._store))

    async def leave(self) -> None:
        """Contribute to nothing new, and tell the key server. If no reply comes, it is tried again.

        Raises:
            NotJoined, Refused, Unreachable: See `Enrolment.leave` and `enrol`.
            InUse: Another process makes a round for this phone.
        """
        async with self._claimed():
            participant = self._opened()
            participant.enrolment.leave()
            async with self._servers(participant.enrolment.invitation) as servers:
                await enrol(participant, servers)

    async def wait(self) -> None:
        """Return when it has stopped, with the error that stopped it."""
        if self._running is not None:
            await asyncio.shield(self._running)
        elif not self._polling:
            await asyncio.Event().wait()

    def _reported(self, query: Query) -> Mapping[str, float] | None:
        return self._reports.for_query(query, kept_participation(self._store))

    async def _run(self) -> None:
        """Make rounds while the phone takes part, and wait while it does not."""
        while True:
            self._joined.clear()
            invitation = None if self._store.slot(MEMBERSHIP).read() is None else _invitation(self._opened())
            if invitation is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if self._store.path is None else LOOK_INTERVAL):
                        await self._joined.wait()
                continue
            async with self._servers(invitation) as servers:
                round_of_these = partial(self._round, servers)
                await run(round_of_these, clock=self._clock, backoff=Backoff(), on_round=self._on_round)

    async def _round(self, servers: Servers) -> Round | None:
        """One round by what the store has now; None where the phone does not take part with these servers any more."""
        while True:
            with contextlib.suppress(InUse):
                async with self._claimed():
                    participant = self._opened()
                    if _invitation(participant) != servers.invitation:
                        return None
                    return await take_part(participant, servers, self._situation())
            await asyncio.sleep(CLAIM_INTERVAL)

    @contextlib.asynccontextmanager
    async def _claimed(self) -> AsyncIterator[None]:
        """Let no other task and no other process take part for this phone meanwhile."""
        async with self._alone:
            with self._store.claim(COUNTING):
                yield

    def _opened(self) -> Participant:
        """The participant, by what the store has now."""
        if self.participant is not None:
            self.participant.refresh(kept_participation(self._store))
        else:
            self.participant = Participant(
                self._store,
                self._kept_budget(),
                rng=_secure() if self._rng is None else self._rng,
                now=self._clock.now,
                policy=kept_participation(self._store),
                counters=self._counters,
                simulation=self._simulation,
                queries=SHARED,
            )
        return self.participant

    def _prepared(self, invitation: Invitation) -> Participant:
        """The participant, which is about to join."""
        participant = self._opened()
        participant.enrolment.join(invitation)
        return participant

    def _kept_budget(self) -> Cost:
        """The budget of the phone, which is set now if it was not."""
        budget = self._budget
        return kept_budget(self._store) if budget is None else kept_budget(self._store, budget.epsilon, budget.delta)


@cache
def _secure() -> np.random.Generator:
    """One generator for all phones of a process."""
    return secure()


def _invitation(participant: Participant) -> Invitation | None:
    """The invitation by which a phone takes part; None where it does not.

    A phone that has left goes on while it waits for decisions about what it has contributed.
    """
    member = participant.enrolment.member
    if member is None or not (member.state in _ENROLLED or participant.awaited()):
        return None
    return member.invitation
