"""One count of real servers over TLS, with the CPU time, disk, rows and bytes of each of its parts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import psycopg.sql

from benchmarks.load import announced, calls_to, enrolled, in_groups, terms
from benchmarks.phones import CheapContributions, LoadPhone, exact_query
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CollectingStub
from reticent_sim.engine import ServerPair, launched
from tests.postgres import Server

__all__ = ["PARTS", "MeasuredCount", "measured_count"]

ENROL, DEAL, FIND, CONTRIBUTE, DECIDE, FETCH = PARTS = ("enrol", "deal", "find", "contribute", "decide", "fetch")
"""Join; announce, countersign and deal; fetch the query; contribute; close and decide; fetch the decision."""
KEYS, AGGREGATION, POSTGRES = "key server", "aggregation server", "PostgreSQL"
SCHEMAS = {KEYS: "reticent_keys", AGGREGATION: "reticent_agg"}
COUNTERS = 64
KEY_BITS = 3072
DECIDED_TIMEOUT = 1800.0
PAUSE = 0.1


@dataclass
class MeasuredCount:
    """What a count of so many phones has taken.

    Args:
        phones: All of them contribute.
        cpu: Seconds, by part and server.
        seconds: Wall time, by part.
        disk: Bytes of each server's database.
        rows: Of each server's database.
        memory: Of each server in the end, in MB.
    """

    phones: int
    cpu: dict[tuple[str, str], float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    disk: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)


def measured_count(
    phones: int, *, counters: int = COUNTERS, key_bits: int = KEY_BITS, postgres: Server | None = None
) -> MeasuredCount:
    """Enrol so many phones, and count them once.

    Args:
        phones: Their number.
        counters: Of the query.
        key_bits: Of the Paillier key.
        postgres: Has the databases of both servers; files of SQLite unless given.

    Raises:
        ValueError: The release is not the sum of what the phones contributed.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        database = None if postgres is None else stack.enter_context(postgres.database())
        options = ("--join-rate", str(phones))
        pair = ServerPair(folder, key_bits=key_bits, keys_options=options, database=database)
        servers = stack.enter_context(launched(pair))
        pids = {KEYS: servers.keys.pid, AGGREGATION: servers.aggregation.pid}
        if postgres is not None:
            pids[POSTGRES] = postgres.pid
        measured = asyncio.run(_counted(servers, pids, phones, counters))
        files = {KEYS: servers.journal, AGGREGATION: servers.database}
        for server, schema in SCHEMAS.items():
            size = _file_size(files[server]) if database is None else _schema_size(database, schema)
            measured.disk[server], measured.rows[server] = size
        return measured


async def _counted(servers: ServerPair, pids: Mapping[str, int], count: int, counters: int) -> MeasuredCount:
    measured = MeasuredCount(count)
    with _part(measured, ENROL, pids):
        phones = await enrolled(servers, count)
    _, key = await terms(servers)
    query = exact_query("measured", key.key_id.hex(), count, counters, closes_after=86400)
    with _part(measured, DEAL, pids):
        (opened,) = await announced(servers, [query], phones[0])
    cheap = CheapContributions(query, key, opened.query_key)
    wanted = wire.DecisionsRequest(wanted=[wire.DecisionWanted(query=query.digest, cohort=0)])
    async with calls_to([servers.collecting], CollectingStub) as calls:

        async def find(phone: LoadPhone) -> None:
            await calls.call("Announcements", wire.AnnouncementsRequest(phone=phone.id))
            await calls.call("Query", phone.fetching(query.digest))

        async def contribute(phone: LoadPhone) -> None:
            await calls.call("Contribute", cheap.contribution(phone, 0, [1] * counters))

        async def fetch(_: LoadPhone) -> None:
            await calls.call("Decisions", wanted)

        async def decided() -> wire.Decision:
            while True:
                reply: wire.DecisionsReply = await calls.call("Decisions", wanted)
                if reply.decisions:
                    return reply.decisions[0]
                await asyncio.sleep(PAUSE)

        with _part(measured, FIND, pids):
            await in_groups(find, phones)
        with _part(measured, CONTRIBUTE, pids):
            await in_groups(contribute, phones[1:])
        with _part(measured, DECIDE, pids):
            await contribute(phones[0])  # then the query closes
            decision = await asyncio.wait_for(decided(), DECIDED_TIMEOUT)
        with _part(measured, FETCH, pids):
            await in_groups(fetch, phones)
    sums = {int.from_bytes(each, "big", signed=True) for each in decision.sums}
    if decision.outcome != wire.RELEASED or sums != {count}:
        raise ValueError(f"the release is wrong: {decision}")
    measured.memory = {KEYS: servers.keys.memory() / 1e6, AGGREGATION: servers.aggregation.memory() / 1e6}
    return measured


@contextlib.contextmanager
def _part(measured: MeasuredCount, part: str, pids: Mapping[str, int]) -> Iterator[None]:
    """Measure what happens meanwhile."""
    before = {server: _cpu_seconds(pid) for server, pid in pids.items()}
    begun = time.monotonic()
    yield
    measured.seconds[part] = time.monotonic() - begun
    for server, pid in pids.items():
        measured.cpu[part, server] = _cpu_seconds(pid) - before[server]


def _cpu_seconds(process: int) -> float:
    """The CPU time so far of a process and its children, those that have ended included; on Linux only."""
    stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    own = sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{process}/task").glob("*/children")
    return own + sum(_cpu_seconds(int(child)) for each in children for child in each.read_text().split())


def _file_size(path: Path) -> tuple[int, int]:
    """The bytes and rows of a database of SQLite."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (size,) = connection.execute(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        ).fetchone()
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        counts = (connection.execute(f'SELECT count(*) FROM "{name}"').fetchone() for (name,) in tables)  # noqa: S608
        return size, sum(count for (count,) in counts)


def _schema_size(database: str, schema: str) -> tuple[int, int]:
    """The bytes and rows of a schema of PostgreSQL, with its indexes."""
    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        size = rows = 0
        for (table,) in tables:
            name = psycopg.sql.Identifier(schema, table)
            count = psycopg.sql.SQL("SELECT pg_total_relation_size({}), count(*) FROM {}")
            found = connection.execute(count.format(psycopg.sql.Literal(f"{schema}.{table}"), name)).fetchone()
            assert found is not None
            size, rows = size + found[0], rows + found[1]
        return size, rows
