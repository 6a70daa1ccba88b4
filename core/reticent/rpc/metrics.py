"""The metrics of a server's process for Prometheus, on an HTTP listener of their own.

The module needs an extra, `prometheus_client`. Each role names its metrics in its own module `metrics`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Histogram,
    Metric,
    ProcessCollector,
    disable_created_metrics,
    make_wsgi_app,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from reticent.address import AddressError, is_local, socket_address
from reticent.errors import ReticentError
from reticent.protocol import Refusal
from reticent.rpc.admission import INTERNAL, Admission

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["SECONDS", "CallMetrics", "MetricsListener", "StoreMetrics", "timed"]

_log = logging.getLogger(__name__)

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
"""The buckets of histograms of durations."""
CACHED = 3.0
"""Seconds for which the metrics from a store are kept."""
TIMEOUT = 5.0
"""Seconds to wait for the event loop, for another request that reads the store, or for a caller that reads."""
REQUEST_TIMEOUT = 3.0
"""Seconds in which a caller must have sent its whole request."""
MAX_REQUESTS = 8
"""Requests at a time. Further ones are closed at once."""

_STOP = 0.05  # seconds to stop the listener, at most

disable_created_metrics()  # type: ignore[no-untyped-call]  # it would add a second series to each one

Store = TypeVar("Store")


class MetricsListener:
    """Serves the metrics of this process in a thread, inside a `with` block.

    `/metrics` returns the metrics. `/-/healthy` returns 200 while the process works, and `/-/ready` while it serves
    callers.

    Args:
        address: host:port; port 0 takes a free one. If it is empty, there is no listener.
        collectors: The metrics, beside those of the process itself.

    Raises:
        AddressError: The address is taken, or is not one.
    """

    def __init__(self, address: str, *collectors: Collector | CollectorRegistry) -> None:
        self.address = address
        """The address, with its actual port."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: StoreMetrics | None = None
        self._registry = CollectorRegistry()
        for each in (ProcessCollector(registry=None), *collectors):
            self._registry.register(each)
        self._metrics = make_wsgi_app(self._registry)
        self._server: _Server | None = None
        if not address:
            return
        self._server = _listening(address)
        self._server.set_app(self._respond)
        self.address = f"{address.rpartition(':')[0]}:{self._server.server_port}"
        if not is_local(address):
            _log.warning("other machines can read the metrics at %s, without TLS", self.address)

    def __enter__(self) -> Self:
        """Start listening."""
        if self._server is not None:
            threading.Thread(target=self._server.serve_forever, args=[_STOP], name="metrics", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    @contextmanager
    def serving(self, store: StoreMetrics, admissions: Mapping[str, Admission]) -> Iterator[None]:
        """The process serves callers with the running event loop inside this block.

        Args:
            store: What the process keeps.
            admissions: Of the calls of each listener, by its name.
        """
        self._registry.register(store)
        self._registry.register(CallMetrics(admissions))
        self._loop, self._store = asyncio.get_running_loop(), store
        try:
            yield
        finally:
            self._store = None
            store.close()

    def _respond(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return cast("Iterable[bytes]", self._metrics(environ, start_response))
        status = HTTPStatus.NOT_FOUND
        if path in {"/-/healthy", "/-/ready"}:
            is_good = self._is_healthy() if path == "/-/healthy" else self._is_ready()
            status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{status.phrase}\n".encode()]

    def _is_healthy(self) -> bool:
        """Whether the event loop answers; a process that starts has none yet."""
        if self._loop is None:
            return True
        try:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result(TIMEOUT)
        except (TimeoutError, RuntimeError):  # the loop hangs, or is closed
            return False
        return True

    def _is_ready(self) -> bool:
        return self._store is not None and self._is_healthy() and self._store.is_up()


class StoreMetrics(Collector):
    """Metrics that are read from a store at each scrape, at most once in `CACHED` seconds.

    While the store cannot be read, there is only `reticent_store_up`.

    Args:
        read: Reads the store, by few bounded statements.
    """

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._known: list[Metric] = []
        self._is_up = True
        self._read_at = float("-inf")

    def collect(self) -> Iterator[Metric]:
        """The metrics, and whether the store can be read."""
        is_up = self.is_up()
        yield GaugeMetricFamily("reticent_store_up", "Whether the store can be read: 1 or 0.", is_up)
        yield from self._known if is_up else ()

    def is_up(self) -> bool:
        """Whether the store can be read now."""
        if not self._lock.acquire(timeout=TIMEOUT):
            return False  # another request waits for the store
        try:
            if monotonic() - self._read_at >= CACHED:
                self._known, self._is_up = self._fresh()
                self._read_at = monotonic()
            return self._is_up
        finally:
            self._lock.release()

    def close(self) -> None:
        """Wait for the present reading, and read no more."""
        with self._lock:
            self._is_up, self._read_at = False, float("inf")

    def _fresh(self) -> tuple[list[Metric], bool]:
        try:
            return list(self._read()), True
        except (OSError, ReticentError) as error:
            level = logging.WARNING if self._is_up else logging.DEBUG  # once for all scrapes in a row
            _log.log(level, "the store cannot be read for metrics: %s", error)
            return [], False


class CallMetrics(Collector):
    """The calls of the listeners of this process.

    Args:
        admissions: Of each listener, by its name.
    """

    def __init__(self, admissions: Mapping[str, Admission]) -> None:
        self._admissions = admissions

    def collect(self) -> Iterator[Metric]:
        """The refusals by code, and the calls that are admitted now."""
        refusals = CounterMetricFamily("reticent_refusals", "Calls refused, by code.", labels=["listener", "code"])
        calls = GaugeMetricFamily("reticent_calls", "Calls admitted now.", labels=["listener"])
        waiting = GaugeMetricFamily(
            "reticent_calls_waiting", "Calls admitted now that wait for their caller.", labels=["listener"]
        )
        for listener, admission in self._admissions.items():
            for code in (*(each.name for each in Refusal), INTERNAL):
                refusals.add_metric([listener, code], admission.refusals[code])
            calls.add_metric([listener], admission.calls.size)
            waiting.add_metric([listener], admission.calls.waiting)
        yield from (refusals, calls, waiting)


def timed(store: Store, seconds: Histogram) -> Store:
    """A store whose methods are timed, each under the label of its name."""
    return cast("Store", _Timed(store, seconds))


class _Timed(Generic[Store]):
    def __init__(self, store: Store, seconds: Histogram) -> None:
        self._store = store
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found
        series = self._seconds.labels(name)

        @functools.wraps(found)
        def method(*arguments: Any, **named: Any) -> Any:
            with series.time():
                return found(*arguments, **named)

        setattr(self, name, method)
        return method


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """A thread for each request, up to a number."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, family: int, address: tuple[str, int]) -> None:
        self.address_family = family
        self._free = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without the lookup of the host's name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        timer = threading.Timer(REQUEST_TIMEOUT, _read_no_more, [request])
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a request for metrics failed", exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # the name of the library
        _log.debug(format, *arguments)


def _read_no_more(request: socket.socket) -> None:
    """A handler that waits for the rest of a request finds its end. A reply can still be sent."""
    with suppress(OSError):  # the caller is gone
        request.shutdown(socket.SHUT_RD)


def _listening(address: str) -> _Server:
    family, host, port = socket_address(address)
    try:
        return _Server(family, (host, port))
    except (OSError, OverflowError) as error:
        raise AddressError(
            f"cannot serve metrics at {address}: {error}; give another address with --metrics, port 0 for a free "
            "one, or '' for none"
        ) from error
