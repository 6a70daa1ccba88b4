"""One phone of a simulation: the real `Phone`, with its user's life and randomness that a seed replays."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import numpy as np

from reticent.clock import Clock
from reticent.privacy import Cost, Norms, Query
from reticent.protocol.invitation import Invitation
from reticent.randomness import seeded
from reticent_client import AdSettings, Phone, PhoneStore, Schedule
from reticent_client.ads.messages import ShownAd
from reticent_client.apps.messages import Step
from reticent_client.counting.contribution import values_of
from reticent_client.counting.servers import Servers
from reticent_client.counting.session import Round
from reticent_sim.engine.messages import Contributed
from reticent_sim.engine.scenario import Terms
from reticent_sim.world.world import APP, World

__all__ = ["SimulatedPhone"]


class SimulatedPhone:
    """A phone and its user, while it is entered.

    Args:
        number: The number of the phone.
        world: The people.
        terms: What it has in common with the others.
        store: Its store.
        clock: The simulated clock.
        schedule: Its policies; None for a phone without a mask.
        ads: Its settings for ads; None for a phone without ads.
        servers: Makes its connection to the servers.
    """

    def __init__(
        self,
        number: int,
        world: World,
        terms: Terms,
        store: PhoneStore,
        clock: Clock,
        *,
        schedule: Schedule | None,
        ads: AdSettings | None,
        servers: Callable[[Invitation], Servers],
    ) -> None:
        self.number = number
        self.released: dict[int, list[str | None]] = {}
        """The released context of each step, by day."""
        self.lived: dict[int, list[str | None]] = {}
        """The real ones."""
        self.store = store
        self._world = world
        self._seed = terms.seed
        self._clock = clock
        self._has_mask = schedule is not None
        self._rng = seeded(terms.seed, "phone", number)
        self._step: asyncio.Future[Step] | None = None
        self._day = 0
        self._prepared: dict[bytes, Query] = {}
        self._used: dict[str, Norms] = {}
        self.phone = Phone(
            schedule,
            store=store,
            participation=terms.participation,
            budget=terms.budget,
            counters=self._counters,
            ads=ads,
            on_step=self._on_step,
            clock=clock,
            rng=self._rng,
            noise=self._noise,
            simulation=True,
            polling=False,
            servers=servers,
            zone=dt.UTC,
            first_day=True,
        )
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Switch the phone on."""
        await self._open.enter_async_context(self.phone)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Switch it off."""
        await self._open.__aexit__(kind, error, trace)

    def sense(self, day: int, step: int) -> None:
        """Let the phone read where its user is."""
        if day not in self.lived:
            self.lived[day] = self._world.person(self.number).day(day)
            self.released[day] = [None] * len(self.lived[day])
        self._day = day
        self._draw("coins", day, step)
        self._step = asyncio.get_running_loop().create_future()
        self.phone.sense(self.lived[day][step])

    async def decided(self, day: int, step: int) -> str | None:
        """The context that the phone releases at the step, once it has decided."""
        if not self._has_mask:
            self.released[day][step] = self.lived[day][step]
        elif self._step is not None:
            self.released[day][step] = (await self._step).context
        return self.released[day][step]

    async def prefetch(self, query: str) -> None:
        """Request ads for the present situation."""
        if self.phone.ads is not None:
            await self.phone.ads.prefetch(query)

    async def show_ad(self, query: str, arrived: dt.datetime) -> ShownAd | None:
        """The ad that the app shows."""
        return await self.phone.show_ad(APP, query, arrived)

    async def click(self, showing: str) -> None:
        """Let the user click on an ad."""
        await self.store.transact(lambda: self.phone.clicked(APP, showing))

    async def join(self, invitation: Invitation) -> None:
        """Enrol with the key server."""
        await self.phone.counting.join(invitation)

    async def round(self, day: int) -> tuple[Round | None, list[Contributed]]:
        """A round of counting with the counters of a day, and the contributions that the phone has made in it."""
        self._day = day
        self._draw("choice", day)  # of the views that count
        done = await self.phone.counting.round()
        if done is None:
            return None, []
        records = {record.query: record for record in done.contributions}
        made = [
            self._contributed(self._prepared.pop(digest), records[digest].cohort)
            for digest in [*self._prepared]
            if digest in records
        ]
        return done, made

    @property
    def spent(self) -> Cost:
        """The budget that is spent or reserved."""
        participant = self.phone.counting.participant
        if participant is None:
            return Cost(0.0, 0.0)
        entries = participant.ledger.entries(subject=self.store.phone)
        return Cost(sum(each.cost.epsilon for each in entries), sum(each.cost.delta for each in entries))

    def _contributed(self, query: Query, cohort: int) -> Contributed:
        """What the phone has encrypted: the same numbers, computed again from the same seed."""
        used = self._used.get(query.account, Norms(0, 0))
        values = query.fit(values_of(query, self._found(query)), used=used)
        if query.sequence is not None:
            self._used[query.account] = used + Norms.of(values)
        noise = query.share(self._generator(query))
        return Contributed(self.number, query.id, cohort, np.asarray(values), np.asarray(noise))

    def _found(self, query: Query) -> Mapping[str, float] | None:
        found = None if self.phone.ads is None else self.phone.ads.counters(query)
        return self._counters(query) if found is None else found

    def _counters(self, _query: Query) -> Mapping[str, float]:
        return self._world.counters(self.number, self._day)

    def _noise(self, query: Query) -> np.random.Generator:
        self._prepared[query.digest] = query
        return self._generator(query)

    def _generator(self, query: Query) -> np.random.Generator:
        return seeded(self._seed, "noise", self.number, query.id)

    def _draw(self, *path: int | str) -> None:
        """Let the phone's generator continue with a stream of its own, whatever was drawn before."""
        stream = seeded(self._seed, *path[:1], self.number, *path[1:])
        self._rng.bit_generator.state = stream.bit_generator.state

    def _on_step(self, step: Step) -> None:
        if self._step is not None and not self._step.done():
            self._step.set_result(step)
