"""The ads of a step: users search, and see and click ads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from reticent_client.mask.chain import UNKNOWN
from reticent_sim.engine.faults import Moment
from reticent_sim.engine.simulated_phone import SimulatedPhone, SimulatedTime
from reticent_sim.engine.times import BEFORE, order_of
from reticent_sim.engine.trace import Event
from reticent_sim.engine.worker_clock import TIMEOUT, WorkerClock, some_at_a_time, within
from reticent_sim.world.outcomes import Request
from reticent_sim.world.world import World

__all__ = ["ShownAds", "show_ads"]


class ShownAds(NamedTuple):
    """The ads of a step.

    Args:
        events: For the trace.
        requests: Of apps for ads.
        shown: The number of shown ads.
        clicks: The number of clicks on them.
    """

    events: Sequence[Event] = ()
    requests: Sequence[Request] = ()
    shown: int = 0
    clicks: int = 0


async def show_ads(
    phones: Sequence[SimulatedPhone], world: World, clock: WorkerClock, time: SimulatedTime, *, day: int, step: int
) -> ShownAds:
    """Let the users of all phones search, and see and click ads."""
    searching = [
        (phone, search.query)
        for phone in phones
        if phone.is_on and phone.is_reliable
        for search in phone.searches(day)
        if search.step == step and phone.faults.reaches("ads", Moment(day, step))
    ]
    if not searching:
        return ShownAds()
    await some_at_a_time([phone.prefetch(query) for phone, query in searching], len(phones))
    arrived = clock.now()
    showing = [asyncio.create_task(phone.show_ad(query, arrived)) for phone, query in searching]
    await asyncio.sleep(0)
    await clock.move_to(arrived + BEFORE)
    async with within(TIMEOUT, "not all apps have their ads"):
        shown = [await each for each in showing]
    events, requests, clicks = [], [], []
    for (phone, query), ad in zip(searching, shown, strict=True):
        label = phone.released_at(day, step)
        requests.append(Request(phone.number, day, step, query, None if label == UNKNOWN else label))
        with time.people_cpu.running():
            clicked = ad is not None and world.clicks(phone.number, day, step, ad.id)
        if ad is not None and clicked:
            clicks.append(phone.click(ad.showing))
        text = f"ad {None if ad is None else ad.id}{' clicked' * clicked}"
        events.append(Event(order_of(arrived) + 1, phone.number, text))
    await asyncio.gather(*clicks)
    return ShownAds(events, requests, sum(ad is not None for ad in shown), len(clicks))
