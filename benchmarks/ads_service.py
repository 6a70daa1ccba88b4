"""Replies of the ad service over TLS, against an empty gRPC echo of the same sizes; and a new version under load.

100,000 ads with a million rates in 2,000 contexts. One process serves both, another one calls: with 200 calls in flight
all the time, and at fixed rates, where each call is due at its time whatever became of those before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import grpc
import numpy as np

from benchmarks.measure import ONE_CORE, Row, memory, seconds, table
from benchmarks.server_process import Inspect, requests, server
from reticent.hierarchy import Decimals, Hierarchy, Tree
from reticent.protocol.channels import AD_SERVICE, channel_credentials, role_option
from reticent.randomness import seeded
from reticent.rates import RateTable
from reticent.rpc import Limits, RateLimit
from reticent.tls.certificates import Certificate, create
from reticent.v1 import ads_pb2 as wire
from reticent_agg.ads.catalogue import COLUMNS
from reticent_agg.ads.folder import AdFolder
from reticent_agg.ads.service import AdServer

ADS = 100_000
RATES_PER_AD = 10
PLACES, SHOPS = 200, 10
K = 10
IN_FLIGHT = 200
CONNECTIONS = 25
CALLS = 4000
PACES = (500, 1000)
PACED_SECONDS = 10.0
AT_LOAD = 500
WARM = 200  # nodes that are requested
TARGET = "5 ms, p99 20 ms"
ECHO = "/reticent.benchmarks.Echo/Echo"
SELECT = "/reticent.v1.Ads/Select"
LOCAL = "127.0.0.1:0"
DEADLINE = 600.0
UNLIMITED = Limits(call_rate=RateLimit(1e9, 1e9), message_bytes=256)
CERTS, FOLDER, GIVEN = "certs", "ads", "given"

Call = Callable[[int], Any]


@dataclass
class Latencies:
    """The times of calls, and those that failed."""

    times: list[float] = field(default_factory=list)
    failed: int = 0

    def text(self) -> str:
        """The median and the 99th percentile."""
        median, high = np.percentile(self.times, [50, 99])
        return f"{seconds(median)}, p99 {seconds(high)}{f'; {self.failed} failed' if self.failed else ''}"


def run() -> Iterator[str]:
    """Latencies, and the time of a load."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        create(folder / CERTS, hosts=["127.0.0.1"], analysts=[], days=1)
        (folder / GIVEN).mkdir()
        make_files(folder / GIVEN)
        begun = time.perf_counter()
        _load(folder, "catalogue", "rates", "hierarchy")
        first = time.perf_counter() - begun
        rows, loading = asyncio.run(asyncio.wait_for(_measure(folder), DEADLINE))
    yield table(f"Replies with {K} ads (the rival is an empty echo over TLS, with messages of the same sizes)", rows)
    yield table(
        f"A new version with {ADS * RATES_PER_AD:,} rates, at {AT_LOAD} requests a second",
        [Row("reticent ads load, for a service that does not run", f"{first:.1f} s"), *loading],
    )


