"""A worker: an event loop with many phones, which live by simulated time and call the real servers."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from reticent.clock import ManualClock
from reticent.protocol.invitation import Invitation
from reticent.randomness import seeded
from reticent_client import AdSettings, PhoneStore
from reticent_client.counting.records import ContributionState
from reticent_client.counting.servers import Servers
from reticent_client.mask.chain import UNKNOWN
from reticent_sim.engine.measured_servers import MeasuredServers, Traffic
from reticent_sim.engine.messages import (
    ComputePolicies,
    CostReport,
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
from reticent_sim.engine.simulated_phone import SimulatedPhone
from reticent_sim.engine.times import START, instant_of, order_of
from reticent_sim.engine.trace import Event
from reticent_sim.world.outcomes import Request

__all__ = ["PhoneWorker"]

TIMEOUT = 300.0
"""Real seconds in which the phones of a worker must have made a step."""
TIMEOUT_PER_PHONE = 1.0
"""Further seconds for each phone, where all of them call the servers."""
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
        self._setup = setup
        self._scenario = setup.scenario
        self._world = setup.scenario.world
        self._policies = Policies(setup.folder / "policies", self._world, setup.scenario.delta)
        self._clock = ManualClock(START - BEFORE)
        self._runner = asyncio.Runner()
        self._open = contextlib.AsyncExitStack()
        self._phones: dict[int, SimulatedPhone] = {}
        self._traffic = Traffic()
        self._began = time.process_time()
        self._handlers: dict[type, Callable[[Any], Any]] = {
            ComputePolicies: self._compute_policies,
            Start: self._in_loop(self._start),
            Live: self._in_loop(self._live),
            TakeRounds: self._in_loop(self._take_rounds),
            Measure: lambda request: measured(request, self._world, self._policies, self._phones),
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
        invitations = {number: Invitation.from_text(text) for number, text in request.invitations.items()}
        store = PhoneStore(self._setup.folder / f"phones-{self._setup.number}.db")
        self._open.callback(store.close)
        for invitation in [*invitations.values()][:1]:  # keeps the channels open for all phones
            await self._open.enter_async_context(Servers(invitation))
        for number in self._setup.phones:
            self._phones[number] = SimulatedPhone(
                number,
                self._world,
                self._scenario.terms,
                store.of(f"phone {number}"),
                self._clock,
                schedule=self._policies.schedule(self._scenario.check, self._world.person(number).routine)
                if self._scenario.check != NO_CHECK
                else None,
                ads=self._ad_settings(number, request.ad_service),
                servers=partial(MeasuredServers, traffic=self._traffic),
            )

        async def begin(phone: SimulatedPhone) -> None:
            await self._open.enter_async_context(phone)
            await phone.join(invitations[phone.number])

        await self._all(begin(phone) for phone in self._phones.values())
        return LiveReport([Event(order_of(self._clock.now()), number, "joined") for number in self._phones])

    def _ad_settings(self, number: int, address: str | None) -> AdSettings | None:
        if address is None:
            return None
        folder = self._setup.folder
        authority = folder / "certs" / "ca.crt"
        return self._world.settings(number, address, folder, self._scenario.ad_delta, authority=authority)

    async def _live(self, request: Live) -> LiveReport:
        events: list[Event] = []
        requests: list[Request] = []
        total = Counter[str]()
        for step in range(request.first, request.end):
            phones = list(self._phones.values())
            events += await self._decide(phones, request.day, step, total)
            if self._scenario.ads:
                events += await self._show_ads(phones, request.day, step, requests, total)
        return LiveReport(
            events, total["released"], total["suppressed"], total["missing"], requests, total["shown"], total["clicks"]
        )

    async def _decide(self, phones: Sequence[SimulatedPhone], day: int, step: int, total: Counter[str]) -> list[Event]:
        """Let the masks decide a step."""
        instant = instant_of(day, step)
        await self._clock.move_to(instant - BEFORE)
        for phone in phones:
            phone.sense(day, step)
        await self._clock.move_to(instant)
        async with asyncio.timeout(TIMEOUT):
            released = [await phone.decided(day, step) for phone in phones]
        for phone, context in zip(phones, released, strict=True):
            missing = phone.lived[day][step] is None
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
        async with asyncio.timeout(TIMEOUT):
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
        await self._clock.move_to(request.now)
        present = [phone for phone in self._phones.values() if not self._is_absent(phone.number, request)]
        rounds = await self._all(phone.round(request.day) for phone in present)
        events, contributed, acknowledged = [], [], []
        failures = Counter[str]()
        pending = 0
        for phone, (done, made) in zip(present, rounds, strict=True):
            if done is None:
                continue
            contributed += made
            events += [Event(request.order, phone.number, each.text) for each in made]
            failures.update(str(each) for each in done.failures)
            failures.update(f"declined: {each}" for each in done.declined)
            states = {record.id: record.state for record in done.contributions}
            if request.query is not None and states.get(request.query) is ContributionState.ACKNOWLEDGED:
                acknowledged.append(phone.number)
            pending += bool(done.failures)
        return RoundReport(events, contributed, acknowledged, pending, dict(failures))

    def _is_absent(self, number: int, request: TakeRounds) -> bool:
        """Whether a phone is absent in a phase, which a draw of its own decides."""
        share = self._scenario.absent if request.absent else 0.0
        return bool(seeded(self._scenario.seed, "absent", number, request.phase).random() < share)

    async def _finish(self, _: Finish) -> CostReport:
        spent = [phone.spent for phone in self._phones.values()]
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
        )

    async def _all(self, work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
        """The results of work that calls the servers, some at a time, in order."""
        turns = asyncio.Semaphore(AT_A_TIME)

        async def in_turn(each: Coroutine[Any, Any, Result]) -> Result:
            async with turns:
                return await each

        async with asyncio.timeout(TIMEOUT + TIMEOUT_PER_PHONE * len(self._phones)):
            return await asyncio.gather(*map(in_turn, work))


def _peak_memory() -> int:
    """The most resident memory of this process, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
