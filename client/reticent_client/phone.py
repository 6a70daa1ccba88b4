"""A phone: its mask, its ads and its part in counts, over one store and one clock."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import numpy as np

from reticent.clock import Clock, SystemClock, first_of
from reticent.privacy import Cost
from reticent.protocol.invitation import Invitation
from reticent_client.ads.messages import ShownAd
from reticent_client.ads.runner import AdRunner
from reticent_client.ads.service import AdService
from reticent_client.ads.settings import AdSettings
from reticent_client.apps.mask_runner import HELD_DAYS, MaskRunner, OnStep
from reticent_client.apps.tokens import Apps
from reticent_client.counting.consent import Participation, Situation
from reticent_client.counting.participant import Counters, NoiseSource
from reticent_client.counting.runner import CountingRunner
from reticent_client.counting.servers import Servers
from reticent_client.counting.session import Round
from reticent_client.errors import AdsNotAllowed
from reticent_client.mask.policy import Policy
from reticent_client.mask.schedule import Schedule
from reticent_client.mask.timetable import LEAD, time_zone
from reticent_client.store import PhoneStore

__all__ = ["Phone"]


class Phone:
    """Masks contexts where it has a policy, shows ads where it has settings, and counts where it is enrolled.

        async with Phone(policy, store=PhoneStore("phone.db")) as phone:
            phone.sense("home")  # whenever something is read, from any thread
            await phone.counting.join(invitation)  # once

    Args:
        policy: The policy of the mask, or which policy decides on which day; without one no context is released.
        store: What survives a kill. Without one nothing does: see `MaskRunner`.
        participation: What the user allows in counts; what the store has kept unless given.
        budget: What the user spends on counts in all; what the store has kept unless given.
        counters: What was counted; what apps have reported unless given.
        ads: The user's settings for ads; without them no ad is shown.
        situation: Asked before each round of counting how the phone is; neither charging nor unmetered unless given.
        on_step: Called with each step of the mask as it begins.
        on_round: Called with what came of each round of counting.
        clock: What time it is; the machine's unless given.
        rng: Where the coins and the noise come from; secure generators unless given.
        noise: Where the noise of contributions comes from; `rng` unless given.
        simulation: Accept public keys that are only good for simulation.
        polling: Take part in counts by the clock. Otherwise call `counting.round`, as when a system wakes the phone up.
        servers: Makes the connection to the servers that count.
        ad_service: Makes the connection to the ad service, from its address and the certificate of its authority.
        zone: See `MaskRunner`, as for all that follow.
        hold: How long a reading counts.
        lead: How long before its beginning a step is decided.
        held_days: How many days of the stream are held for slow apps.
        first_day: The store is empty because it is new.
    """

    def __init__(
        self,
        policy: Policy | Schedule | None = None,
        *,
        store: PhoneStore | None = None,
        participation: Participation | None = None,
        budget: Cost | None = None,
        counters: Counters | None = None,
        ads: AdSettings | None = None,
        situation: Callable[[], Situation] = Situation,
        on_step: OnStep | None = None,
        on_round: Callable[[Round], None] | None = None,
        clock: Clock | None = None,
        rng: np.random.Generator | None = None,
        noise: NoiseSource | None = None,
        simulation: bool = False,
        polling: bool = True,
        servers: Callable[[Invitation], Servers] = Servers,
        ad_service: Callable[[str, bytes | None], AdService] = AdService,
        zone: dt.tzinfo | None = None,
        hold: dt.timedelta | None = None,
        lead: dt.timedelta = LEAD,
        held_days: int = HELD_DAYS,
        first_day: bool = False,
    ) -> None:
        self._owns_store = store is None
        self.store = PhoneStore() if store is None else store
        self.clock: Clock = SystemClock() if clock is None else clock
        self.apps = Apps(self.store, self.clock.now)
        """The apps that may connect."""
        self.mask: MaskRunner | None = None
        """The mask, where there is a policy."""
        if policy is not None:
            self.mask = MaskRunner(
                policy,
                store=self.store,
                zone=zone,
                clock=self.clock,
                rng=rng,
                hold=hold,
                lead=lead,
                held_days=held_days,
                first_day=first_day or self._owns_store,
                on_step=on_step,
            )
        self.ads: AdRunner | None = None
        """The part that shows ads, where there are settings."""
        if ads is not None:
            self._exact_under_mask = ads.exact_under_mask
            self.ads = AdRunner(
                ads,
                self.store,
                self.clock,
                zone=time_zone() if zone is None else zone,
                located=self._located,
                rng=rng,
                service=ad_service,
            )
        self.counting = CountingRunner(
            self.store,
            self.clock,
            counters,
            participation=participation,
            budget=budget,
            situation=situation,
            on_round=on_round,
            rates=None if self.ads is None else self.ads.counters,
            rng=rng if noise is None else noise,
            simulation=simulation,
            polling=polling,
            servers=servers,
        )
        """The part in counts: joining, leaving, and what became of contributions."""
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Begin: the next step is the first, and an enrolled phone begins with a round of counting."""
        async with contextlib.AsyncExitStack() as stack:
            if self._owns_store:
                stack.callback(self.store.close)
            if self.mask is None:
                stack.enter_context(self.store.claim())
            else:
                await stack.enter_async_context(self.mask)
            if self.ads is not None:
                await stack.enter_async_context(self.ads)
                await self.store.transact(self.ads.update_store)
            await stack.enter_async_context(self.counting)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; what was decided is stored."""
        await self._open.__aexit__(kind, error, trace)

    def sense(self, context: str | None) -> None:
        """Take a reading for the mask: where the user is now, None if the reading failed. From any thread."""
        if self.mask is not None:
            self.mask.sense(context)

    def report(self, app: str, counters: Mapping[str, float]) -> None:
        """Keep what an app has counted, as far as the user allows: see `Reports.add`. From any thread."""
        self.counting.report(app, counters)

    async def show_ad(self, app: str, query: str, arrived: dt.datetime) -> ShownAd | None:
        """The ad for an app's request: see `AdRunner.show`.

        Raises:
            AdsNotAllowed: The user does not let this app show ads.
        """
        if self.ads is None:
            raise AdsNotAllowed(f"{app!r} may not show ads")
        return await self.ads.show(app, query, arrived)

    def clicked(self, app: str, showing: str) -> None:
        """Note a click on an ad that an app has shown. From any thread."""
        if self.ads is not None:
            self.ads.clicked(app, showing)

    async def wait(self) -> None:
        """Return when the mask or the part in counts has stopped, with the error that stopped it."""
        mask = asyncio.Event().wait() if self.mask is None else self.mask.wait()
        await first_of(mask, self.counting.wait())

    def _located(self, instant: dt.datetime) -> tuple[int | None, str | None]:
        """The step at an instant, and the label by which an ad is chosen."""
        if self.mask is None:
            return None, None
        position = self.mask.position_at(instant)
        return position, self.mask.reading if self._exact_under_mask else self.mask.released(position)
