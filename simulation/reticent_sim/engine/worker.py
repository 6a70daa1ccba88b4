"""A worker: an event loop with many phones, which live by simulated time and call the real servers."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from reticent.clock import ManualClock
from reticent.protocol.invitation import Invitation
from reticent.randomness import seeded
from reticent_client import AdSettings, PhoneStore
from reticent_client.ads.service import AdService
from reticent_client.counting.servers import Servers
from reticent_client.counting.session import Round
from reticent_client.mask.chain import UNKNOWN
from reticent_sim.engine.faults import Moment, PhoneNetwork
from reticent_sim.engine.measured_servers import Traffic
from reticent_sim.engine.messages import (
    ComputePolicies,
    Contributed,
    CostReport,
    Crash,
    Finish,
    Live,
    LiveReport,
    Measure,
    RoundReport,
    Setup,
    Start,
    TakeRounds,
)
from reticent_sim.engine.observer import measured
from reticent_sim.engine.policies import Policies
from reticent_sim.engine.scenario import NO_CHECK
from reticent_sim.engine.simulated_phone import SimulatedPhone, SimulatedTime, is_acknowledged
from reticent_sim.engine.times import START, instant_of, order_of
from reticent_sim.engine.trace import Event
from reticent_sim.world.outcomes import Request

__all__ = ["PhoneWorker"]

TIMEOUT = 300.0
"""Real seconds in which the phones of a worker must have made a step."""
TIMEOUT_PER_PHONE = 1.0
"""Further seconds for each phone, where all of them call the servers."""
REACHED_WITHIN = 30.0
"""Real seconds in which a server that runs must be reached."""
AT_A_TIME = 64
"""Phones that call the servers at the same time."""
BEFORE = dt.timedelta(seconds=5)
"""The time before a step at which the phones read where their users are."""

Result = TypeVar("Result")


class PhoneWorker:
    """Runs the phones of a setup. Called with a request, it returns the reply.

    Args:
        setup: The scenario and the phones.
    """

    def __init__(self, setup: Setup) -> None:
        logging.basicConfig(filename=setup.folder / f"worker-{setup.number}.log", format="%(message)s")
        self._setup = setup
        self._scenario = setup.scenario
        self._world = setup.scenario.world
        self._settings = setup.scenario.phone_settings
        self._malice = setup.scenario.malice
        self._policies = Policies(setup.folder / "policies", self._world, setup.scenario.delta)
        self._clock = ManualClock(START - BEFORE)
        self._time = SimulatedTime(self._clock)
        self._runner = asyncio.Runner()
        self._open = contextlib.AsyncExitStack()
        self._phones: dict[int, SimulatedPhone] = {}
        self._invitations: dict[int, Invitation] = {}
        self._servers: Servers | None = None
        self._ad_service: AdService | None = None
        self._traffic = Traffic()
        self._began = time.process_time()
        self._handlers: dict[type, Callable[[Any], Any]] = {
            ComputePolicies: self._compute_policies,
            Crash: lambda _: os.kill(os.getpid(), signal.SIGKILL),
            Start: self._in_loop(self._start),
            Live: self._in_loop(self._live),
            TakeRounds: self._in_loop(self._take_rounds),
            Measure: lambda request: measured(request, self._world, self._policies),
            Finish: self._in_loop(self._finish),
        }

    def __call__(self, request: Any) -> Any:
        """The reply to a request."""
        return self._handlers[type(request)](request)

    def _in_loop(self, work: Callable[[Any], Coroutine[Any, Any, Result]]) -> Callable[[Any], Result]:
        def run(request: Any) -> Result:
            results: list[Result] = []

            async def until_done() -> None:  # without a result: the runner formats its task, which may be long
                results.append(await work(request))

            self._runner.run(until_done())
            return results[0]

        return run

    def _compute_policies(self, request: ComputePolicies) -> None:
        for routine in request.routines:
            self._policies.compute(request.check, routine)

    async def _start(self, request: Start) -> LiveReport:
        await self._clock.move_to(request.now)
        self._time.moment = request.moment
        self._invitations = {number: Invitation.from_text(text) for number, text in request.invitations.items()}
        store = PhoneStore(self._setup.folder / f"phones-{self._setup.number}.db")
        self._open.callback(store.close)
        # These keep the channels open for all phones.
        for invitation in [*self._invitations.values()][:1]:
            self._servers = await self._open.enter_async_context(Servers(invitation))
        if request.ad_service is not None:
            service = AdService(request.ad_service, self._authority.read_bytes())
            self._ad_service = await self._open.enter_async_context(service)
        for number in self._setup.phones:
            self._phones[number] = self._phone(number, store, request.ad_service)
        await self._reach_servers()
        return LiveReport(await self._switch())

    def _phone(self, number: int, store: PhoneStore, ad_service: str | None) -> SimulatedPhone:
        faults = self._setup.faults.of_phone(number)
        has_mask = self._scenario.check != NO_CHECK
        routine = self._world.person(number).routine
        return SimulatedPhone(
            number,
            self._world,
            self._settings,
            store.of(f"phone {number}"),
            self._time,
            schedule=self._policies.schedule(self._scenario.check, routine) if has_mask else None,
            ads=None if ad_service is None else self._ad_settings(number, ad_service),
            network=PhoneNetwork(faults, lambda: self._time.moment, self._traffic),
            faults=faults,
            malice=self._malice.get(number),
        )

    @property
    def _authority(self) -> Any:
        return self._setup.folder / "certs" / "ca.crt"

    def _ad_settings(self, number: int, address: str) -> AdSettings:
        delta = self._scenario.ad_delta
        return self._world.settings(number, address, self._setup.folder, delta, authority=self._authority)

    async def _switch(self) -> list[Event]:
        """Switch phones on and off as the faults say; those that have not enrolled do."""
        moment, order = self._time.moment, order_of(self._clock.now())
        events = []
        starting = []
        for phone in self._phones.values():
            faults = phone.faults
            if faults.leaves == moment and phone.is_on:
                await phone.leave()
                events.append(Event(order, phone.number, "left"))
            elif faults.is_off(moment) and phone.is_on:
                await phone.switch_off()
                events.append(Event(order, phone.number, "off"))
            elif not faults.is_off(moment) and not faults.is_full(moment) and not phone.is_on:
                starting.append(phone)
                events.append(Event(order, phone.number, "on"))
        await self._all(self._switch_on(phone) for phone in starting)
        return events

    async def _switch_on(self, phone: SimulatedPhone) -> None:
        await phone.switch_on()
        self._open.push_async_callback(phone.switch_off)
        await phone.join(self._invitations[phone.number])

    async def _reach_servers(self) -> None:
        """Wait until the servers that run can be reached: after a restart, gRPC takes some time."""
        moment = self._time.moment
        async with _within(REACHED_WITHIN, "no connection to the servers"):
            if self._servers is not None and self._setup.faults.runs("keys", moment):
                await self._servers.wait_for_key_server()
            if self._servers is not None and self._setup.faults.runs("aggregation", moment):
                await self._servers.wait_for_aggregation_server()
            if self._ad_service is not None and self._setup.faults.runs("ads", moment):
                await self._ad_service.wait()

    async def _live(self, request: Live) -> LiveReport:
        events: list[Event] = []
        requests: list[Request] = []
        total = Counter[str]()
        for step in range(request.first, request.end):
            self._time.moment = Moment(request.day, step)
            await self._clock.move_to(instant_of(request.day, step) - BEFORE)
            await self._reach_servers()
            events += await self._switch()
            phones = list(self._phones.values())
            events += await self._decide(phones, request.day, step, total)
            if self._scenario.ads:
                events += await self._show_ads(phones, request.day, step, requests, total)
        steps = slice(request.first, request.end)
        return LiveReport(
            events,
            released=total["released"],
            suppressed=total["suppressed"],
            missing=total["missing"],
            requests=requests,
            shown=total["shown"],
            clicks=total["clicks"],
            streams={
                number: phone.released[request.day][steps]
                for number, phone in self._phones.items()
                if number < request.measured
            },
        )

    async def _decide(self, phones: Sequence[SimulatedPhone], day: int, step: int, total: Counter[str]) -> list[Event]:
        """Let the masks decide a step."""
        instant = instant_of(day, step)
        for phone in phones:
            phone.sense(day, step)
        await self._clock.move_to(instant)
        async with _within(TIMEOUT, "not all phones have decided a step"):
            released = [await phone.decided(day, step) for phone in phones]
        for phone, context in zip(phones, released, strict=True):
            missing = phone.lived[day][step] is None or not phone.is_on
            total["missing" if missing else "suppressed" if context is None else "released"] += 1
        order = order_of(instant)
        return [Event(order, phone.number, f"step {context}") for phone, context in zip(phones, released, strict=True)]

    async def _show_ads(
        self,
        phones: Sequence[SimulatedPhone],
        day: int,
        step: int,
        requests: list[Request],
        total: Counter[str],
    ) -> list[Event]:
        """Let the users search, and see and click ads."""
        searching = [
            (phone, search.query)
            for phone in phones
            if phone.is_on and phone.is_reliable and phone.faults.reaches("ads", Moment(day, step))
            for search in self._world.searches(phone.number, day)
            if search.step == step
        ]
        if not searching:
            return []
        await self._all(phone.prefetch(query) for phone, query in searching)
        arrived = self._clock.now()
        showing = [asyncio.create_task(phone.show_ad(query, arrived)) for phone, query in searching]
        await asyncio.sleep(0)
        await self._clock.move_to(arrived + BEFORE)
        async with _within(TIMEOUT, "not all apps have their ads"):
            shown = [await each for each in showing]
        events, clicks = [], []
        for (phone, query), ad in zip(searching, shown, strict=True):
            label = phone.released[day][step]
            requests.append(Request(phone.number, day, step, query, None if label == UNKNOWN else label))
            clicked = ad is not None and self._world.clicks(phone.number, day, step, ad.id)
            if ad is not None and clicked:
                clicks.append(phone.click(ad.showing))
            text = f"ad {None if ad is None else ad.id}{' clicked' * clicked}"
            events.append(Event(order_of(arrived) + 1, phone.number, text))
        await asyncio.gather(*clicks)
        total["shown"] += sum(ad is not None for ad in shown)
        total["clicks"] += len(clicks)
        return events

    async def _take_rounds(self, request: TakeRounds) -> RoundReport:
        self._time.moment = request.moment
        await self._clock.move_to(request.now)
        await self._reach_servers()
        due = [
            phone
            for phone in self._phones.values()
            if _has_work(phone, request.query) and not self._is_absent(phone, request.query)
        ]
        present = [phone for phone in due if not phone.faults.is_absent(request.moment)]
        for phone in present:
            if phone.malicious is not None:
                phone.malicious.overhear(request.overheard)
        failures = Counter[str]()

        async def round_of(phone: SimulatedPhone) -> tuple[Round | None, list[Contributed]]:
            try:
                return await phone.round(request.query)
            except OSError as error:
                failures[f"no round of counting: {error.strerror}"] += 1
                return None, []

        rounds = await self._all(round_of(phone) for phone in present)
        events, contributed, acknowledged = [], [], []
        for phone, (done, made) in zip(present, rounds, strict=True):
            contributed += made
            events += [Event(request.order, phone.number, each.text) for each in made]
            if done is None:
                continue
            failures.update(str(each) for each in done.failures)
            failures.update(f"declined: {each}" for each in done.declined)
            query = request.query
            if query is not None and is_acknowledged(done, query) and phone.has_sent(query):
                acknowledged.append(phone.number)
        sent = {phone.number: phone.malicious.sent for phone in present if phone.malicious is not None}
        pending = sum(phone.done_with != request.query for phone in due)
        return RoundReport(events, contributed, acknowledged, pending, dict(failures), sent, len(present))

    def _is_absent(self, phone: SimulatedPhone, query: str | None) -> bool:
        """Whether a phone is absent by chance while a query is open. Without a query, none is."""
        absent = self._scenario.absent
        if query is None or not absent:
            return False
        return bool(seeded(self._scenario.seed, "absent", phone.number, query).random() < absent)

    async def _finish(self, _: Finish) -> CostReport:
        spent = [phone.spent for phone in self._phones.values()]
        experiences = [phone.experience for phone in self._phones.values()]
        await self._open.aclose()
        files = self._setup.folder.glob(f"phones-{self._setup.number}.db*")
        return CostReport(
            cpu_seconds=time.process_time() - self._began,
            memory=_peak_memory(),
            calls=self._traffic.calls,
            bytes_sent=self._traffic.sent,
            bytes_received=self._traffic.received,
            store_bytes=sum(path.stat().st_size for path in files),
            spent=[(each.epsilon, each.delta) for each in spent],
            malicious=[each for each in experiences if each is not None],
        )

    async def _all(self, work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
        """The results of work that calls the servers, some at a time, in order."""
        turns = asyncio.Semaphore(AT_A_TIME)

        async def in_turn(each: Coroutine[Any, Any, Result]) -> Result:
            async with turns:
                return await each

        timeout = TIMEOUT + TIMEOUT_PER_PHONE * len(self._phones)
        async with _within(timeout, "not all calls of the phones have ended"):
            return await asyncio.gather(*map(in_turn, work))


def _has_work(phone: SimulatedPhone, query: str | None) -> bool:
    """Whether a phone is on, and not done with a query, or with the decisions if there is none."""
    return phone.is_on and phone.done_with != query


@contextlib.asynccontextmanager
async def _within(seconds: float, problem: str) -> AsyncIterator[None]:
    """Let something take at most so long; then the error says what has not happened."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TimeoutError(f"{problem} within {seconds:g} s") from error


def _peak_memory() -> int:
    """The most resident memory of this process, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
