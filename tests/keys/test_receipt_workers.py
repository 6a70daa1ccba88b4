"""Receipts that processes check: the result is the same, and the processes end with the server."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from weakref import WeakSet

import grpc
import pytest

from reticent.protocol import AgreementKey, Refusal
from reticent.tls.certificates import Certificate, create
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc as services
from reticent_keys import deciding, receipt_workers
from reticent_keys.receipt_workers import ReceiptWorkers, _ReceiptProcess
from reticent_keys.receipts import CheckedReceipts, Expectation, Receipts, check
from reticent_keys.service import Service
from tests.parties.decision_requests import decide, expected, honest, request, sums
from tests.parties.key_server import LocalKeyServer, refused

SECONDS = 30.0

NOTHING = Expectation(b"", "", 0, 0, 0, b"")

SERVER = """
import time
from reticent_keys.receipt_workers import ReceiptWorkers
from reticent_keys.receipts import Expectation, Receipts
workers = ReceiptWorkers(2)
workers.submit(Expectation(b"", "", 0, 0, 0, b""), Receipts([], [])).result()
process = workers._idle.get()
print(process._process.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKeyServer]:
    monkeypatch.setattr(deciding, "FEW", 5)
    with LocalKeyServer(tmp_path / "journal.db") as local:
        local.enrolled(20)
        yield local


class Lazy(ReceiptWorkers):
    """Checks receipts when the result is wanted: as late as workers may."""

    def __init__(self, processes: int) -> None:
        super().__init__(processes)
        self.waiting = 0
        self.most = 0

    def submit(self, expectation: Expectation, some: Receipts) -> Future[CheckedReceipts]:
        workers = self
        workers.waiting += 1
        workers.most = max(workers.most, workers.waiting)

        class Result(Future[CheckedReceipts]):
            def result(self, timeout: float | None = None) -> CheckedReceipts:
                workers.waiting -= 1
                return check(expectation, some)

        return Result()


def test_few_receipts_wait_for_workers(local: LocalKeyServer) -> None:
    query = local.query()
    inputs = local.contributions(query, 0)
    with Lazy(2) as workers:
        local.server.decider._workers = workers
        made = decide(local.server, *honest(query, 0, local.key, inputs))
        assert workers.most == 2 * workers.processes + 1 < len(inputs)
        assert not workers.waiting
    assert made.outcome == wire.RELEASED
    assert sums(made) == expected(inputs)


