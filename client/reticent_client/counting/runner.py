"""A phone's part in counts as a task: it takes part from its enrolment on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import cache
from types import TracebackType
from typing import Self

import numpy as np

from reticent.clock import Clock
from reticent.privacy import Cost, Query
from reticent.protocol.invitation import Invitation
from reticent.randomness import secure
from reticent.retry import Backoff
from reticent_client.counting.consent import Participation, Situation
from reticent_client.counting.enrolment import MEMBERSHIP, Enrolment, MembershipState
from reticent_client.counting.participant import Counters, Participant
from reticent_client.counting.query_cache import SHARED
from reticent_client.counting.reports import Reports
from reticent_client.counting.servers import Servers
from reticent_client.counting.session import Round, enrol, run
from reticent_client.counting.settings import kept_budget, kept_participation
from reticent_client.errors import NotJoined
from reticent_client.store import PhoneStore

__all__ = ["COUNTING", "CountingRunner"]

COUNTING = "counting"
"""The part of a store that is claimed by whoever takes part in counts: see `PhoneStore.claim`."""

_ENROLLED = {MembershipState.JOINING, MembershipState.MEMBER, MembershipState.LEAVING}


class CountingRunner:
    """Takes part in counts while it is entered and the phone is enrolled.

    Args:
        store: The phone's store.
        clock: What time it is.
        counters: What was counted; what apps have reported unless given.
        participation: What the user allows; what the store has kept unless given.
        budget: What the user spends in all; what the store has kept unless given.
        situation: Asked before each round how the phone is.
        on_round: Called with what came of each round.
        rng: Where the noise comes from; a secure generator unless given.
        simulation: Accept public keys that are only good for simulation.
    """

    def __init__(
        self,
        store: PhoneStore,
        clock: Clock,
        counters: Counters | None = None,
        *,
        participation: Participation | None = None,
        budget: Cost | None = None,
        situation: Callable[[], Situation] = Situation,
        on_round: Callable[[Round], None] | None = None,
        rng: np.random.Generator | None = None,
        simulation: bool = False,
    ) -> None:
        self.participant: Participant | None = None
        """The phone's side of counting, once it is needed."""
        self._store = store
        self._clock = clock
        self._reports = Reports(store, clock.now)
        self._counters = self._reported if counters is None else counters
        self._participation = participation
        self._budget = budget
        self._situation = situation
        self._on_round = on_round
        self._rng = rng
        self._simulation = simulation
        self._open = contextlib.ExitStack()
        self._started = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin, if the phone is enrolled."""
        member = Enrolment(self._store.slot(MEMBERSHIP), self._clock.now).member
        if member is not None and member.state in _ENROLLED:
            self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; a contribution that is being made is made first."""
        with self._open:
            if self._running is not None:
                self._running.cancel()
                await asyncio.gather(self._running, return_exceptions=True)

    async def join(self, invitation: Invitation) -> None:
        """Enrol with a key server, and take part from now on. If no reply comes, it is tried again.

        Raises:
            AlreadyJoined, BadMembership, Refused, Unreachable: See `Enrolment.join` and `enrol`.
        """
        participant = self._opened()
        participant.enrolment.join(invitation)
        try:
            async with Servers(invitation) as servers:
                await enrol(participant, servers)
        finally:
            if self._running is None:
                self._start()

    def report(self, app: str, counters: Mapping[str, float]) -> None:
        """Keep what an app has counted, as far as the user allows: see `Reports.add`. From any thread."""
        self._reports.add(app, counters, self._policy())

    async def leave(self) -> None:
        """Contribute to nothing new, and tell the key server. If no reply comes, it is tried again.

        Raises:
            NotJoined, Refused, Unreachable: See `Enrolment.leave` and `enrol`.
        """
        participant = self._opened()
        participant.enrolment.leave()
        async with Servers(_invitation(participant)) as servers:
            await enrol(participant, servers)

    async def wait(self) -> None:
        """Return when it has stopped, with the error that stopped it."""
        await self._started.wait()
        if self._running is not None:
            await asyncio.shield(self._running)

    def _reported(self, query: Query) -> Mapping[str, float] | None:
        return self._reports.for_query(query, self._policy())

    def _policy(self) -> Participation:
        return kept_participation(self._store, self._participation)

    def _start(self) -> None:
        self._running = asyncio.create_task(self._run(self._opened()), name="counting")
        self._started.set()

    def _opened(self) -> Participant:
        """The participant, which only one process at a time may have."""
        if self.participant is None:
            self._open.enter_context(self._store.claim(COUNTING))
            budget = self._budget
            self.participant = Participant(
                self._store,
                kept_budget(self._store) if budget is None else kept_budget(self._store, budget.epsilon, budget.delta),
                rng=_secure() if self._rng is None else self._rng,
                now=self._clock.now,
                policy=self._policy(),
                counters=self._counters,
                backoff=Backoff(random=_secure().random),
                simulation=self._simulation,
                queries=SHARED,
            )
        return self.participant

    async def _run(self, participant: Participant) -> None:
        async with Servers(_invitation(participant)) as servers:
            await run(
                participant,
                servers,
                clock=self._clock,
                situation=self._situation,
                backoff=Backoff(random=_secure().random),
                on_round=self._on_round,
            )


@cache
def _secure() -> np.random.Generator:
    """One generator for all phones of a process."""
    return secure()


def _invitation(participant: Participant) -> Invitation:
    member = participant.enrolment.member
    if member is None:
        raise NotJoined("this phone has no invitation")
    return member.invitation
