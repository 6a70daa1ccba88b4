"""Contributions per second that a server stores durably, against an empty gRPC echo over TLS; memory and disk.

One process serves and another one calls, both with asyncio, in one run. The echo replies to an empty message with an
empty one. Reticent's server verifies, adds up and receipts 16 ciphertexts of 3072 bits, and replies when the result is
on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc

from benchmarks.measure import Row, memory, table
from benchmarks.server_process import Inspect, requests, server
from reticent.clock import SystemClock
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
from reticent_agg import AggregationServer, SqliteStore
from reticent_agg.service import AggregationService
from reticent_keys import KeyPair

IN_FLIGHT = 200
CALLS = 2000
ROUNDS = 15
TARGET = 0.25
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
        create(Path(folder) / CERTS, hosts=["127.0.0.1"], analysts=[], days=1)
        code = "from benchmarks.counting import deal; deal()"
        subprocess.run([sys.executable, "-c", code, folder], check=True)  # noqa: S603  # our own
        measured = asyncio.run(asyncio.wait_for(_measure(Path(folder)), DEADLINE))
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
            rates = await _rates(channels, phones)
            await _contribute(channels["phones"], phones, range(FEW + ROUNDS * CALLS, MANY - FEW), inspect)
            many = await _contribute(channels["phones"], phones, range(MANY - FEW, MANY), inspect)
            disk = await inspect("disk")
    return rates | {"few": few, "many": many, "disk": disk["disk"] / MANY}


async def _rates(channels: dict[str, grpc.aio.Channel], phones: SimulatedPhones) -> dict[str, float]:
    """Calls per second of both, in short alternating rounds, so that other load slows both."""
    echo: Any = channels["echo"].unary_unary(f"/{ECHO}/Echo")
    rates: dict[str, list[float]] = {"ours": [], "bare": [], "ratio": []}
    await _at_a_time([lambda: echo(b"") for _ in range(CALLS)])  # as warm as ours is
    for first in range(FEW, FEW + ROUNDS * CALLS, CALLS):
        begun = time.perf_counter()
        await _at_a_time([lambda: echo(b"") for _ in range(CALLS)])
        rates["bare"].append(CALLS / (time.perf_counter() - begun))
        rates["ours"].append(await _timed(channels["phones"], phones, range(first, first + CALLS)))
        rates["ratio"].append(rates["ours"][-1] / rates["bare"][-1])
    return {name: statistics.median(each) for name, each in rates.items()}


async def _timed(connection: grpc.aio.Channel, phones: SimulatedPhones, numbers: range) -> float:
    """Contributions per second, without the time to make them."""
    stub = counting_pb2_grpc.CollectingStub(connection)
    sent = [phones.contribution(number) for number in numbers]
    begun = time.perf_counter()
    await _at_a_time([lambda each=each: stub.Contribute(each) for each in sent])  # type: ignore[misc]
    return len(sent) / (time.perf_counter() - begun)


async def _contribute(connection: grpc.aio.Channel, phones: SimulatedPhones, numbers: range, inspect: Inspect) -> float:
    """Send the contributions of all of these phones; returns the largest memory of the server meanwhile."""
    seen: list[float] = []
    for first in range(numbers.start, numbers.stop, CALLS):
        await _timed(connection, phones, range(first, min(first + CALLS, numbers.stop)))
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
    with contextlib.closing(_opened(folder)) as server:
        server.queries.learn(wire.Terms(population=MANY, public_key=key.to_bytes()))
        server.queries.announce(phones.query.to_bytes())
        server.queries.countersign(phones.query, phones.deals(IDENTITY))
    (folder / KEY).write_text(key.key_id.hex())


def _opened(folder: Path) -> AggregationServer:
    return AggregationServer(
        SqliteStore(folder / "aggregation.db"), identity=IDENTITY.public, now=SystemClock().now, rng=secure()
    )


def serve() -> None:
    """Run in the server's process."""
    asyncio.run(_serve(Path(sys.argv[1])))


async def _serve(folder: Path) -> None:
    certificate = Certificate.load(folder / CERTS, "aggregation")
    clock = SystemClock()
    server = _opened(folder)
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
    async with service:
        addresses = {"echo": f"127.0.0.1:{port}", "phones": service.phones_address, "key": key.hex()}
        lines = await requests()
        while request := await lines.readline():
            replies = {b"addresses\n": addresses, b"memory\n": {"memory": memory()}, b"disk\n": {"disk": _disk(folder)}}
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
