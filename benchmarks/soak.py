"""Contributions over TLS for twenty minutes while servers are killed: latency, memory, and each counted exactly once.

Run it with `make soak`. Contributions are scheduled at a fixed rate, whatever the servers do. If a contribution is due
while a server is down, its latency includes the wait.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.databases import DURABLE
from benchmarks.load import Load, LoadResult, OpenQuery, Work, announced, enrolled, terms, value_of
from benchmarks.measure import Row, table
from benchmarks.phones import LoadPhone, exact_query
from reticent.paillier import PublicKey
from reticent.protocol import signed_by, statements
from reticent.protocol.calls import reply_of
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CollectingStub
from reticent_sim.engine import ANALYST, RETICENT, ServerPair, launched
from reticent_sim.engine.addresses import free_address
from reticent_sim.engine.endpoint import Endpoint
from reticent_sim.engine.errors import LaunchError
from reticent_sim.engine.process import ServerProcess
from tests.postgres import Server, new_server, programs

__all__ = ["Soak", "SoakResult", "failures", "mistakes", "sampled", "soak"]

SAMPLE_EVERY = 2.0  # seconds
WARM_UP = 20.0  # seconds of a process before its memory counts
GROWTH = 0.1  # by which memory may grow in the whole run
RATE = 0.97  # of the planned one: processes need some seconds to start, and the last contributions to arrive
CALL_TIMEOUT = 30.0
DECISIONS_TIMEOUT = 900.0
MIN_SECONDS = 60.0


@dataclass(frozen=True)
class Soak:
    """A plan.

    Args:
        rate: Contributions a second.
        seconds: How long.
        kill_every: Seconds between two kills.
        phones: Which contribute to one query after the other.
        loads: Processes that send.
        processes: Aggregation servers, over one PostgreSQL database; 0 for one server with a SQLite file. Of several,
            the first is never killed, so that its memory shows whether it grows.
        seed: Chooses what is killed.
        key_bits: Of the Paillier key. A contribution is one ciphertext; with 3072 bits, it has room for 250 counters.
    """

    rate: float = 1000.0
    seconds: float = 1200.0
    kill_every: float = 60.0
    phones: int = 10_000
    loads: int = 1
    processes: int = 3
    seed: int = 1
    key_bits: int = 3072

    @property
    def queries(self) -> int:
        """The number of queries that keep the phones busy."""
        return -(-int(self.rate * self.seconds) // self.phones)


@dataclass
class SoakResult:
    """What happened.

    Args:
        sent: Contributions that were scheduled.
        acknowledged: Of these.
        rate: Acknowledged contributions a second.
        latencies: Of each, in seconds.
        retries: Attempts that were repeated.
        kills: What was killed, in this order.
        memory: For each server, its samples: seconds since the start, and MB.
        wrong: Sentences about contributions that are not counted exactly once.
    """

    sent: int
    acknowledged: int
    rate: float
    latencies: Any  # an array of floats
    retries: int
    kills: list[str]
    memory: dict[str, list[tuple[float, float]]]
    wrong: list[str] = field(default_factory=list)

    @property
    def lasting(self) -> list[str]:
        """The servers that were never killed."""
        return [server for server in self.memory if server not in self.kills]

    def quantile(self, share: float) -> float:
        """The latency that this share of the contributions does not exceed."""
        return float(np.quantile(self.latencies, share))

    def growth(self, server: str) -> float:
        """The growth of a server's peak memory from the first half of the run to the second, relative to the first."""
        times, sizes = np.array(self.memory[server]).T
        is_late = times > times.mean()
        return float(sizes[is_late].max() / sizes[~is_late].max() - 1)


def soak(plan: Soak, folder: Path) -> SoakResult:
    """Run it, with servers in an empty folder."""
    with contextlib.ExitStack() as stack:
        postgres = new_server(DURABLE) if plan.processes else None
        database = ("--database", stack.enter_context(postgres.database())) if postgres else ()
        options = ("--join-rate", str(plan.phones))
        pair = ServerPair(folder, key_bits=plan.key_bits, keys_options=options, aggregation_options=database)
        servers = stack.enter_context(launched(pair))
        others = [_AggregationServer(servers, number, database) for number in range(1, plan.processes)]
        for other in others:
            stack.callback(other.kill)
            other.process.start()
        phones = asyncio.run(enrolled(servers, plan.phones))
        queries, key = _announced(servers, phones, plan)
        authority = Certificate.load(servers.certs, ANALYST).authority
        addresses = [servers.collecting.address, *(other.address for other in others)]
        loads = _loads(servers, Work(addresses, authority, key, phones, queries, plan.rate), plan)
        begun = time.monotonic()
        aggregation = [servers.aggregation, *(other.process for other in others)]
        with sampled([servers.keys, *aggregation]) as memory:
            for load in loads:
                stack.callback(load.kill)
                load.start()
            kills = _kill(aggregation[1:] or aggregation, postgres, plan, loads)
            results = [load.result() for load in loads]
            took = time.monotonic() - begun
        decisions = asyncio.run(_decisions(servers, queries))
        wrong = mistakes(servers.identity, queries, results, decisions, len(phones))
    return SoakResult(
        sent=len(phones) * len(queries),
        acknowledged=sum(sum(each.acknowledged) for each in results),
        rate=sum(sum(each.acknowledged) for each in results) / took,
        latencies=np.concatenate([each.latencies for each in results]),
        retries=sum(each.retries for each in results),
        kills=kills,
        memory=memory,
        wrong=wrong,
    )


