"""A small hierarchy, an ad service with a real port, and phones that show its ads by a clock of the test."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import grpc

from reticent.clock import ManualClock
from reticent.hierarchy import Attribute, Decimals, Hierarchy, Tree
from reticent.protocol.calls import RETRY_AFTER
from reticent.v1 import ads_pb2, phone_pb2
from reticent_client import Broker, Phone, Policy
from reticent_client.ads.log import LogEntry, PrivateLog
from reticent_client.ads.messages import ShownAd
from reticent_client.ads.runner import AdRunner
from reticent_client.ads.settings import AdSettings
from tests.client.apps.phones import App, at, calling, releasing
from tests.parties.waiting import until

PLACES = {"home": "40.71,-74.01", "work": "40.72,-74.02", "hospital": "40.73,-74.03", "elsewhere": "41.00,-73.00"}
INTERESTS = {"jazz": "music", "choir": "music", "wine": "food"}
QUERIES = {"latte": "cafe", "espresso": "cafe", "ramen": "restaurant"}
SEQUENCE = [(0, 0, 0), (0, 0, 1), (0, 1, 1), (5, 1, 1)]
CITY = 3
"""The level below the root."""


def small_hierarchy() -> Hierarchy:
    """Four places, three interests and three queries."""
    attributes: list[Attribute] = [Decimals("location"), Tree("interest", 2, INTERESTS), Tree("query", 2, QUERIES)]
    return Hierarchy(attributes, product(PLACES.values(), INTERESTS, QUERIES), SEQUENCE)


HIERARCHY = small_hierarchy()
REPLY_AFTER = dt.timedelta(seconds=1)
LATTE = ("40.71,-74.01", "jazz", "latte")
"""At home, with an interest in jazz, in search of a latte."""


def number(context: tuple[str, ...], level: int) -> int:
    """The number of the node of a context at a level."""
    return next(HIERARCHY.index(node) for node in HIERARCHY.ancestors(context) if node.level == level)


def wire_ad(name: str, rates: Mapping[int, float], *, payment: float = 1.0, **fields: Any) -> ads_pb2.Ad:
    """An ad of the service, with the rates of nodes by their numbers."""
    sent = [
        ads_pb2.Rate(node=node, rate=rate, low=rate / 2, high=min(1.0, rate * 2), payment=payment)
        for node, rate in rates.items()
    ]
    return ads_pb2.Ad(**{"id": name, "text": f"Buy {name}!", "category": "music", "rates": sent} | fields)


def with_rate(ad: ads_pb2.Ad, node: int) -> ads_pb2.Ad:
    """The ad, with a rate of the node if it has none."""
    return ad if ad.rates else wire_ad(ad.id, {node: 0.1}, text=ad.text, category=ad.category, cap=ad.cap)


@dataclass
class StubService:
    """An ad service: the ads of each node, or of all nodes. Ads without rates have one of the request's node."""

    ads: Sequence[ads_pb2.Ad] = ()
    of_node: dict[int, Sequence[ads_pb2.Ad]] = field(default_factory=dict)
    refusal: grpc.StatusCode | None = None
    payload: bytes | None = None
    requests: list[tuple[dt.datetime, bytes]] = field(default_factory=list)
    metadata: list[tuple[tuple[str, Any], ...]] = field(default_factory=list)
    peers: list[set[str]] = field(default_factory=list)
    deadlines: list[float | None] = field(default_factory=list)
    clock: ManualClock | None = None
    address: str = ""

    def __post_init__(self) -> None:
        self.open = asyncio.Event()
        """Whether it replies; requests wait for this."""
        self.open.set()

    async def select(self, message: bytes, context: Any) -> bytes:
        now = dt.datetime.now(dt.UTC) if self.clock is None else self.clock.now()
        self.requests.append((now, message))
        self.metadata.append(tuple(context.invocation_metadata()))
        self.deadlines.append(context.time_remaining())
        self.peers.append({key for key in context.auth_context() if key.startswith("x509")})
        await self.open.wait()
        if self.refusal is not None:
            context.set_trailing_metadata(((RETRY_AFTER, "5000"),))
            await context.abort(self.refusal, "not now")
        if self.payload is not None:
            return self.payload
        request = ads_pb2.SelectRequest.FromString(message)
        ads = [with_rate(ad, request.node) for ad in self.of_node.get(request.node, self.ads)[: request.ads]]
        return ads_pb2.SelectReply(ads=ads, rates=bytes(32)).SerializeToString()

    @property
    def nodes(self) -> list[int]:
        """The nodes of the requests."""
        return [ads_pb2.SelectRequest.FromString(message).node for _, message in self.requests]

    @contextlib.asynccontextmanager
    async def running(
        self, clock: ManualClock | None = None, credentials: grpc.ServerCredentials | None = None
    ) -> AsyncGenerator[StubService, None]:
        """Listen at a free port."""
        self.clock = clock
        server = grpc.aio.server()
        handler: Any = grpc.unary_unary_rpc_method_handler(self.select)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("reticent.v1.Ads", {"Select": handler}),))
        if credentials is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        self.address = f"127.0.0.1:{port}"
        try:
            yield self
        finally:
            self.open.set()
            await server.stop(0)