def make_files(folder: Path) -> Hierarchy:
    """A catalogue, a hierarchy and rates."""
    rng = seeded(1, "ads")
    hierarchy = _hierarchy()
    hierarchy.save(folder / "hierarchy.json")
    with (folder / "catalogue.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        nodes = [str(hierarchy.nodes[each]) for each in rng.integers(1, len(hierarchy.nodes), ADS)]
        for ad, payment in enumerate(rng.uniform(0.1, 2.0, ADS)):
            bids = nodes[ad] if ad % 10 == 0 else ""
            writer.writerow([f"ad-{ad}", f"{payment:.3f}", f"i{ad % SHOPS}", f"Visit shop {ad}, it is open", 3, bids])
    contexts = len(hierarchy.contexts)
    steps = rng.choice([each for each in range(1, contexts) if np.gcd(each, contexts) == 1], (ADS, 1))
    leaves = (rng.integers(0, contexts, (ADS, 1)) + steps * np.arange(RATES_PER_AD)) % contexts  # all of an ad differ
    rate = rng.uniform(0.001, 0.2, leaves.size)
    RateTable(
        hierarchy=hierarchy.fingerprint,
        ads=tuple(f"ad-{ad}" for ad in range(ADS)),
        frequency=hierarchy.sums(rng.dirichlet(np.ones(contexts))).clip(0, 1),
        ad=np.repeat(np.arange(ADS, dtype=np.int32), RATES_PER_AD),
        node=hierarchy.leaves[leaves.ravel()],
        rate=rate,
        low=rate / 2,
        high=rate * 2,
        views=rng.uniform(20, 1000, leaves.size),
        epsilon=1.0,
        delta=1e-6,
        level=0.95,
        seeded=True,
        source="benchmark",
    ).save(folder / "rates.npz")
    return hierarchy


def _hierarchy() -> Hierarchy:
    """Places that are near each other in groups of 5, 20 and 40, each with the same shops."""
    interests = {f"i{each}": f"topic{each % 2}" for each in range(SHOPS)}
    queries = {f"q{each}": f"kind{each % 2}" for each in range(SHOPS)}
    places = [f"40.7{place // 20 % 2}{place // 5 % 4}{place % 5}1,-73.{place // 40}0001" for place in range(PLACES)]
    contexts = [(place, f"i{each}", f"q{each}") for place in places for each in range(SHOPS)]
    return Hierarchy([Decimals("location"), Tree("interest", 3, interests), Tree("query", 3, queries)], contexts)


def _load(folder: Path, *names: str) -> None:
    given = {"catalogue": "catalogue.csv", "rates": "rates.npz", "hierarchy": "hierarchy.json"}
    options = [f"--{name}={folder / GIVEN / given[name]}" for name in names]
    command = [sys.executable, "-m", "reticent", "ads", "load", f"--folder={folder / FOLDER}", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | ONE_CORE)  # noqa: S603  # our own


async def _measure(folder: Path) -> tuple[list[Row], list[Row]]:
    authority = Certificate.load(folder / CERTS, "ads").authority
    hierarchy = Hierarchy.load(folder / GIVEN / "hierarchy.json")
    nodes = seeded(2, "nodes").integers(0, len(hierarchy.nodes), WARM).tolist()
    fingerprint = bytes.fromhex(hierarchy.fingerprint)
    requests = [wire.SelectRequest(hierarchy=fingerprint, node=each, ads=K).SerializeToString() for each in nodes]
    async with server(__name__, folder) as inspect, contextlib.AsyncExitStack() as stack:
        addresses = await inspect("addresses")
        echo = [await _connected(stack, addresses["echo"], authority, ECHO) for _ in range(CONNECTIONS)]
        ours = [await _connected(stack, addresses["phones"], authority, SELECT) for _ in range(CONNECTIONS)]

        def call_to(connections: list[Any]) -> Call:
            return lambda number: connections[number % CONNECTIONS](requests[number % WARM])

        root = wire.SelectRequest(hierarchy=fingerprint, node=0, ads=K).SerializeToString()
        begun = time.perf_counter()
        size = len(await ours[0](root))
        cold = time.perf_counter() - begun
        assert size == len(await ours[0](requests[0])) == len(await echo[0](requests[0])), "not one size"
        first = await _at_a_time(call_to(ours), WARM, 1)  # each of them is computed
        await _at_a_time(call_to(echo), WARM, IN_FLIGHT)
        rows = [
            Row(f"{K} ads, bytes of a request and of a reply", f"{len(root)}, {size:,}"),
            Row("first request for the root", seconds(cold)),
            Row("first request for another node", first.text()),
        ]
        mine, rival = [await _at_a_time(call_to(each), CALLS, IN_FLIGHT) for each in (ours, echo)]
        rows.append(Row(f"{IN_FLIGHT} in flight, closed loop", mine.text(), rival.text(), target=TARGET))
        for pace in PACES:
            mine, rival = [await _paced(call_to(each), pace, PACED_SECONDS) for each in (ours, echo)]
            rows.append(Row(f"{pace} a second", mine.text(), rival.text(), target=TARGET))
        rows.append(Row("memory of the server", f"{(await inspect('memory'))['memory']:,.0f} MB"))
        return rows, await _loading(folder, call_to(ours), inspect)


async def _loading(folder: Path, call: Call, inspect: Inspect) -> list[Row]:
    """Load a new version while calls run at a fixed rate."""
    before = (await inspect("version"))["version"]
    calls = asyncio.ensure_future(_paced(call, AT_LOAD, 2 * PACED_SECONDS))
    await asyncio.sleep(2)
    begun = time.perf_counter()
    await asyncio.to_thread(_load, folder, "rates")
    loaded = time.perf_counter() - begun
    while (await inspect("version"))["version"] == before:  # noqa: ASYNC110  # another process
        await asyncio.sleep(0.02)
    served = time.perf_counter() - begun
    found = await calls
    prepared = (await inspect("version"))["prepared"]
    return [
        Row("reticent ads load, beside the service", f"{loaded:.1f} s"),
        Row("until the service serves it", f"{served:.1f} s", target="at most 5 s"),
        Row("of that the work of the service", f"{prepared:.1f} s"),
        Row(f"calls in {2 * PACED_SECONDS:.0f} s with the load", found.text()),
        Row("calls that failed", f"{found.failed} of {len(found.times) + found.failed:,}", target="0"),
    ]


async def _at_a_time(call: Call, calls: int, in_flight: int) -> Latencies:
    """Make so many calls, always `in_flight` at a time."""
    numbers, found = iter(range(calls)), Latencies()

    async def one_after_the_other() -> None:
        for number in numbers:
            await _timed(call, number, time.perf_counter(), found)

    await asyncio.gather(*(one_after_the_other() for _ in range(in_flight)))
    return found


async def _paced(call: Call, per_second: int, duration: float) -> Latencies:
    """Make calls at a fixed rate, at most `IN_FLIGHT` at a time; their times count from when each was due."""
    found, room = Latencies(), asyncio.Semaphore(IN_FLIGHT)
    begun, tasks = time.perf_counter(), set[asyncio.Task[None]]()

    async def one(number: int, due: float) -> None:
        async with room:
            await _timed(call, number, due, found)

    for number in range(int(per_second * duration)):
        due = begun + number / per_second
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.ensure_future(one(number, due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return found


async def _timed(call: Call, number: int, begun: float, found: Latencies) -> None:
    try:
        await call(number)
    except grpc.aio.AioRpcError:
        found.failed += 1
    else:
        found.times.append(time.perf_counter() - begun)


async def _connected(stack: contextlib.AsyncExitStack, address: str, authority: bytes, method: str) -> Any:
    """A method over a connection of its own."""
    options = (role_option(AD_SERVICE), ("grpc.use_local_subchannel_pool", 1))
    way = await stack.enter_async_context(
        grpc.aio.secure_channel(address, channel_credentials(authority), options=options)
    )
    await way.channel_ready()
    call: Any = way.unary_unary(method)
    return call


def serve() -> None:
    """Run in the server's process."""
    asyncio.run(_serve(Path(sys.argv[1])))


async def _serve(folder: Path) -> None:
    certificate = Certificate.load(folder / CERTS, "ads")
    credentials = certificate.server_credentials(mutual=False)
    opened = AdFolder(folder / FOLDER)
    async with AdServer(opened, phones=LOCAL, credentials=credentials, limits=UNLIMITED) as service:
        reply = bytes(_size(opened))

        async def echo(_message: bytes, _context: object) -> bytes:
            return reply

        server = grpc.aio.server()
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Echo": grpc.unary_unary_rpc_method_handler(cast("Any", echo))
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(ECHO.split("/")[1], handlers),))
        port = server.add_secure_port(LOCAL, credentials)
        await server.start()
        lines = await requests()
        while request := await lines.readline():
            version = service.version
            replies: dict[bytes, dict[str, Any]] = {
                b"addresses\n": {"echo": f"127.0.0.1:{port}", "phones": service.address},
                b"memory\n": {"memory": memory()},
                b"version\n": {"version": version and version.name, "prepared": service.prepared},
            }
            print(json.dumps(replies[request]), flush=True)
        await server.stop(None)


def _size(folder: AdFolder) -> int:
    """The size of a reply."""
    version = folder.current()
    assert version is not None
    return folder.index(version).format.size(K)
