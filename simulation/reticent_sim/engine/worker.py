"""A worker: an event loop with many phones, which live by simulated time and call the real servers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from reticent.protocol.invitation import Invitation
from reticent_client import AdSettings, PhoneStore
from reticent_client.ads.service import AdService
from reticent_client.counting.servers import Servers
from reticent_client.counting.session import Round
from reticent_sim.engine.faults import Fault, Moment, PhoneNetwork
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
    Published,
    RoundReport,
    Setup,
    Start,
    TakeRounds,
)
from reticent_sim.engine.observer import measured
from reticent_sim.engine.policies import Policies
from reticent_sim.engine.scenario import NO_CHECK
from reticent_sim.engine.shown_ads import show_ads
from reticent_sim.engine.simulated_phone import SimulatedPhone, SimulatedTime, is_acknowledged
from reticent_sim.engine.times import BEFORE, START, instant_of, order_of
from reticent_sim.engine.trace import Event
from reticent_sim.engine.usage import CpuMeter, Reported, Usage, peak_memory
from reticent_sim.engine.worker_clock import TIMEOUT, WorkerClock, some_at_a_time, within
from reticent_sim.world.outcomes import Request

__all__ = ["PhoneWorker"]

REACHED_WITHIN = 30.0
"""Real seconds in which a server that runs must be reached."""
CRASH_AFTER = 0.005
"""Real seconds after which a worker dies that crashes in a round: further rounds have begun."""

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
        self._clock = WorkerClock(START - BEFORE)
        self._time = SimulatedTime(self._clock)
        self._runner = asyncio.Runner()
        self._open = contextlib.AsyncExitStack()
        self._phones: dict[int, SimulatedPhone] = {}
        self._invitations: dict[int, Invitation] = {}
        self._servers: dict[int, Servers] = {}  # by the number of the aggregation server
        self._ad_service: AdService | None = None
        self._traffic = Traffic()
        self._cpu = CpuMeter()  # of requests to phones, and of the people in them
        self._reported_cpu = 0.0
        self._handlers: dict[type, Callable[[Any], Any]] = {
            ComputePolicies: self._compute_policies,
            Crash: lambda _: _die(),
            Start: self._in_loop(self._start),
            Live: self._in_loop(self._live),
            TakeRounds: self._in_loop(self._take_rounds),
            Measure: lambda request: measured(request, self._world, self._policies),
            Finish: self._in_loop(self._finish),
        }

    def __call__(self, request: Any) -> Reported:
        """The reply to a request, and what it has taken."""
        return Reported(self._handlers[type(request)](request), self._usage())

    def _usage(self) -> Usage:
        """The usage since the last report."""
        before, self._reported_cpu = self._reported_cpu, time.process_time()
        people, phones = self._time.people_cpu, self._cpu.seconds - self._time.people_cpu.seconds
        experiences = [each.malicious.take_experience() for each in self._phones.values() if each.malicious is not None]
        usage = Usage(
            phones_cpu=phones,
            other_cpu=self._reported_cpu - before - phones,
            calls=self._traffic.calls,
            bytes_sent=self._traffic.sent,
            bytes_received=self._traffic.received,
            experiences=tuple(each for each in experiences if each is not None),
        )
        self._cpu.seconds = people.seconds = 0.0
        self._traffic.calls = self._traffic.sent = self._traffic.received = 0
        return usage

    def _in_loop(self, work: Callable[[Any], Coroutine[Any, Any, Result]]) -> Callable[[Any], Result]:
        def run(request: Any) -> Result:
            results: list[Result] = []

            async def until_done() -> None:  # without a result: the runner formats its task, which may be long
                results.append(await work(request))

            with self._cpu.running():
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
        self._clock.store = store
        # These keep the channels open for all phones.
        for phone, invitation in self._invitations.items():
            number = phone % self._scenario.aggregation_servers
            if number not in self._servers:
                self._servers[number] = await self._open.enter_async_context(Servers(invitation))
        if request.ad_service is not None:
            service = AdService(request.ad_service, self._authority.read_bytes())
            self._ad_service = await self._open.enter_async_context(service)
        for number in self._setup.phones:
            self._phones[number] = self._phone(number, store, request.ad_service)
        await self._reach_servers()
        return LiveReport(await self._switch(), applied=self._take_applied())

    def _phone(self, number: int, store: PhoneStore, ad_service: str | None) -> SimulatedPhone:
        faults = self._setup.faults.of_phone(number, self._scenario.aggregation_servers)
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
            if faults.is_off(moment):
                faults.apply(moment, "absent")
            if faults.leaves == moment and phone.is_on:
                faults.apply_move("leave")
                await phone.leave()
                events.append(Event(order, phone.number, "left"))
            elif faults.is_off(moment) and phone.is_on:
                await phone.switch_off()
                events.append(Event(order, phone.number, "off"))
            elif not phone.is_on and not faults.is_off(moment) and faults.is_full(moment):
                faults.apply(moment, "full")
            elif not phone.is_on and not faults.is_off(moment):
                faults.apply_move("join")
                starting.append(phone)
                events.append(Event(order, phone.number, "on"))
        await some_at_a_time([self._switch_on(phone) for phone in starting], len(self._phones))
        return events

    async def _switch_on(self, phone: SimulatedPhone) -> None:
        await phone.switch_on()
        self._open.push_async_callback(phone.switch_off)
        await phone.join(self._invitations[phone.number])

    async def _reach_servers(self) -> None:
        """Wait until the servers that run can be reached: after a restart, gRPC takes some time."""
        moment = self._time.moment
        async with within(REACHED_WITHIN, "no connection to the servers"):
            for number, servers in self._servers.items():
                if self._setup.faults.runs("keys", moment):
                    await servers.wait_for_key_server()
                if self._setup.faults.runs("aggregation", moment, number):
                    await servers.wait_for_aggregation_server()
            if self._ad_service is not None and self._setup.faults.runs("ads", moment):
                await self._ad_service.wait()

    async def _live(self, request: Live) -> LiveReport:
        events: list[Event] = []
        requests: list[Request] = []
        published: dict[int, list[Published]] = {}
        total = Counter[str]()
        for step in range(request.first, request.end):
            self._time.moment = Moment(request.day, step)
            await self._clock.move_to(instant_of(request.day, step) - BEFORE)
            await self._reach_servers()
            events += await self._switch()
            phones = list(self._phones.values())
            await self._decide(phones, request.day, step)
            events += self._take_published(published)
            total.update(phone.outcome(request.day, step) for phone in phones)
            if self._scenario.ads:
                ads = await show_ads(phones, self._world, self._clock, self._time, day=request.day, step=step)
                events += ads.events
                requests += ads.requests
                total.update(shown=ads.shown, clicks=ads.clicks)
            await self._clock.move_to(instant_of(request.day, step) + BEFORE)  # whether anyone has searched or not
        return LiveReport(
            events,
            released=total["released"],
            suppressed=total["suppressed"],
            missing=total["missing"],
            requests=requests,
            shown=total["shown"],
            clicks=total["clicks"],
            published=published,
            applied=self._take_applied(),
        )

    async def _decide(self, phones: Sequence[SimulatedPhone], day: int, step: int) -> None:
        """Let the masks decide a step."""
        instant = instant_of(day, step)
        for phone in phones:
            phone.sense(day, step)
        await self._clock.move_to(instant)
        async with within(TIMEOUT, "not all phones have decided a step"):
            for phone in phones:
                await phone.decided(day, step)

    def _take_published(self, published: dict[int, list[Published]]) -> list[Event]:
        """The events of all steps that were published since the last call; those of measured phones are reported."""
        events: list[Event] = []
        for number, phone in self._phones.items():
            new = phone.take_published()
            events += [event for event, _ in new]
            if number in self._setup.measured:
                published.setdefault(number, []).extend(each for _, each in new)
        return events

    def _take_applied(self) -> frozenset[Fault]:
        """The faults of phones that have taken effect since the last report."""
        return frozenset(each for phone in self._phones.values() for each in phone.faults.take_applied())

    async def _take_rounds(self, request: TakeRounds) -> RoundReport:
        self._time.moment = request.moment
        await self._clock.move_to(request.now)
        await self._reach_servers()
        query = None if request.query is None else request.query.id  # decisions are due without one
        due = [
            phone
            for phone in self._phones.values()
            if phone.is_on and phone.done_with != query and not self._scenario.is_absent(phone.number, query)
        ]
        present = [phone for phone in due if not phone.faults.is_absent(request.moment)]
        for phone in {*due} - {*present}:
            phone.faults.apply(request.moment, "absent", "slow")
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

        if request.crash:
            await some_at_a_time([round_of(phone) for phone in present[: -(-len(present) // 2)]], len(self._phones))
            asyncio.get_running_loop().call_later(CRASH_AFTER, _die)
            await some_at_a_time([round_of(phone) for phone in present], len(self._phones))
            _die()
        rounds = await some_at_a_time([round_of(phone) for phone in present], len(self._phones))
        published: dict[int, list[Published]] = {}
        events, contributed, acknowledged = self._take_published(published), [], []
        for phone, (done, made) in zip(present, rounds, strict=True):
            contributed += made
            if done is None:
                continue
            failures.update(str(each) for each in done.failures)
            failures.update(f"declined: {each}" for each in done.declined)
            if query is not None and is_acknowledged(done, query) and phone.has_sent(query):
                acknowledged.append(phone.number)
        sent = {phone.number: phone.malicious.sent for phone in present if phone.malicious is not None}
        pending = sum(phone.done_with != query for phone in due)
        return RoundReport(
            events,
            contributed,
            acknowledged,
            pending,
            dict(failures),
            sent,
            present=len(present),
            published=published,
            applied=self._take_applied(),
        )

    async def _finish(self, _: Finish) -> CostReport:
        spent = [phone.spent for phone in self._phones.values()]
        await self._open.aclose()
        files = self._setup.folder.glob(f"phones-{self._setup.number}.db*")
        return CostReport(
            memory=peak_memory(),
            store_bytes=sum(path.stat().st_size for path in files),
            spent=[(each.epsilon, each.delta) for each in spent],
        )


def _die() -> None:
    """Die as if killed."""
    os.kill(os.getpid(), signal.SIGKILL)