def test_neither_few_receipts_nor_one_core_start_a_process(
    local: LocalKeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(ReceiptWorkers, "submit")
    query = local.query()
    inputs = local.contributions(query, 0)
    for processes, count in ((1, 10), (2, 5)):
        with ReceiptWorkers(processes) as workers:
            one = LocalKeyServer(
                local.path, identity=local.identity, pairs=local.pairs, query_keys=local.query_keys, workers=workers
            )
            with one:
                head, receipts = request(query, 0, local.key, [], [each.receipt for each in inputs[:count]])
                begun = one.server.decider.begin(head)
                one.server.decider.add(begun, receipts)


def test_receipts_that_are_abandoned_decide_nothing(local: LocalKeyServer) -> None:
    """Also if the decision waits for them: their sums lack some."""
    query = local.query()
    head, receipts = honest(query, 0, local.key, local.contributions(query, 0))
    with Lazy(100) as workers:
        decider = local.server.decider
        decider._workers = workers
        begun = decider.begin(head)
        decider.add(begun, list(receipts))
        decider.abandon(begun)
        refused(Refusal.UNAVAILABLE, lambda: decider.decide(begun), "abandoned")
    assert local.server.journal.decision(begun.cohort.recorded.number, 0) is None


@pytest.mark.slow
def test_the_receipts_of_a_cancelled_call_are_dropped(
    local: LocalKeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "RECEIPTS_PER_BATCH", 1)
    create(tmp_path / "certs", hosts=["localhost"], analysts=[])
    query = local.query()
    head, receipts = honest(query, 0, local.key, local.contributions(query, 0))
    batches: list[Future[CheckedReceipts]] = []
    checkings = WeakSet[deciding.Checking]()

    class Watched(ReceiptWorkers):
        def submit(self, expectation: Expectation, some: Receipts) -> Future[CheckedReceipts]:
            batches.append(super().submit(expectation, some))
            return batches[-1]

    class WatchedChecking(deciding.Checking):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            checkings.add(self)

    async def cancelled() -> None:
        certificates = [Certificate.load(tmp_path / "certs", name) for name in ("keys", "aggregation")]
        free = "localhost:0"
        service = Service(local.server, phones=free, decisions=free, certificate=certificates[0])
        credentials = certificates[1].channel_credentials()
        async with service, grpc.aio.secure_channel(service.decisions.address, credentials) as to:

            async def parts() -> AsyncIterator[wire.DecideRequest]:
                yield wire.DecideRequest(head=head)
                yield wire.DecideRequest(receipts=wire.Receipts(receipts=list(receipts)[:5]))
                await asyncio.sleep(SECONDS)

            stub: Any = services.DecidingStub(to)
            call = stub.Decide(parts())
            async with asyncio.timeout(SECONDS):
                while len(batches) < 5:  # noqa: ASYNC110  # in the server's threads
                    await asyncio.sleep(0.01)
                call.cancel()
                while not all(each.cancelled() for each in batches[1:]):  # noqa: ASYNC110  # as above
                    await asyncio.sleep(0.01)
            assert not batches[0].done()
            os.kill(stopped._process.pid, signal.SIGCONT)  # a thread of the service waits for it

    monkeypatch.setattr(deciding, "Checking", WatchedChecking)
    with Watched(2) as workers:
        local.server.decider._workers = workers
        workers._threads._max_workers = 1
        workers.submit(NOTHING, Receipts([], [])).result()
        batches.clear()
        (stopped,) = (workers._idle.get() for _ in range(workers._idle.qsize()))
        workers._idle.put(stopped)
        os.kill(stopped._process.pid, signal.SIGSTOP)
        try:
            asyncio.run(cancelled())
            assert batches[0].result(SECONDS).contributors == 1
        finally:
            stopped._process.kill()
    gc.collect()
    assert not checkings


def test_a_process_that_counts_other_receipts_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        is_running = True

        def reply(self, request: object) -> object:
            return CheckedReceipts([], [], 1)

        def end(self) -> None:
            pass

    monkeypatch.setattr(receipt_workers, "_ReceiptProcess", Process)
    with ReceiptWorkers(2) as workers:
        assert workers.submit(NOTHING, Receipts([wire.Receipt()], [None])).result() == CheckedReceipts([], [], 1)
        refused(Refusal.UNAVAILABLE, lambda: workers.submit(NOTHING, Receipts([], [])).result())


def test_the_key_of_a_query_is_not_printed() -> None:
    key = AgreementKey().to_bytes()
    assert repr(key)[2:-1] not in repr(Expectation(b"", "", 0, 0, 0, key))


@pytest.mark.slow
def test_processes_release_what_is_right_and_refuse_what_is_wrong(
    local: LocalKeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = local.query()
    with ReceiptWorkers(2) as workers:
        local.server.decider._workers = workers
        inputs = local.contributions(query, 0)
        head, receipts = honest(query, 0, local.key, inputs)
        wrong = [wire.Receipt.FromString(each.SerializeToString()) for each in receipts]
        wrong[3].signature = wrong[2].signature
        refused(Refusal.BAD_RECEIPTS, lambda: decide(local.server, head, wrong), "not signed")
        workers.submit(Expectation(b"", "", 0, 0, 0, b""), Receipts([], [])).result()  # the others have begun before
        killed = workers._idle.get(timeout=SECONDS)
        killed._process.kill()  # as the system does if memory is short
        with monkeypatch.context() as unnoticed:
            unnoticed.setattr(type(killed), "is_running", True)
            workers._idle.put(killed)
            made = decide(local.server, *honest(query, 0, local.key, inputs))
        assert made.outcome == wire.RELEASED
        assert sums(made) == expected(inputs)
        left = [workers._idle.get() for _ in range(workers._idle.qsize())]
        for process in left:
            workers._idle.put(process)
    assert left
    assert not any(process.is_running for process in [killed, *left])


@pytest.mark.slow
def test_idle_processes_that_all_end_refuse_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = [_ReceiptProcess() for _ in range(3)]
    with monkeypatch.context() as unnoticed, ReceiptWorkers(3) as workers:
        unnoticed.setattr(_ReceiptProcess, "is_running", True)
        for process in ended:
            process._process.kill()
            process._process.wait()
            workers._idle.put(process)
        assert workers.submit(NOTHING, Receipts([], [])).result(SECONDS) == check(NOTHING, Receipts([], []))


@pytest.mark.slow
def test_a_process_that_does_not_reply_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_workers, "REPLY_TIMEOUT", 5.0)  # enough to start one
    with ReceiptWorkers(2) as workers:
        workers.submit(NOTHING, Receipts([], [])).result()
        (stopped,) = (workers._idle.get() for _ in range(workers._idle.qsize()))
        workers._idle.put(stopped)
        os.kill(stopped._process.pid, signal.SIGSTOP)
        many = Receipts([wire.Receipt(signature=bytes(1 << 20))], [None])  # more than a pipe holds
        try:
            refused(Refusal.BAD_RECEIPTS, lambda: workers.submit(NOTHING, many).result(SECONDS))
        finally:
            stopped._process.kill()


@pytest.mark.slow
def test_processes_end_with_a_server_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            worker = int(server.stdout.readline())
            for each in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):  # which the server alone heeds
                os.kill(worker, each)
            time.sleep(0.1)
            assert _runs(worker)
        finally:
            server.kill()
    end = time.monotonic() + SECONDS
    while _runs(worker):
        assert time.monotonic() < end
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