def settings_for(folder: Path, service: StubService | str, **changed: Any) -> AdSettings:
    """Settings of a user who lets the app `weather` show ads."""
    path = folder / "hierarchy.json"
    if not path.exists():
        HIERARCHY.save(path)
    address = service if isinstance(service, str) else service.address
    level = {} if "delta" in changed else {"level": CITY}
    given: dict[str, Any] = {
        "hierarchy": path,
        "service": address,
        "apps": ("weather",),
        "places": PLACES,
        "interest": "jazz",
        **level,
        **changed,
    }
    return AdSettings(**given)


@dataclass
class AdPhone:
    """A phone that shows ads, and its broker."""

    phone: Phone
    broker: Broker
    clock: ManualClock
    service: StubService
    app: App
    replies: list[tuple[dt.datetime, bytes]] = field(default_factory=list)

    @property
    def runner(self) -> AdRunner:
        assert self.phone.ads is not None
        return self.phone.ads

    @property
    def last(self) -> LogEntry:
        """The last entry of the log."""
        return PrivateLog(self.phone.store).last(1)[0]

    async def live(self, context: str | None) -> None:
        """Be in a context when the next step begins."""
        assert self.phone.mask is not None
        upcoming = self.phone.mask.next_step.instant
        await self.clock.move_to(upcoming - dt.timedelta(seconds=10))
        self.phone.sense(context)
        await self.clock.move_to(upcoming)

    async def show(self, query: str = "latte", *, wait: bool = True) -> ShownAd | None:
        """The reply to a request of the app, which is noted with its instant."""
        [shown] = await self.show_all([query], wait=wait)
        return shown

    async def show_all(self, queries: Sequence[str], *, wait: bool = True) -> list[ShownAd | None]:
        """The replies to simultaneous requests."""
        waiting = len(self.clock._waiting)
        calls = [
            asyncio.ensure_future(
                self._reply(self.app.raw("ShowAd", phone_pb2.ShowAdRequest(query=each).SerializeToString()))
            )
            for each in queries
        ]
        await until(lambda: len(self.clock._waiting) >= waiting + len(calls))
        if wait:
            await until(lambda: not self.runner._replies._requests)
        await self.clock.move_to(self.clock.now() + REPLY_AFTER)
        await until(lambda: all(each.done() for each in calls))
        return [ShownAd.of(phone_pb2.ShowAdReply.FromString(await each)) for each in calls]

    async def _reply(self, call: Any) -> bytes:
        reply: bytes = await call
        self.replies.append((self.clock.now(), reply))
        return reply


@contextlib.asynccontextmanager
async def ad_phone(
    folder: Path,
    service: StubService,
    *,
    policy: Policy | None = None,
    start: dt.datetime | None = None,
    changed: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncGenerator[AdPhone, None]:
    """A phone at noon with an app that may show ads, and the service."""
    clock = ManualClock(at("12:00") if start is None else start)
    async with service.running(clock):
        given = dict(changed or {})
        ads = settings_for(folder, given.pop("service", service), **given)
        first: dict[str, Any] = {"first_day": True, "zone": dt.UTC} | options
        async with (
            Phone(releasing() if policy is None else policy, clock=clock, ads=ads, **first) as phone,
            Broker(phone) as broker,
            calling(broker.address, phone.apps.add("weather")) as app,
        ):
            yield AdPhone(phone, broker, clock, service, app)


@contextlib.contextmanager
def in_thread(service: StubService) -> Iterator[StubService]:
    """A service for other processes, and for commands that run an event loop of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    running = service.running()
    try:
        yield asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(running.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
