"""One phone of a simulation: the real `Phone`, with its user's life, its faults, and randomness that a seed replays."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Self

import numpy as np

from reticent.clock import Clock
from reticent.privacy import Cost, Norms, Query
from reticent.protocol import Refused, Unreachable
from reticent.protocol.invitation import Invitation
from reticent.randomness import seeded
from reticent_client import AdSettings, Phone, PhoneStore, Schedule
from reticent_client.ads.messages import ShownAd
from reticent_client.apps.messages import Step
from reticent_client.counting.contribution import values_of
from reticent_client.counting.enrolment import MEMBERSHIP
from reticent_client.counting.records import LIVE, ContributionState
from reticent_client.counting.servers import Servers
from reticent_client.counting.session import Round
from reticent_client.errors import NotJoined
from reticent_sim.engine.faults import FullDiskStore, Moment, PhoneFaults, PhoneNetwork, SkewedClock
from reticent_sim.engine.malice import Experience, MaliciousPhone
from reticent_sim.engine.measured_servers import MeasuredAdService
from reticent_sim.engine.messages import Contributed, Published
from reticent_sim.engine.scenario import PhoneSettings
from reticent_sim.engine.times import START, order_of
from reticent_sim.engine.trace import Event
from reticent_sim.engine.usage import CpuMeter
from reticent_sim.world.people import Day
from reticent_sim.world.world import APP, UserSearch, World

__all__ = ["SimulatedPhone", "SimulatedTime", "is_acknowledged"]

READER = "simulation"
"""The trusted app of a phone with a wrong clock."""

_NOT_ACKNOWLEDGED = {ContributionState.STORED, ContributionState.REFUSED}


class SimulatedTime:
    """The clock of a worker, and its present day, step and round of counting.

    It also has the CPU time of the people, which is no cost of phones.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.moment = Moment(0, 0)
        self.people_cpu = CpuMeter()


