"""A phone of a simulation reports what it has published, also by a wrong clock or with a full disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from reticent.privacy import Cost
from reticent_client import AdSettings, MarkovChain, PhoneStore, Schedule, mask_sensitive
from reticent_client.ads.service import AdService
from reticent_client.mask.chain import UNKNOWN
from reticent_sim.engine.faults import Fault, Moment, PhoneFaults, PhoneNetwork
from reticent_sim.engine.measured_servers import Traffic
from reticent_sim.engine.messages import Published
from reticent_sim.engine.policies import KINDS
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.simulated_phone import SimulatedPhone, SimulatedTime
from reticent_sim.engine.times import BEFORE, START, instant_of
from reticent_sim.engine.worker_clock import WorkerClock
from reticent_sim.world.people import HOSPITAL
from reticent_sim.world.world import UserSearch, World

SCENARIO = Scenario(phones=10, days=1, routines=1)
WORLD = SCENARIO.world
LIVED = WORLD.person(0).day(0)
FIRST, END = 12, 18
"""The steps of the test: faults hold in the third and the fourth, 14 and 15."""
assert len({*LIVED[13:17]}) > 2


LABELS = sorted({UNKNOWN, HOSPITAL, *filter(None, LIVED)})
CHAIN = MarkovChain(LABELS, np.full(len(LABELS), 1 / len(LABELS)), np.full((23, *[len(LABELS)] * 2), 1 / len(LABELS)))
SCHEDULE = Schedule(dict.fromkeys(KINDS, mask_sensitive(CHAIN, sensitive={HOSPITAL})))


def phone_of(
    store: PhoneStore,
    time: SimulatedTime,
    *faults: Fault,
    ads: AdSettings | None = None,
    traffic: Traffic | None = None,
) -> SimulatedPhone:
    """Phone 0, with these faults."""
    own = PhoneFaults(faults)
    network = PhoneNetwork(own, lambda: time.moment, traffic)
    settings = SCENARIO.phone_settings
    return SimulatedPhone(
        0, WORLD, settings, store, time, schedule=SCHEDULE, ads=ads, network=network, faults=own, malice=None
    )


def published(*faults: Fault, applied: bool = True) -> list[tuple[int, Published]]:
    """What a phone publishes, with the seconds since the first step; its faults take effect, or none does."""

    async def live() -> list[tuple[int, Published]]:
        store, clock = PhoneStore(), WorkerClock(instant_of(0, FIRST) - 2 * BEFORE)
        clock.store = store
        time = SimulatedTime(clock)
        phone = phone_of(store, time, *faults)
        await phone.switch_on()
        for step in range(FIRST, END):
            time.moment = Moment(0, step)
            await clock.move_to(instant_of(0, step) - BEFORE)
            phone.sense(0, step)
            await clock.move_to(instant_of(0, step))
            async with asyncio.timeout(5):
                await phone.decided(0, step)
            await clock.move_to(instant_of(0, step) + BEFORE)
        await clock.move_to(instant_of(0, END) - BEFORE)
        assert phone.faults.take_applied() == (set(faults) if applied else set())
        await phone.switch_off()
        store.close()
        return [(event.order, each) for event, each in phone.take_published()]

    return asyncio.run(live())


def step(number: int, at: int, read: int | None = None) -> tuple[int, Published]:
    """A published step, and when it was; the mask has read the context of the same step unless given."""
    context = LIVED[number if read is None else read]
    return at, Published(0, number, context, context)


ON_TIME = [step(number, 3600 * number) for number in range(FIRST, END)]


def test_each_step_is_published_when_it_begins() -> None:
    assert published() == ON_TIME


def test_a_clock_that_is_ahead_publishes_early_what_the_phone_reads_then() -> None:
    found = published(Fault(0, 14, "skew", "phone 0", seconds=1800, steps=2))
    early = step(15, 15 * 3600 - 1800, read=14)  # the clock was set forward past the beginning of step 14
    assert found == [*ON_TIME[:2], early, *ON_TIME[4:]]


def test_a_clock_that_is_behind_publishes_late() -> None:
    found = published(Fault(0, 14, "skew", "phone 0", seconds=-1800, steps=2))
    assert found == [
        *ON_TIME[:2],
        step(14, 14 * 3600 + 1800),
        *ON_TIME[4:],
    ]  # the clock was set forward past the beginning of step 15


def test_a_full_disk_publishes_nothing() -> None:
    assert published(Fault(0, 14, "full", "phone 0", steps=2)) == [*ON_TIME[:2], *ON_TIME[4:]]


def test_faults_after_the_last_step_take_no_effect() -> None:
    faults = Fault(0, END, "skew", "phone 0", seconds=60), Fault(0, END, "full", "phone 0")
    assert published(*faults, applied=False) == ON_TIME


def test_requests_for_ads_count_as_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []

    async def select(_: AdService, request: bytes) -> bytes:
        sent.append(request)
        return b"no reply"

    monkeypatch.setattr(AdService, "select", select)
    WORLD.hierarchy.save(tmp_path / "hierarchy.json")
    traffic, store = Traffic(), PhoneStore()
    settings = WORLD.settings(0, "localhost:1", tmp_path, 0.5)

    async def live() -> None:
        phone = phone_of(store, SimulatedTime(WorkerClock(START)), ads=settings, traffic=traffic)
        await phone.switch_on()
        await phone.prefetch("sushi 1")
        await phone.switch_off()

    asyncio.run(live())
    store.close()
    assert (traffic.calls, traffic.sent, traffic.received) == (1, len(sent[0]), len(b"no reply"))


def test_a_day_is_computed_once_however_many_phones_a_worker_has(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def searches(_: World, __: int, day: int) -> list[UserSearch]:
        computed.append(day)
        return [UserSearch(day, "sushi 1")]

    monkeypatch.setattr(World, "searches", searches)
    store = PhoneStore()
    phone = phone_of(store, SimulatedTime(WorkerClock(START)))
    for day in (0, 1):
        for _ in range(FIRST, END):
            assert phone.searches(day) == [UserSearch(day, "sushi 1")]
            assert phone.lived(day) == WORLD.person(0).day(day)
    assert computed == [0, 1]
    store.close()


def test_a_phone_that_is_off_has_spent_what_its_ledger_says() -> None:
    store, budget = PhoneStore(), SCENARIO.phone_settings.budget
    cost = Cost(0.5, 1e-7)
    store.ledger(budget).reserve("a count", cost)
    phone = phone_of(store, SimulatedTime(WorkerClock(START)))
    assert not phone.is_on
    assert phone.spent == cost
    store.close()
