"""Contributions per second that a server stores durably, against an empty gRPC echo over TLS; memory and disk.

One process serves and another one calls, both with asyncio, in one run. The echo replies to an empty message with an
empty one. Reticent's server verifies, adds up and receipts 16 ciphertexts of 3072 bits, and replies when the result is
on disk: in SQLite; and in PostgreSQL, if it is installed, with one server process and with two.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc

from benchmarks.databases import DURABLE
from benchmarks.measure import Row, memory, table
from benchmarks.server_process import Inspect, requests, server
from reticent.clock import SystemClock
from reticent.console.process import collect_garbage_rarely
from reticent.paillier import PublicKey
from reticent.privacy import Counter, Query
from reticent.protocol import SigningKey, plaintext_count, statements
from reticent.protocol.channels import channel, channel_credentials
from reticent.protocol.layout import ciphertexts_to
from reticent.randomness import secure, seeded
from reticent.rpc import Limits, RateLimit
from reticent.tls.certificates import Certificate, create
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_agg import AggregationServer, SqlStore
from reticent_agg.service import AggregationService
from reticent_keys import KeyPair
from tests.postgres import new_server, programs

IN_FLIGHT = 200
CALLS = 2000
ROUNDS = 15
TARGET = 0.25
PROCESSES, TARGET_OF_PROCESSES = 2, 1 / 3
FEW, MANY = 10_000, 100_000
TOLERANCE = 0.1  # by which memory may differ
DISK = 1000  # bytes for a contribution
CIPHERTEXTS = 16
COUNTERS = 2672  # of 0 or 1: they need so many ciphertexts
POOL = 64  # different ciphertexts
AGREEMENT_KEY = bytes(range(32))  # nothing is decrypted here
ECHO = "reticent.benchmarks.Echo"
LOCAL = "127.0.0.1:0"
DEADLINE = 1200.0  # seconds for anything
UNLIMITED = Limits(call_rate=RateLimit(1e9, 1e9), in_flight_per_connection=5 * IN_FLIGHT)
CERTS = "certs"
KEY = "key"
DATABASE = "database"  # a file with the address of a PostgreSQL database
IDENTITY = SigningKey(bytes(32))


@dataclass(frozen=True)
class SimulatedPhones:
    """Phones to which a query was dealt; each signs ciphertexts from a small pool."""

    query: Query
    pool: list[bytes]

    @classmethod
    def of(cls, key: PublicKey, population: int) -> SimulatedPhones:
        """A query to a number of phones."""
        query = Query(
            id=f"{population} phones",
            counters=[Counter(f"counter {number}", 0, 1) for number in range(COUNTERS)],
            epsilon=1.0,
            delta=1e-6,
            l2_squared=1,
            l1=1,
            noise="skellam",
            population=population,
            cohorts=1,
            min_contributions=population * 9 // 10,
            liars=0,
            key_id=key.key_id.hex(),
            closes_after=86400,
        )
        assert plaintext_count(query, key.bits) == CIPHERTEXTS, plaintext_count(query, key.bits)
        rng = seeded(1, "pool")
        return cls(query, [ciphertexts_to(key.encrypt([1] * CIPHERTEXTS, rng), key) for _ in range(POOL)])

    def phone(self, number: int) -> tuple[bytes, SigningKey]:
        """A phone's id and key."""
        return _name(number), SigningKey(_name(number) * 2)

    def deals(self, identity: SigningKey) -> Iterator[wire.Deal]:
        """All phones."""
        countersignature = identity.sign(statements.countersigned(self.query.digest, AGREEMENT_KEY))
        yield wire.Deal(agreement_key=AGREEMENT_KEY, countersignature=countersignature)
        for number in range(self.query.population):
            phone, key = self.phone(number)
            yield wire.Deal(phones=[wire.Dealt(phone=phone, verify_key=key.public, cohort=0)])

    def contribution(self, number: int) -> wire.Contribution:
        """The contribution of a phone."""
        phone, key = self.phone(number)
        ciphertexts = self.pool[number % POOL]
        made = wire.Contribution(
            query=self.query.digest, phone=phone, agreement_key=AGREEMENT_KEY, ciphertexts=ciphertexts, seeded=True
        )
        made.signature = key.sign(statements.contribution(made, self.query.key_id))
        return made