class SimulatedPhone:
    """A phone and its user.

    Args:
        number: The number of the phone.
        world: The people.
        settings: The settings that it shares with the others.
        store: Its store.
        time: The simulated time.
        schedule: Its policies; None for a phone without a mask.
        ads: Its settings for ads; None for a phone without ads.
        network: Its connection to the servers, with its faults.
        faults: Its faults.
        malice: Its kind of malice, if any.
    """

    def __init__(
        self,
        number: int,
        world: World,
        settings: PhoneSettings,
        store: PhoneStore,
        time: SimulatedTime,
        *,
        schedule: Schedule | None,
        ads: AdSettings | None,
        network: PhoneNetwork,
        faults: PhoneFaults,
        malice: str | None,
    ) -> None:
        self.number = number
        self.latest: Published | None = None
        """The step that it has published last."""
        self.faults = faults
        self.done_with: str | None = ""
        """The query for which the phone has done what it can; None if that was to fetch decisions; at first neither."""
        self._world = world
        self._settings = settings
        self._time = time
        self._schedule = schedule
        self._ads = ads
        self._rng = seeded(settings.seed, "phone", number)
        self._today: tuple[int, Day, list[UserSearch]] | None = None
        self._awaited: asyncio.Future[None] | None = None
        self._new: list[tuple[Event, Published]] = []
        self._reported: str | None = None
        self._clock: Clock = time.clock
        self._is_skewed = any(each.kind == "skew" for each in faults.faults)
        self._store = store
        if faults:
            self._clock = SkewedClock(time.clock, self._skew)
            self._store = FullDiskStore(store, self._is_full)
        self.malicious: MaliciousPhone | None = None
        """Its malice, if any."""
        self._servers: Callable[[Invitation], Servers] = network.servers
        if malice is not None:
            self.malicious = MaliciousPhone(malice, number, self._store, seed=settings.seed, servers=network.servers)
            self._servers = self.malicious.servers
        self._traffic = network.traffic
        self._phone: Phone | None = None
        self._open = contextlib.AsyncExitStack()

    async def switch_on(self) -> Self:
        """Start the phone, with what its store holds."""
        self._phone = Phone(
            self._schedule,
            store=self._store,
            participation=self._settings.participation,
            budget=self._settings.budget,
            counters=self._counters,
            ads=self._ads,
            on_step=self._on_step,
            clock=self._clock,
            rng=self._rng,
            noise=self._generator,
            simulation=True,
            polling=False,
            servers=self._servers,
            ad_service=partial(MeasuredAdService, traffic=self._traffic),
            zone=dt.UTC,
            first_day=True,
        )
        await self._open.enter_async_context(self._phone)
        if self._is_skewed:
            self._phone.apps.add(READER, trusted=True)  # the stream then holds what the mask reads at each step
        return self

    async def switch_off(self) -> None:
        """Stop the phone."""
        self._phone = None
        await self._open.aclose()

    @property
    def phone(self) -> Phone:
        """The phone, which is on."""
        if self._phone is None:
            raise AssertionError(f"phone {self.number} is off")
        return self._phone

    @property
    def is_on(self) -> bool:
        """Whether the phone is on."""
        return self._phone is not None

    @property
    def is_reliable(self) -> bool:
        """Whether its clock is right, and its disk is not full."""
        moment = self._time.moment
        return not self.faults.skew(moment) and not self.faults.is_full(moment)

    async def join(self, invitation: Invitation) -> None:
        """Enrol with the key server, unless it has. If no reply comes, its next round of counting tries again."""
        if self._store.slot(MEMBERSHIP).read() is None:
            with _failing_calls():
                await self.phone.counting.join(invitation)

    async def leave(self) -> None:
        """Leave, and stop. If no reply comes, or the disk is full, the key server does not know."""
        with contextlib.suppress(NotJoined, OSError), _failing_calls():
            await self.phone.counting.leave()
        await self.switch_off()

    def lived(self, day: int) -> Day:
        """The contexts of its user on a day."""
        return self._day(day)[1]

    def searches(self, day: int) -> list[UserSearch]:
        """The searches of its user on a day."""
        return self._day(day)[2]

    def _day(self, day: int) -> tuple[int, Day, list[UserSearch]]:
        """A day, kept until another one is needed: the cache of the world is too small for many phones."""
        if self._today is None or self._today[0] != day:
            with self._time.people_cpu.running():
                self._today = day, self._world.person(self.number).day(day), self._world.searches(self.number, day)
        return self._today

    def sense(self, day: int, step: int) -> None:
        """Let the phone read where its user is; a phone that is off reads nothing."""
        if not self.is_on:
            return
        if self._schedule is not None or self._ads is not None:
            self._draw("coins", day, step)
        if self._schedule is not None and not self._is_skewed and self.is_reliable:
            self._awaited = asyncio.get_running_loop().create_future()
        self.phone.sense(self.lived(day)[step])

    async def decided(self, day: int, step: int) -> None:
        """Return when the phone has published the step.

        A phone whose clock is wrong at times publishes by its own time, and one with a full disk nothing: neither is
        awaited.
        """
        if self.is_on and self._schedule is None:
            context = self.lived(day)[step]
            self._publish(Published(day, step, context, context))
        elif self._awaited is not None:
            await self._awaited
            self._awaited = None

    def released_at(self, day: int, step: int) -> str | None:
        """The context that the phone has released at a step, by its own clock; None unless that was the last step."""
        latest = self.latest
        return latest.context if latest is not None and latest[:2] == (day, step) else None

    def outcome(self, day: int, step: int) -> str:
        """The outcome of a step: missing, suppressed or released."""
        if self.lived(day)[step] is None or not self.is_on:
            return "missing"
        return "suppressed" if self.released_at(day, step) is None else "released"

    def take_published(self) -> list[tuple[Event, Published]]:
        """The steps that it has published since the last call, in order, with their events."""
        new, self._new = self._new, []
        return new

    async def prefetch(self, query: str) -> None:
        """Request ads for the present situation."""
        if self.phone.ads is not None:
            await self.phone.ads.prefetch(query)

    async def show_ad(self, query: str, arrived: dt.datetime) -> ShownAd | None:
        """The ad that the app shows."""
        return await self.phone.show_ad(APP, query, arrived)

    async def click(self, showing: str) -> None:
        """Let the user click on an ad."""
        await self._store.transact(partial(self.phone.clicked, APP, showing))

    async def round(self, query: Query | None) -> tuple[Round | None, list[Contributed]]:
        """A round of counting, and the contribution that the phone has made; without a query for decisions.

        The contribution is returned once; after a crash of the worker once more.

        Raises:
            OSError: Its disk is full. The phone tries again in its next round.
        """
        self._draw("choice", self._time.moment.day)  # of the views that count
        done = await self.phone.counting.round(announcements=query is not None)
        if done is None or not done.failures:
            self.done_with = None if query is None else query.id
        if done is None or query is None or self._reported == query.id:
            return done, []
        made = [self._contributed(query, each.cohort) for each in done.contributions if each.id == query.id]
        self._reported = query.id if made else self._reported
        return done, made

    @property
    def spent(self) -> Cost:
        """The budget that is spent or reserved, also if the phone is off or has left."""
        entries = self._store.ledger(self._settings.budget).entries(subject=self._store.phone)
        return Cost(sum(each.cost.epsilon for each in entries), sum(each.cost.delta for each in entries))

    def has_sent(self, query: str) -> bool:
        """Whether it has sent a contribution to a query: the client of a malicious phone may only believe so."""
        experience = self.experience
        return experience is None or any(each.query == query and each.contributed for each in experience.attempts)

    @property
    def experience(self) -> Experience | None:
        """The attempts of a malicious phone, and the replies."""
        return None if self.malicious is None else self.malicious.experience

    def _contributed(self, query: Query, cohort: int) -> Contributed:
        """The contribution that the phone has encrypted: the same numbers, computed again from the same seed."""
        participant = self.phone.counting.participant
        assert participant is not None  # noqa: S101  # it has contributed
        others = [each for each in participant.records.within(LIVE, query.account) if each.query != query.digest]
        found = np.array(values_of(query, self._found(query)))
        counted = query.steps(found, np.arange(query.size))
        values = query.fit(found, used=sum((each.norms for each in others), Norms(0, 0)))
        noise = query.share(self._generator(query))
        kind = None if self.malicious is None else self.malicious.kind
        return Contributed(self.number, query.id, cohort, counted, values, np.asarray(noise), kind)

    def _skew(self) -> dt.timedelta:
        """The time by which the phone's clock is ahead, when it looks."""
        self.faults.apply(self._time.moment, "skew")
        return self.faults.skew(self._time.moment)

    def _is_full(self) -> bool:
        """Whether the disk is full, when the phone writes."""
        self.faults.apply(self._time.moment, "full")
        return self.faults.is_full(self._time.moment)

    def _found(self, query: Query) -> Mapping[str, float] | None:
        found = None if self.phone.ads is None else self.phone.ads.counters(query)
        return self._counters(query) if found is None else found

    def _counters(self, _query: Query) -> Mapping[str, float]:
        with self._time.people_cpu.running():
            return self._world.counters(self.number, self._time.moment.day)

    def _generator(self, query: Query) -> np.random.Generator:
        return seeded(self._settings.seed, "noise", self.number, query.id)

    def _draw(self, use: str, *path: int | str) -> None:
        """Let the phone's generator continue with a stream of its own, whatever was drawn before."""
        stream = seeded(self._settings.seed, use, self.number, *path)
        self._rng.bit_generator.state = stream.bit_generator.state

    def _on_step(self, step: Step) -> None:
        day = (step.date - START.date()).days
        self._publish(Published(day, step.step, step.context, self._read(day, step)))
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    def _read(self, day: int, step: Step) -> str | None:
        """The context that the mask read for a step: with a wrong clock, it is that of another time."""
        mask = self.phone.mask
        if mask is not None and mask.raw.last is not None:
            return Step.decode(mask.raw.last[1]).context
        return self.lived(day)[step.step]

    def _publish(self, published: Published) -> None:
        self.latest = published
        text = f"step {published.day}, {published.step}: {published.context}"
        self._new.append((Event(order_of(self._time.clock.now()), self.number, text), published))


@contextlib.contextmanager
def _failing_calls() -> Iterator[None]:
    """Let a call fail that may succeed later."""
    try:
        yield
    except Unreachable:
        return
    except Refused as refused:
        if not refused.refusal.retry:
            raise


def is_acknowledged(done: Round, query: str) -> bool:
    """Whether a contribution to the query is acknowledged."""
    return any(each.id == query and each.state not in _NOT_ACKNOWLEDGED for each in done.contributions)
