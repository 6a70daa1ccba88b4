"""Time until 1000 apps have received a step, against a bare gRPC stream; the broker's memory over a month of steps.

The two servers share a process. The apps are in another one, which reports the time when the last of them has a step.
The bare server is that of a tutorial: each subscriber has a queue, and receives whatever is put there.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import json
import statistics
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc

from benchmarks.chains import learned
from benchmarks.measure import Row, memory, seconds, table
from reticent.clock import ManualClock
from reticent.v1 import phone_pb2, phone_pb2_grpc
from reticent_client import simulatable
from reticent_client.apps.broker import Broker
from reticent_client.apps.messages import SIZE
from reticent_client.phone import Phone
from reticent_client.store import PhoneStore

APPS = 1000
PER_CHANNEL = 100
STEPS = 48
WARM_UP = 5
MONTH = 30  # days
TARGET = 1.5
START = dt.datetime(2027, 2, 1, tzinfo=dt.UTC)
LOCAL = "127.0.0.1:0"
BARE, OURS = "bare", "reticent"
DEADLINE = 120.0  # seconds for anything


class BareStream(phone_pb2_grpc.PhoneServicer):
    """The rival: a stream of messages."""

    def __init__(self) -> None:
        self._message = phone_pb2.Step()
        self._waiting: list[asyncio.Queue[phone_pb2.Step]] = []

    def write(self, message: phone_pb2.Step) -> None:
        """Send a message to every subscriber."""
        self._message = message
        for queue in self._waiting:
            queue.put_nowait(message)

    async def Subscribe(  # noqa: N802  # the proto's name
        self, request: phone_pb2.SubscribeRequest, context: object
    ) -> AsyncIterator[phone_pb2.Step]:
        """Yield each message when it comes."""
        queue: asyncio.Queue[phone_pb2.Step] = asyncio.Queue()
        self._waiting.append(queue)
        while True:
            yield await queue.get()

    async def Current(self, request: phone_pb2.CurrentRequest, context: object) -> phone_pb2.Step:  # noqa: N802
        """The last message."""
        return self._message

    async def Report(self, request: phone_pb2.ReportRequest, context: object) -> phone_pb2.ReportReply:  # noqa: N802
        """Nothing is kept."""
        return phone_pb2.ReportReply()

    async def ShowAd(self, request: phone_pb2.ShowAdRequest, context: object) -> phone_pb2.ShowAdReply:  # noqa: N802
        """No ad."""
        return phone_pb2.ShowAdReply()


def run() -> Iterator[str]:
    """The time for a step to reach all apps, and the memory after a month of steps."""
    times, memory = asyncio.run(asyncio.wait_for(_measure(), DEADLINE * 4))
    ours, bare = statistics.median(times[OURS]), statistics.median(times[BARE])
    worst = {name: max(each) for name, each in times.items()}
    rows = [
        Row(f"median of {STEPS} steps", seconds(ours), seconds(bare), target=f"{ours / bare:.2f}; at most {TARGET}"),
        Row("slowest step", seconds(worst[OURS]), seconds(worst[BARE])),
    ]
    yield table(f"A step reaches {APPS} subscribers (the rival is a bare gRPC stream)", rows)
    first, last = memory
    rows = [Row("after 2 days", f"{first:.1f} MB"), Row(f"after {MONTH} days", f"{last:.1f} MB", target="the same")]
    yield table(f"Memory of the broker with {APPS} subscribers, {STEPS} steps a day", rows)


async def _measure() -> tuple[dict[str, list[float]], tuple[float, float]]:
    policy = simulatable(learned(STEPS, 11, 30, seed=1), sensitive={"place 3"}, delta=0.1)
    with TemporaryDirectory() as folder, contextlib.closing(PhoneStore(Path(folder) / "phone.db")) as store:
        clock = ManualClock(START - dt.timedelta(seconds=30))
        phone = Phone(policy, store=store, clock=clock, zone=dt.UTC, first_day=True)
        tokens = [phone.apps.add(f"app {number}") for number in range(APPS)]
        bare, bare_server = BareStream(), grpc.aio.server()
        phone_pb2_grpc.add_PhoneServicer_to_server(bare, bare_server)
        port = bare_server.add_insecure_port(LOCAL)
        await bare_server.start()
        async with phone, Broker(phone) as broker:
            apps = await _start_apps({BARE: f"127.0.0.1:{port}", OURS: broker.address}, tokens)
            try:
                times: dict[str, list[float]] = {OURS: [], BARE: []}
                for _ in range(WARM_UP + STEPS):
                    times[OURS].append(await _our_step(phone, clock, apps))
                    begun = time.monotonic()
                    bare.write(phone_pb2.Step(padding=bytes(SIZE - 3)))
                    times[BARE].append(await _last_received(apps) - begun)
                assert phone.mask is not None
                while phone.mask.next_step.instant < START + dt.timedelta(days=2):
                    await _our_step(phone, clock, apps)
                early = memory()
                assert phone.mask is not None
                while phone.mask.next_step.instant < START + dt.timedelta(days=MONTH):
                    await _our_step(phone, clock, apps)
                late = memory()
            finally:
                apps.terminate()
                await apps.wait()
        await bare_server.stop(None)
    return {name: each[WARM_UP:] for name, each in times.items()}, (early, late)


async def _our_step(phone: Phone, clock: ManualClock, apps: asyncio.subprocess.Process) -> float:
    """The seconds from the beginning of a decided step until all apps have received it."""
    assert phone.mask is not None
    instant = phone.mask.next_step.instant
    await clock.move_to(instant - dt.timedelta(milliseconds=1))
    begun = time.monotonic()
    await clock.move_to(instant)
    return await _last_received(apps) - begun


async def _start_apps(addresses: dict[str, str], tokens: list[str]) -> asyncio.subprocess.Process:
    """Start a process with all the apps, which subscribe to both servers."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from benchmarks.broker import receive; receive()",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write((json.dumps([addresses, tokens]) + "\n").encode())
    await process.stdin.drain()
    await _last_received(process)  # all have subscribed
    return process


async def _last_received(process: asyncio.subprocess.Process) -> float:
    """The time when the last app received the step, by the clock that both processes share."""
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), DEADLINE)
    return float(line)


def receive() -> None:
    """Run in the apps' process: print the time when the last of them has received each step."""
    asyncio.run(_receive(*json.loads(sys.stdin.readline())))


async def _receive(addresses: dict[str, str], tokens: list[str]) -> None:
    counts = dict.fromkeys(addresses, 0)

    def received(name: str) -> None:
        counts[name] += 1
        if counts[name] == APPS:
            counts[name] = 0
            sys.stdout.write(f"{time.monotonic()}\n")
            sys.stdout.flush()

    subscribed = []
    async with contextlib.AsyncExitStack() as stack:
        for name, address in addresses.items():
            for first in range(0, APPS, PER_CHANNEL):
                options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
                channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options))
                stub = phone_pb2_grpc.PhoneStub(channel)
                for token in tokens[first : first + PER_CHANNEL]:
                    call = stub.Subscribe(
                        phone_pb2.SubscribeRequest(), metadata=(("authorization", f"Bearer {token}"),)
                    )
                    subscribed.append(asyncio.create_task(_read(call, functools.partial(received, name))))
                    if name == OURS:
                        await call.initial_metadata()
        await asyncio.sleep(1)  # the bare stream does not say when it has begun
        sys.stdout.write(f"{time.monotonic()}\n")
        sys.stdout.flush()
        await asyncio.gather(*subscribed)


async def _read(call: AsyncIterable[phone_pb2.Step], received: Callable[[], None]) -> None:
    async for _ in call:
        received()
