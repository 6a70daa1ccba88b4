"""The ad service on the network: phones ask it for ads in a generalised context.

It notes nothing about single requests: no address, no node, no number of ads. It counts them, and reports totals.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Self

import grpc

from reticent.clock import SystemClock
from reticent.errors import ReticentError
from reticent.protocol import Refusal, Refused
from reticent.rpc import MAX_CALLS_OF_PHONE, Admission, Caller, Limits, unary
from reticent.rpc.listener import Listener
from reticent.v1 import ads_pb2 as wire
from reticent_agg.ads.folder import AdFolder, AdVersion, ServiceReport
from reticent_agg.ads.index import AdIndex
from reticent_agg.ads.messages import EncodedAds

__all__ = ["ADS", "LIMITS", "AdServer", "ServedVersion"]

ADS = "reticent.v1.Ads"
MAX_REQUEST_BYTES = 256
"""Bytes of a request, several times what it needs."""
LIMITS = Limits(message_bytes=MAX_REQUEST_BYTES, in_flight_per_connection=MAX_CALLS_OF_PHONE)

CHECK_INTERVAL = 0.25
"""Seconds between two looks for a new version."""
REPORT_INTERVAL = 5.0
"""Seconds between two reports of totals."""
RETRY_AFTER = 10.0
"""Seconds after which a phone may ask again a service that has no rates."""
MAX_CACHED_BYTES = 256 << 20
"""Of encoded ads, of all nodes together."""
MAX_WARM_NODES = 1000
"""Nodes whose ads a new version has ready before it is served: those that were requested last."""

_log = logging.getLogger(__name__)


class ServedVersion:
    """A version that is served, with the ads of the nodes that were requested."""

    def __init__(self, version: AdVersion, index: AdIndex) -> None:
        self.version = version
        self.index = index
        self.computing: dict[int, asyncio.Future[EncodedAds]] = {}
        self._cached: OrderedDict[int, EncodedAds] = OrderedDict()  # the last requested is the last one
        self._bytes = 0

    def cached(self, node: int) -> EncodedAds | None:
        """The ads for a node, if they are ready."""
        found = self._cached.get(node)
        if found is not None:
            self._cached.move_to_end(node)
        return found

    def keep(self, node: int, ads: EncodedAds) -> None:
        """Keep the ads for a node, in place of those that were not requested for the longest time."""
        self._cached[node] = ads
        self._bytes += len(ads.content)
        while self._bytes > MAX_CACHED_BYTES and len(self._cached) > 1:
            _, dropped = self._cached.popitem(last=False)
            self._bytes -= len(dropped.content)

    def last_nodes(self) -> list[int]:
        """The nodes that were requested last, the last one at the end."""
        return list(self._cached)[-MAX_WARM_NODES:]


class AdServer:
    """Serves phones inside a `with` block, and new versions of the folder as they are loaded.

    Args:
        folder: The folder of the service.
        phones: The address for phones, as host:port.
        credentials: The server's credentials; phones have no certificate.
        limits: The limits of the listener.
    """

    def __init__(
        self, folder: AdFolder, *, phones: str, credentials: grpc.ServerCredentials | None, limits: Limits = LIMITS
    ) -> None:
        self._folder = folder
        self._served: ServedVersion | None = None
        self._stamp: tuple[int, ...] | None = None
        self._rejected: str | None = None
        self._reason: str | None = None
        self._started = SystemClock().now()
        self.prepared = 0.0
        """Seconds that it took to prepare the version that is served."""
        self._served_calls = self._refused_calls = 0
        self._loader = ThreadPoolExecutor(1, "loader")
        self._selector = ThreadPoolExecutor(1, "selector")
        self._check = asyncio.Event()
        methods = {"Select": unary(Admission(limits=limits), wire.SelectRequest, self._select)}
        self._listener = Listener(phones, {ADS: methods}, credentials=credentials, limits=limits)
        self._stack = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """The address for phones, with the port that the system chose."""
        return self._listener.address

    @property
    def version(self) -> AdVersion | None:
        """The version that is served."""
        return None if self._served is None else self._served.version

    def check_folder(self) -> None:
        """Look for a new version now."""
        self._check.set()

    async def __aenter__(self) -> Self:
        """Load the current version, and listen.

        Raises:
            ValueError: The current version is damaged.
        """
        async with contextlib.AsyncExitStack() as stack:
            for each in (self._loader, self._selector):
                stack.push_async_callback(asyncio.to_thread, each.shutdown, cancel_futures=True)
            self._stamp = self._folder.stamp()
            await self._load()
            await stack.enter_async_context(self._listener)
            stack.push_async_callback(self.report, stopped=True)
            await self.report()
            self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._report_totals())]
            stack.push_async_callback(self._stop_tasks)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Answer the admitted calls, and stop."""
        await self._stack.aclose()

    async def wait(self) -> None:
        """Wait for an error that ends the service, and raise it."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _select(self, request: wire.SelectRequest, _: Caller) -> bytes:
        try:
            reply = await self._reply(request)
        except Refused:
            self._refused_calls += 1
            raise
        self._served_calls += 1
        return reply

    async def _reply(self, request: wire.SelectRequest) -> bytes:
        served = self._served
        if served is None:
            raise Refused(Refusal.UNAVAILABLE, "the ad service has no rates yet", retry_after=RETRY_AFTER)
        index = served.index
        if request.hierarchy != index.hierarchy:
            raise Refused(Refusal.OTHER_HIERARCHY)
        if not (request.HasField("node") and request.node < index.nodes):
            raise Refused(Refusal.MALFORMED, f"the hierarchy has {index.nodes} nodes, from 0 on: there is no such node")
        if not 1 <= request.ads <= index.settings.max_ads:
            raise Refused(Refusal.MALFORMED, f"a reply has 1 to {index.settings.max_ads} ads: got {request.ads}")
        ads = served.cached(request.node) or await self._computed(served, request.node)
        return index.format.reply(ads, request.ads)

    async def _computed(self, served: ServedVersion, node: int) -> EncodedAds:
        """The ads for a node, computed once for all calls that wait for them."""
        if node not in served.computing:
            loop = asyncio.get_running_loop()
            computing = served.computing[node] = loop.run_in_executor(self._selector, served.index.encoded, node)
            computing.add_done_callback(partial(_keep, served, node))
        return await asyncio.shield(served.computing[node])

    async def _follow(self) -> None:
        """Serve each new version, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_INTERVAL):
                    await self._check.wait()
            stamp = self._folder.stamp()
            if stamp != self._stamp or self._check.is_set():
                self._check.clear()
                self._stamp = stamp
                self._rejected = self._reason = None
                try:
                    await self._load()
                except (ReticentError, ValueError, OSError, MemoryError) as error:
                    _log.error("the new version cannot be loaded, the old one stays: %s", error)
                    self._reason = str(error)
                await self.report()

    async def _load(self) -> None:
        """Serve the current version of the folder, if there is one."""
        version = self._folder.current()
        if version is None:
            return
        self._rejected = version.name  # until it is served
        nodes = [] if self._served is None else self._served.last_nodes()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._served = await loop.run_in_executor(self._loader, _prepared, self._folder, version, nodes)
        self._rejected = None
        self.prepared = loop.time() - begun
        _log.info("serving version %s: %d ads, %d rates", version.name, version.ads, version.rates)

    async def _report_totals(self) -> None:
        """Report regularly, until cancelled."""
        while True:
            await asyncio.sleep(REPORT_INTERVAL)
            await self.report()

    async def report(self, *, stopped: bool = False) -> None:
        """Write the report for `reticent ads status`."""
        report = ServiceReport(
            serving=None if self._served is None else self._served.version.name,
            rejected=None if self._reason is None else self._rejected,
            reason=self._reason,
            started=self._started,
            reported=SystemClock().now(),
            stopped=stopped,
            served=self._served_calls,
            refused=self._refused_calls,
        )
        try:
            await asyncio.to_thread(self._folder.write_report, report)
        except OSError as error:
            _log.warning("the report for `reticent ads status` cannot be written: %s", error)


def _prepared(folder: AdFolder, version: AdVersion, nodes: Sequence[int]) -> ServedVersion:
    """A version, with the ads for these nodes ready."""
    served = ServedVersion(version, folder.index(version))
    for node in nodes:
        if node < served.index.nodes:
            served.keep(node, served.index.encoded(node))
    return served


def _keep(served: ServedVersion, node: int, computing: asyncio.Future[EncodedAds]) -> None:
    del served.computing[node]
    if not computing.cancelled() and computing.exception() is None:
        served.keep(node, computing.result())