def run() -> Iterator[str]:
    """Contributions per second, and the memory and disk that they take."""
    with TemporaryDirectory() as folder:
        measured = _measured(_measure, Path(folder))
    ours, bare = measured["ours"], measured["bare"]
    rows = [
        Row(
            f"calls per second, {IN_FLIGHT} at a time",
            f"{ours:,.0f}",
            f"{bare:,.0f}",
            target=f"{measured['ratio']:.2f}; at least {TARGET}",
        )
    ]
    yield table("Durable contributions of 16 ciphertexts (the rival is an empty echo over TLS)", rows)
    few, many = measured["few"], measured["many"]
    rows = [
        Row(f"memory after {FEW:,}", f"{few:.1f} MB"),
        Row(f"memory after {MANY:,}", f"{many:.1f} MB", target=f"{many / few:.2f}; at most {1 + TOLERANCE}"),
        Row("disk for one", f"{measured['disk']:,.0f} B", target=f"at most {DISK:,} B"),
    ]
    yield table("Memory and disk of contributions", rows)
    if programs() is None:
        yield "PostgreSQL is not installed here.\n"
        return
    with TemporaryDirectory() as folder, new_server(DURABLE).database() as address:
        (Path(folder) / DATABASE).write_text(address, encoding="utf-8")
        measured = _measured(_measure_postgres, Path(folder))
    rows = [
        Row(
            f"{name}, calls per second",
            f"{measured[f'ours {count}']:,.0f}",
            f"{measured[f'bare {count}']:,.0f}",
            target=f"{measured[f'ratio {count}']:.2f}; at least {target:.2f}",
        )
        for name, count, target in (("one process", 1, TARGET), ("two processes", PROCESSES, TARGET_OF_PROCESSES))
    ]
    yield table("The same on PostgreSQL (the rival is an empty echo of one process)", rows)


def _measured(measure: Callable[[Path], Coroutine[Any, Any, dict[str, float]]], folder: Path) -> dict[str, float]:
    """Deal a query in a process of its own, and measure."""
    create(folder / CERTS, hosts=["127.0.0.1"], analysts=[], days=1)
    code = "from benchmarks.counting import deal; deal()"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)  # noqa: S603  # our own
    return asyncio.run(asyncio.wait_for(measure(folder), DEADLINE))


async def _measure(folder: Path) -> dict[str, float]:
    authority = Certificate.load(folder / CERTS, "keys").authority
    async with server(__name__, folder) as inspect:
        addresses = await inspect("addresses")
        key = PublicKey.from_bytes(bytes.fromhex(addresses["key"]))
        phones = SimulatedPhones.of(key, MANY)
        async with contextlib.AsyncExitStack() as stack:
            channels = {
                name: await stack.enter_async_context(channel(addresses[name], channel_credentials(authority)))
                for name in ("echo", "phones")
            }
            few = await _contribute(channels["phones"], phones, range(FEW), inspect)
            rates = await _rates(channels["echo"], [channels["phones"]], phones, FEW)
            await _contribute(channels["phones"], phones, range(FEW + ROUNDS * CALLS, MANY - FEW), inspect)
            many = await _contribute(channels["phones"], phones, range(MANY - FEW, MANY), inspect)
            disk = await inspect("disk")
    return rates | {"few": few, "many": many, "disk": disk["disk"] / MANY}


async def _measure_postgres(folder: Path) -> dict[str, float]:
    """The rates of one process, and of several over the same database."""
    authority = Certificate.load(folder / CERTS, "keys").authority
    rates: dict[str, float] = {}
    async with contextlib.AsyncExitStack() as stack:
        inspects = [await stack.enter_async_context(server(__name__, folder)) for _ in range(PROCESSES)]
        addresses = [await inspect("addresses") for inspect in inspects]
        phones = SimulatedPhones.of(PublicKey.from_bytes(bytes.fromhex(addresses[0]["key"])), MANY)
        credentials = channel_credentials(authority)
        echo = await stack.enter_async_context(channel(addresses[0]["echo"], credentials))
        channels = [await stack.enter_async_context(channel(each["phones"], credentials)) for each in addresses]
        first = 0
        for count in (1, PROCESSES):
            for each in channels[:count]:
                await _timed([each], phones, range(first, first + CALLS))  # as warm as the echo is
                first += CALLS
            found = await _rates(echo, channels[:count], phones, first)
            rates |= {f"{name} {count}": rate for name, rate in found.items()}
            first += ROUNDS * CALLS
    return rates


async def _rates(
    to_echo: grpc.aio.Channel, channels: Sequence[grpc.aio.Channel], phones: SimulatedPhones, first: int
) -> dict[str, float]:
    """Calls per second of both, in short alternating rounds, so that other load slows both."""
    echo: Any = to_echo.unary_unary(f"/{ECHO}/Echo")
    rates: dict[str, list[float]] = {"ours": [], "bare": [], "ratio": []}
    await _at_a_time([lambda: echo(b"") for _ in range(CALLS)])  # as warm as ours is
    for begin in range(first, first + ROUNDS * CALLS, CALLS):
        begun = time.perf_counter()
        await _at_a_time([lambda: echo(b"") for _ in range(CALLS)])
        rates["bare"].append(CALLS / (time.perf_counter() - begun))
        rates["ours"].append(await _timed(channels, phones, range(begin, begin + CALLS)))
        rates["ratio"].append(rates["ours"][-1] / rates["bare"][-1])
    return {name: statistics.median(each) for name, each in rates.items()}


