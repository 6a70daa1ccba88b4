"""Shows ads to apps: a request with the generalised context, a choice by the exact one, and a reply by the clock.

Every reply leaves a fixed time after its request. A little before, the phone chooses among the ads that it has by then,
and stores what it shows. So the reply's time says nothing about the cache, the service or the rules.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np

from reticent.clock import Clock
from reticent.privacy import Query
from reticent.randomness import secure
from reticent_client.ads.choice import JudgedAd, Today, choose
from reticent_client.ads.contexts import UserContext, UserContexts
from reticent_client.ads.log import LogEntry, PrivateLog
from reticent_client.ads.messages import ShownAd
from reticent_client.ads.rate_counters import RateCounters
from reticent_client.ads.reply_cache import ReplyCache
from reticent_client.ads.service import AdService
from reticent_client.ads.settings import LEAD, AdSettings
from reticent_client.errors import AdsNotAllowed
from reticent_client.store import PhoneStore

__all__ = ["SUMMARY", "AdRunner", "Located"]

SUMMARY = "ads/summary"
"""The slot of a summary of the settings, for `reticent phone ads status`."""

_TOKEN_BYTES = 16

_log = logging.getLogger(__name__)

Located = Callable[[dt.datetime], tuple[int | None, str | None]]
"""The position of the step at an instant, and the label that may be used: the released one, or None."""


@dataclass(frozen=True)
class _AdRequest:
    app: str
    arrived: dt.datetime
    position: int | None
    situated: UserContext


class AdRunner:
    """Shows ads while it is entered.

    Args:
        settings: The user's settings.
        store: The phone's store, with the log.
        clock: What time it is.
        zone: The user's time zone.
        located: The present step and its label.
        rng: Where the coins come from; secure ones unless given.
        service: Makes the connection to the service.

    Raises:
        ValueError: The settings do not fit the hierarchy.
    """

    def __init__(
        self,
        settings: AdSettings,
        store: PhoneStore,
        clock: Clock,
        *,
        zone: dt.tzinfo,
        located: Located,
        rng: np.random.Generator | None = None,
        service: Callable[[str, bytes | None], AdService] = AdService,
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._zone = zone
        self._located = located
        self._rng = secure() if rng is None else rng
        self._contexts = UserContexts(settings)
        self._log = PrivateLog(store)
        self._counters = RateCounters(self._contexts, self._log, clock.now, self._rng)
        authority = None if settings.authority is None else settings.authority.read_bytes()
        self._service = service(settings.service, authority)
        self._replies = ReplyCache(
            self._service,
            self._contexts,
            clock,
            ads=settings.ads,
            cache_for=dt.timedelta(seconds=settings.cache_for),
        )
        self._logged_problem: str | None = None
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Begin; the connection to the service is made with the first request."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._service)
            stack.push_async_callback(self._replies.close)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        await self._open.__aexit__(kind, error, trace)

    def update_store(self) -> None:
        """Delete old entries of the log, and write a summary of the settings for `reticent phone ads status`."""
        before = self._clock.now() - dt.timedelta(days=self._settings.keep_days)
        self._log.forget(before, before.astimezone(self._zone).date())
        self._store.slot(SUMMARY).write(json.dumps(self.summary()))

    def summary(self) -> dict[str, Any]:
        """The settings and the cut, as plain data."""
        cut, settings = self._contexts.cut, self._settings
        return {
            "service": settings.service,
            "hierarchy": self._contexts.hierarchy.fingerprint,
            "contexts": len(self._contexts.hierarchy.contexts),
            "nodes": len(cut.indices),
            "level": settings.level,
            "delta": settings.delta,
            "disclosure": self._contexts.disclosure,
            "apps": list(settings.apps),
            "max_per_day": settings.max_per_day,
            "exact_under_mask": settings.exact_under_mask,
        }

    def counters(self, query: Query) -> Mapping[str, float] | None:
        """The counters for a query of rates: see `RateCounters.for_query`. From any thread."""
        return self._counters.for_query(query)

    async def show(self, app: str, query: str, arrived: dt.datetime) -> ShownAd | None:
        """The ad for the user's situation; None if none may be shown. It returns a fixed time after the request.

        Simultaneous requests are decided one after the other, in the order of their arrival, so that the user's caps
        hold for all apps together.

        Args:
            app: The app.
            query: What the user searches for in it.
            arrived: The instant of the request.

        Raises:
            AdsNotAllowed: The user does not let this app show ads.
        """
        if app not in self._settings.apps:
            raise AdsNotAllowed(f"{app!r} may not show ads")
        request = self._request(app, query, arrived)
        self._replies.request(request.situated.node)
        leaves = arrived + dt.timedelta(seconds=self._settings.reply_after)
        await self._clock.wait_until(leaves - dt.timedelta(seconds=LEAD))
        try:
            shown = await self._store.transact(partial(self._decide, request))
        except OSError as error:
            _log.error("no ad is shown, because it cannot be stored: %s", error)
            shown = None
        if self._replies.problem != self._logged_problem:
            self._logged_problem = self._replies.problem
            _log.warning("ads: %s", self._logged_problem or "the service replies again")
        await self._clock.wait_until(leaves)
        return shown

    async def prefetch(self, query: str) -> None:
        """Request the ads for the user's present situation, unless the phone has them, and wait for the reply.

        An app that shows an ad soon after does not depend on how fast the service is.
        """
        fetching = self._replies.request(self._request("", query, self._clock.now()).situated.node)
        if fetching is not None:
            await fetching

    async def preview(self, query: str) -> LogEntry:
        """The outcome of a request now, with its explanation. It waits for the service, and stores nothing."""
        await self.prefetch(query)
        return self._considered(self._request("", query, self._clock.now()))[0]

    def clicked(self, app: str, showing: str) -> None:
        """Note a click on an ad that this app has shown. From any thread."""
        self._log.click(app, showing, self._clock.now())

    def _request(self, app: str, query: str, arrived: dt.datetime) -> _AdRequest:
        position, label = self._located(arrived)
        return _AdRequest(app, arrived, position, self._contexts.situated(label, query))

    def _decide(self, request: _AdRequest) -> ShownAd | None:
        entry, shown = self._considered(request)
        self._log.add(entry, dt.timedelta(days=self._settings.keep_days))
        return shown

    def _considered(self, request: _AdRequest) -> tuple[LogEntry, ShownAd | None]:
        """The choice among the ads that the phone has now; nothing is stored."""
        situated, local = request.situated, request.arrived.astimezone(self._zone)
        reply = self._replies.fresh(situated.node)
        today = Today(local.time(), self._log.views_on(local.date()))
        choice = choose(() if reply is None else reply.ads, situated.path, self._contexts.rules, today)
        showing = self._rng.bytes(_TOKEN_BYTES).hex()  # drawn in every case: later ones do not depend on this outcome
        shown = None if choice.shown is None else ShownAd(showing, choice.shown.id, choice.shown.text)
        explanation = {
            "age": None if reply is None else (self._clock.now() - reply.received).total_seconds(),
            "problem": self._replies.problem if reply is None else None,
            "candidates": [self._explained(each) for each in choice.candidates],
        }
        entry = LogEntry(
            at=request.arrived,
            day=local.date(),
            app=request.app,
            position=request.position,
            context=situated.values,
            node=str(self._contexts.hierarchy.nodes[situated.node]),
            ad=None if shown is None else shown.id,
            showing=None if shown is None else showing,
            explanation=explanation,
        )
        return entry, shown

    def _explained(self, candidate: JudgedAd) -> dict[str, Any]:
        rate = candidate.rate
        return {
            "ad": candidate.ad.id,
            "category": candidate.ad.category,
            "removed_by": dict(candidate.removed_by),
            "revenue": candidate.revenue,
            "rate": None
            if rate is None
            else {**rate._asdict(), "node": str(self._contexts.hierarchy.nodes[rate.node])},
        }