class _AggregationServer:
    """One more aggregation server over the database of a pair.

    Args:
        servers: The pair.
        number: Of this one.
        database: The option that names the database.
    """

    def __init__(self, servers: ServerPair, number: int, database: Sequence[str]) -> None:
        phones = Endpoint(free_address(), servers.credentials)
        analysts = Endpoint(free_address(), lambda: servers.credentials(ANALYST))
        self.address = phones.address
        self.process = ServerProcess(
            f"aggregation-{number + 1}",
            servers.folder,
            command=lambda: [
                *(*RETICENT, "agg", "serve", "--folder", servers.folder / f"aggregation-{number + 1}"),
                *("--certs", servers.certs, "--phones", phones.address, "--analysts", analysts.address),
                *("--key-server", servers.deciding.address, "--identity", servers.identity.hex(), "--simulation"),
                *("--metrics", "127.0.0.1:0", *database),
            ],
            endpoints=(phones, analysts),
        )

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self.process.is_running:
            self.process.kill()


def _announced(servers: ServerPair, phones: Sequence[LoadPhone], plan: Soak) -> tuple[list[OpenQuery], PublicKey]:
    _, key = asyncio.run(terms(servers))
    late = int(2 * plan.seconds) + 3600  # each query closes when all phones have contributed
    queries = [
        exact_query(f"query {number}", key.key_id.hex(), len(phones), closes_after=late)
        for number in range(plan.queries)
    ]
    return asyncio.run(announced(servers, queries, phones[0])), key


def _loads(servers: ServerPair, work: Work, plan: Soak) -> list[Load]:
    parts = [work.part(number, plan.loads) for number in range(plan.loads)]
    return [Load(servers.folder / f"load-{number}.json", part) for number, part in enumerate(parts)]


def _kill(processes: Sequence[ServerProcess], postgres: Server | None, plan: Soak, loads: Sequence[Load]) -> list[str]:
    """Kill a random server now and then, and start it again, until all is sent; returns what was killed.

    PostgreSQL is killed once, half way.
    """
    chance = random.Random(plan.seed)  # noqa: S311  # what is killed is no secret
    killed: list[str] = []
    begun = time.monotonic()
    due = begun + plan.kill_every * chance.uniform(0.5, 1.0)
    while any(load.is_running for load in loads):
        time.sleep(0.1)
        if time.monotonic() < due:
            continue
        if postgres is not None and "PostgreSQL" not in killed and due > begun + plan.seconds / 2:
            postgres.kill()
            postgres.start()
            killed.append("PostgreSQL")
        else:
            process = chance.choice(processes)
            process.restart()
            killed.append(process.name)
        due += plan.kill_every
    return killed


@contextlib.contextmanager
def sampled(processes: Sequence[ServerProcess]) -> Iterator[dict[str, list[tuple[float, float]]]]:
    """Samples of the memory of the servers meanwhile, without the first seconds of each process."""
    samples: dict[str, list[tuple[float, float]]] = defaultdict(list)
    first_seen: dict[int, float] = {}
    over = threading.Event()
    begun = time.monotonic()

    def sample() -> None:
        while not over.wait(SAMPLE_EVERY):
            for process in processes:
                now = time.monotonic()
                with contextlib.suppress(OSError, LaunchError):  # it was killed meanwhile
                    size = process.memory() / 1e6
                    if now - first_seen.setdefault(process.pid, now) >= WARM_UP:
                        samples[process.name].append((now - begun, size))

    with ThreadPoolExecutor(1) as pool:
        sampling = pool.submit(sample)
        try:
            yield samples
        finally:
            over.set()
        sampling.result()