async def _timed(connections: Sequence[grpc.aio.Channel], phones: SimulatedPhones, numbers: range) -> float:
    """Contributions per second to servers that take turns, without the time to make them."""
    stubs = cycle([counting_pb2_grpc.CollectingStub(each) for each in connections])
    sent = [(next(stubs), phones.contribution(number)) for number in numbers]
    begun = time.perf_counter()
    await _at_a_time([lambda stub=stub, each=each: stub.Contribute(each) for stub, each in sent])  # type: ignore[misc]
    return len(sent) / (time.perf_counter() - begun)


async def _contribute(connection: grpc.aio.Channel, phones: SimulatedPhones, numbers: range, inspect: Inspect) -> float:
    """Send the contributions of all of these phones; returns the largest memory of the server meanwhile."""
    seen: list[float] = []
    for first in range(numbers.start, numbers.stop, CALLS):
        await _timed([connection], phones, range(first, min(first + CALLS, numbers.stop)))
        seen.append((await inspect("memory"))["memory"])
    return max(seen)


async def _at_a_time(calls: list[Callable[[], Any]]) -> None:
    """Make all calls, `IN_FLIGHT` at a time."""
    waiting = iter(calls)

    async def one_after_the_other() -> None:
        for call in waiting:
            await call()

    await asyncio.gather(*(one_after_the_other() for _ in range(IN_FLIGHT)))


def deal() -> None:
    """Run in a process of its own, whose memory is not measured: announce and deal a query."""
    folder = Path(sys.argv[1])
    key = KeyPair.generate().public
    phones = SimulatedPhones.of(key, MANY)
    with contextlib.closing(_server(_store(folder))) as server:
        server.queries.learn(wire.Terms(population=MANY, public_key=key.to_bytes()))
        server.queries.announce(phones.query.to_bytes())
        server.queries.countersign(phones.query, phones.deals(IDENTITY))
    (folder / KEY).write_text(key.key_id.hex())


def _store(folder: Path) -> SqlStore:
    address = folder / DATABASE
    return SqlStore(address.read_text(encoding="utf-8") if address.exists() else folder / "aggregation.db")


def _server(store: SqlStore) -> AggregationServer:
    return AggregationServer(store, identity=IDENTITY.public, now=SystemClock().now, rng=secure())


def serve() -> None:
    """Run in the server's process."""
    collect_garbage_rarely()  # as a server's command does
    asyncio.run(_serve(Path(sys.argv[1])))


async def _serve(folder: Path) -> None:
    certificate = Certificate.load(folder / CERTS, "aggregation")
    clock = SystemClock()
    store = _store(folder)
    server = _server(store)
    key = server.replies.key(wire.KeyRequest(key_id=bytes.fromhex((folder / KEY).read_text()))).public_key
    credentials = certificate.server_credentials(mutual=False)
    echo = grpc.aio.server()
    echo.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(ECHO, {"Echo": grpc.unary_unary_rpc_method_handler(_echo)}),)
    )
    port = echo.add_secure_port(LOCAL, credentials)
    await echo.start()
    service = AggregationService(
        server,
        clock=clock,
        key_server=grpc.aio.insecure_channel("127.0.0.1:1"),  # it is not asked
        phones=LOCAL,
        analysts=LOCAL,
        phones_credentials=credentials,
        analysts_credentials=certificate.server_credentials(mutual=True),
        limits=UNLIMITED,
    )
    with store.serving():
        async with service:
            addresses = {"echo": f"127.0.0.1:{port}", "phones": service.phones_address, "key": key.hex()}
            lines = await requests()
            while request := await lines.readline():
                replies = {
                    b"addresses\n": addresses,
                    b"memory\n": {"memory": memory()},
                    b"disk\n": {"disk": _disk(folder)},
                }
                print(json.dumps(replies[request]), flush=True)
    server.close()
    await echo.stop(None)


async def _echo(_message: bytes, _context: object) -> bytes:
    return b""


def _disk(folder: Path) -> int:
    """Bytes of the server's files, while it runs."""
    return sum(file.stat().st_size for file in folder.glob("aggregation.db*"))


def _name(number: int) -> bytes:
    return number.to_bytes(16, "big")
