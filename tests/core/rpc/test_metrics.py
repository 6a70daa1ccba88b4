"""The listener for Prometheus: its paths, a store that fails, callers that do not finish, and calls by code."""

from __future__ import annotations

import asyncio
import errno
import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily

from reticent.address import AddressError
from reticent.protocol import Refusal, Refused
from reticent.rpc import Admission, metrics
from reticent.rpc._connections import Peer
from reticent.rpc.metrics import CallMetrics, MetricsListener, StoreMetrics, timed
from reticent.v1 import counting_pb2 as wire

LOCAL = "127.0.0.1:0"


class Store:
    """A store of one number, which may be out of reach."""

    def __init__(self) -> None:
        self.number = 1
        self.error: Exception | None = None
        self.reads = 0

    def read(self) -> Iterator[Metric]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        yield GaugeMetricFamily("number", "A number.", self.number)


def fetched(listener: MetricsListener, path: str) -> tuple[int, str]:
    host, _, port = listener.address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def test_a_process_is_healthy_at_once_and_ready_while_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "CACHED", -1.0)
    registry, store = CollectorRegistry(), Store()
    Counter("events", "Events.", registry=registry).inc(3)

    async def test() -> None:
        with MetricsListener(LOCAL, registry) as listener:

            async def get(path: str) -> tuple[int, str]:
                return await asyncio.to_thread(fetched, listener, path)

            assert await get("/-/healthy") == (200, "OK\n")
            assert (await get("/-/ready"))[0] == 503
            assert "events_total 3.0\n" in (await get("/metrics"))[1]
            with listener.serving(StoreMetrics(store.read), {"phones": Admission()}):
                assert await get("/-/ready") == (200, "OK\n")
                page = (await get("/metrics"))[1]
                assert "\nreticent_store_up 1.0\n" in page
                assert "\nnumber 1.0\n" in page
                assert "process_resident_memory_bytes" in page
                store.error = OSError(errno.EIO, "the disk is gone")
                assert (await get("/-/ready"))[0] == 503
                page = (await get("/metrics"))[1]
                assert "\nreticent_store_up 0.0\n" in page
                assert "\nnumber" not in page
                assert "events_total 3.0\n" in page
            reads = store.reads
            assert (await get("/-/ready"))[0] == 503
            assert "\nreticent_store_up 0.0\n" in (await get("/metrics"))[1]
            assert store.reads == reads, "a store that may be closed is not read"
            assert (await get("/"))[0] == 404

    asyncio.run(test())


def test_a_loop_that_hangs_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "TIMEOUT", 0.01)

    async def test() -> None:
        with MetricsListener(LOCAL) as listener, listener.serving(StoreMetrics(Store().read), {}):
            assert fetched(listener, "/-/healthy")[0] == 503  # this thread is the loop's
            assert fetched(listener, "/-/ready")[0] == 503
            assert (await asyncio.to_thread(fetched, listener, "/-/healthy"))[0] == 200

    asyncio.run(test())


def test_scrapes_in_a_row_read_the_store_once() -> None:
    store = Store()
    collector = StoreMetrics(store.read)
    for _ in range(3):
        assert [each.samples[0].value for each in collector.collect()] == [1, 1]
    assert store.reads == 1


def test_a_store_that_stays_away_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics, "CACHED", -1.0)
    store = Store()
    collector = StoreMetrics(store.read)
    for error in (OSError("first"), OSError("second"), None, OSError("third")):
        store.error = error
        assert collector.is_up() == (error is None)
    logged = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [each.rpartition(" ")[2] for each in logged] == ["first", "third"]


def test_callers_that_send_nothing_do_not_use_up_the_threads() -> None:
    with MetricsListener(LOCAL) as listener, ExitStack() as stack:
        host, _, port = listener.address.rpartition(":")
        silent = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(metrics.MAX_REQUESTS)]
        with pytest.raises((http.client.HTTPException, ConnectionError)):  # closed at once
            fetched(listener, "/-/healthy")
        for each in silent:
            each.close()
        for _ in range(100):
            try:
                assert fetched(listener, "/-/healthy")[0] == 200
            except (http.client.HTTPException, ConnectionError):
                continue
            return
        pytest.fail("closed connections hold their threads")


def test_a_caller_that_sends_slowly_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REQUEST_TIMEOUT", 0.1)
    with MetricsListener(LOCAL) as listener:
        host, _, port = listener.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=0.02) as slow:
            for _ in range(50):
                with suppress(TimeoutError):
                    slow.send(b"G")
                    assert slow.recv(1000).startswith((b"HTTP/", b"<!DOCTYPE"))
                    return
    pytest.fail("each byte gives the caller more time")


def test_a_taken_port_is_an_error_that_names_the_option() -> None:
    with MetricsListener(LOCAL) as listener, pytest.raises(AddressError, match=f"{listener.address}.*--metrics"):
        MetricsListener(listener.address)
    for wrong in ("9461", "127.0.0.1:99999", "127.0.0.1"):
        with pytest.raises(AddressError, match="cannot listen at"):
            MetricsListener(wrong)


def test_without_an_address_there_is_no_listener() -> None:
    with MetricsListener("") as listener:
        assert listener.address == ""


def test_the_calls_of_a_listener_are_counted_by_code() -> None:
    admission = Admission()

    async def failing() -> None:
        raise Refused(Refusal.LATE)

    async def broken() -> None:
        raise ZeroDivisionError

    class Context:
        async def abort(self, *_: object) -> None: ...

    async def test() -> None:
        peer = Peer("10.0.0.1", 1, 2)
        for handling in (failing(), failing(), broken()):
            await admission.serve(Context(), peer, wire.Contribution, handling)  # type: ignore[arg-type]
        with admission.calls.admit(peer), admission.calls.admit(peer) as second:
            admission.calls.mark_working(second)
            assert samples()["reticent_calls", ""] == 2
            assert samples()["reticent_calls_waiting", ""] == 1

    def samples() -> dict[tuple[str, str], float]:
        found = CallMetrics({"phones": admission}).collect()
        return {
            (sample.name, sample.labels.get("code", "")): sample.value for family in found for sample in family.samples
        }

    asyncio.run(test())
    assert {code: value for (_, code), value in samples().items() if value} == {"LATE": 2, "INTERNAL": 1}


def test_a_timed_store_is_timed_by_method() -> None:
    registry = CollectorRegistry()
    seconds = Histogram("seconds", "Seconds.", ["method"], registry=registry)
    store = timed([3, 3], seconds)
    assert store.count(3) == 2
    with pytest.raises(ValueError, match="list"):
        store.index(4)
    assert [registry.get_sample_value("seconds_count", {"method": each}) for each in ("count", "index")] == [1, 1]