def mistakes(
    identity: bytes,
    queries: Sequence[OpenQuery],
    results: Sequence[LoadResult],
    decisions: Mapping[bytes, wire.Decision],
    phones: int,
) -> list[str]:
    """Sentences about queries that do not count each acknowledged contribution once.

    Args:
        identity: The key server's, which signs decisions.
        queries: All of them.
        results: What was sent, by process.
        decisions: By the query's digest.
        phones: How many contribute to each query.
    """
    found = []
    for number, each in enumerate(queries):
        acknowledged = sum(result.acknowledged[number] for result in results)
        expected = sum(result.sums[number] for result in results)
        decision = decisions.get(each.query.digest)
        if acknowledged != phones or expected != sum(value_of(phone, number) for phone in range(phones)):
            mistake = f"{acknowledged} of {phones} contributions are acknowledged"
        elif decision is None:
            mistake = "it is not decided"
        elif not signed_by(identity, statements.decision(decision), decision.signature):
            mistake = "the decision is not signed by the key server"
        elif decision.outcome != wire.RELEASED:
            mistake = f"{wire.Outcome.Name(decision.outcome)}, {decision.reason}"
        elif decision.contributors != acknowledged:
            mistake = f"{decision.contributors} contributions are counted, {acknowledged} were acknowledged"
        elif (counted := int.from_bytes(decision.sums[0], "big", signed=True)) != expected:
            mistake = f"the sum is {counted}, that of the acknowledged contributions {expected}"
        else:
            continue
        found.append(f"{each.query.id}: {mistake}")
    return found


async def _decisions(servers: ServerPair, queries: Sequence[OpenQuery]) -> dict[bytes, wire.Decision]:
    """The decisions on the queries, as phones get them."""
    found: dict[bytes, wire.Decision] = {}
    end = time.monotonic() + DECISIONS_TIMEOUT
    async with servers.collecting.channel() as channel:
        stub: Any = CollectingStub(channel)
        while len(found) < len(queries) and time.monotonic() < end:
            for each in queries:
                if each.query.digest not in found:
                    wanted = wire.DecisionsRequest(wanted=[wire.DecisionWanted(query=each.query.digest, cohort=0)])
                    reply = await reply_of(stub.Decisions(wanted, timeout=CALL_TIMEOUT))
                    found |= {decision.query: decision for decision in reply.decisions}
            await asyncio.sleep(0.5)
    return found


def failures(plan: Soak, result: SoakResult) -> list[str]:
    """Sentences about what the soak promises and the run did not reach."""
    found = [*result.wrong]
    if result.rate < RATE * plan.rate:
        found.append(f"{result.rate:,.0f} contributions a second are acknowledged, {plan.rate:,.0f} are planned")
    return found + [
        f"the memory of {server} grows by {result.growth(server):.1%}"
        for server in result.lasting
        if result.growth(server) > GROWTH
    ]


def report(plan: Soak, result: SoakResult) -> str:
    """The result as a table."""
    rows = [
        Row("acknowledged contributions", f"{result.acknowledged:,}", target=f"{result.sent:,}"),
        Row("a second", f"{result.rate:,.0f}", target=f"{plan.rate:,.0f}"),
        Row("latency: p50", f"{1e3 * result.quantile(0.5):,.0f} ms"),
        Row("latency: p99", f"{1e3 * result.quantile(0.99):,.0f} ms"),
        Row("latency: longest", f"{result.quantile(1.0):,.1f} s"),
        Row("attempts that were repeated", f"{result.retries:,}"),
        Row("kills", f"{len(result.kills)}", target=", ".join(sorted(set(result.kills)))),
        Row("queries that are not counted exactly", f"{len(result.wrong)}", target="0"),
    ]
    rows += [
        Row(
            f"memory of {server}",
            f"{np.mean([size for _, size in samples]):,.0f} MB",
            target=f"growth {result.growth(server):+.1%}; at most {GROWTH:.0%}"
            if server in result.lasting
            else "killed",
        )
        for server, samples in result.memory.items()
    ]
    return table(f"{plan.rate:,.0f} contributions a second for {plan.seconds:,.0f} s on {os.cpu_count()} cores", rows)


def main() -> int:
    """Run the soak of the command line; returns 1 if it does not reach what it promises."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.partition("\n\n")[0])
    for name, default in (("rate", 1000.0), ("seconds", 1200.0), ("kill-every", 60.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    for name, count in (("phones", 10_000), ("loads", 1), ("processes", 3), ("seed", 1), ("key-bits", 3072)):
        parser.add_argument(f"--{name}", type=int, default=count)
    plan = Soak(**vars(parser.parse_args()))
    if plan.seconds < MIN_SECONDS:
        parser.error(f"--seconds must be at least {MIN_SECONDS:g}: a shorter run shows no growth of memory")
    if plan.processes and programs() is None:
        sys.stderr.write("PostgreSQL is not installed: install it, or use --processes 0 for one server with SQLite\n")
        return 2
    with TemporaryDirectory() as folder:
        result = soak(plan, Path(folder))
    found = failures(plan, result)
    print(report(plan, result), *found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
