"""Costs of a count, predicted for 1,000 to 100,000,000 phones, against measured counts.

Counts of real servers over TLS give the fixed costs and the costs of a phone: two small ones, and two with so many
receipts that the key server checks them in several processes. Counts of other sizes check the predictions: they must be
within 30 %.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.databases import DURABLE
from benchmarks.load import Calls, announced, calls_to, enrolled, terms
from benchmarks.measure import Row, grid, seconds, table
from benchmarks.measured_count import (
    AGGREGATION,
    CONTRIBUTE,
    COUNTERS,
    DEAL,
    DECIDE,
    ENROL,
    FETCH,
    FIND,
    KEY_BITS,
    KEYS,
    PARTS,
    POSTGRES,
    MeasuredCount,
    measured_count,
)
from benchmarks.phones import CheapContributions, LoadPhone, exact_query, prepared_contribution
from benchmarks.relay import Relay, relay
from reticent.protocol import AgreementKey, SigningKey
from reticent.protocol.keys import KEY_BYTES as PUBLIC_KEY_BYTES
from reticent.protocol.keys import PHONE_BYTES, SIGNATURE_BYTES
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CollectingStub, EnrolmentStub
from reticent_keys import KeyPair
from reticent_sim.engine import ServerPair, launched
from reticent_sim.engine.endpoint import Endpoint
from tests.postgres import Server, new_server

CALIBRATION = (500, 1500), (3000, 8000)
IN_ONE_PROCESS = 2000  # receipts: for more, the key server starts processes
CHECKED = 1_000, 10_000, 100_000
SIZES = tuple(10**power for power in range(3, 9))
TOLERANCE = 0.3
FEW = 40  # phones of the count whose traffic is measured
WINDOW = 3600.0  # seconds in which all phones contribute
CONTRIBUTIONS = 30
DECIDING = 3.0  # seconds, at most, for few phones
HOUR, KILO = 3600.0, 1000.0

Cell = tuple[str, str]
"""A part of a count and a server; or "disk" or "rows" and a server."""


@dataclass(frozen=True)
class Line:
    """A cost that grows linearly with the number of phones."""

    fixed: float
    each: float

    @classmethod
    def through(cls, few: tuple[int, float], many: tuple[int, float]) -> Line:
        """The line through two points; none of its parts is negative."""
        each = max(0.0, (many[1] - few[1]) / (many[0] - few[0]))
        return cls(max(0.0, few[1] - each * few[0]), each)

    def at(self, phones: int) -> float:
        """The cost of so many phones."""
        return self.fixed + self.each * phones


@dataclass(frozen=True)
class PhoneCost:
    """What a count costs a phone.

    Args:
        first: CPU seconds of its first contribution under a key.
        later: CPU seconds of a later one, with the key's table of powers.
        sent: Bytes that it sends in all calls of a count, with TLS.
        received: Bytes that it receives.
        joining: Bytes that it sends and receives once, to join.
    """

    first: float
    later: float
    sent: int
    received: int
    joining: int


def run() -> Iterator[str]:
    """The costs of a phone, the predictions, and their checks."""
    yield from report(CHECKED)


def report(checked: Sequence[int]) -> Iterator[str]:
    """The same, with checks at these sizes."""
    small, large = (_lines(*sizes) for sizes in CALIBRATION)
    phone = _phone_cost()
    yield _units(large, phone)
    yield _database_units(large, _lines(*CALIBRATION[1], postgres=new_server(DURABLE)))
    yield _predictions(lambda phones: small if phones <= IN_ONE_PROCESS else large, phone)
    for phones in checked:
        yield _check(small if phones <= IN_ONE_PROCESS else large, measured_count(phones))


def _lines(few: int, many: int, postgres: Server | None = None) -> dict[Cell, Line]:
    """The costs as lines through those of two counts."""
    low, high = (_cells(measured_count(phones, postgres=postgres)) for phones in (few, many))
    return {cell: Line.through((few, low[cell]), (many, high[cell])) for cell in low}


def _cells(measured: MeasuredCount) -> dict[Cell, float]:
    parts = {(part, server): cpu for (part, server), cpu in measured.cpu.items()}
    disk = {("disk", server): float(size) for server, size in measured.disk.items()}
    rows = {("rows", server): float(count) for server, count in measured.rows.items()}
    return parts | disk | rows


def _units(lines: dict[Cell, Line], phone: PhoneCost) -> str:
    names = {
        ENROL: "enrol",
        DEAL: "announce, countersign and deal",
        FIND: "fetch the announcement and the query",
        CONTRIBUTE: "check, add and store a contribution",
        DECIDE: "stream, check and decrypt",
        FETCH: "fetch the decision",
    }
    rows = [
        Row(f"{server}: {names[part]}", seconds(line.each))
        for part in PARTS
        for server in (KEYS, AGGREGATION)
        if (line := lines[part, server]).each >= 1e-6  # the clock's resolution, for a phone
    ]
    rows += [
        *(Row(f"{server}: disk", f"{lines['disk', server].each:,.0f} B") for server in (KEYS, AGGREGATION)),
        *(Row(f"{server}: rows", f"{lines['rows', server].each:,.1f}") for server in (KEYS, AGGREGATION)),
        Row("between the servers: a receipt", f"{_receipt_bytes()} B"),
        Row("phone: its first contribution under a key", seconds(phone.first)),
        Row("phone: a later contribution", seconds(phone.later)),
        Row("phone: sends in a count, with TLS", f"{phone.sent:,} B"),
        Row("phone: receives in a count, with TLS", f"{phone.received:,} B"),
        Row("phone: sends and receives once, to join", f"{phone.joining:,} B"),
    ]
    return table(f"What a phone costs in a count of {COUNTERS} counters under {KEY_BITS} bits", rows)


def _database_units(sqlite: dict[Cell, Line], postgres: dict[Cell, Line]) -> str:
    """The costs of a phone that depend on the database."""

    def cpu(lines: dict[Cell, Line], parts: Sequence[str], *servers: str) -> str:
        return seconds(sum(lines[part, server].each for part in parts for server in servers))

    both, counting = (KEYS, AGGREGATION), PARTS[1:]
    rows: list[tuple[str, ...]] = [
        ("", "SQLite", "PostgreSQL"),
        ("both servers: CPU to enrol", cpu(sqlite, [ENROL], *both), cpu(postgres, [ENROL], *both)),
        ("both servers: CPU of a count", cpu(sqlite, counting, *both), cpu(postgres, counting, *both)),
        ("PostgreSQL: CPU to enrol", "", cpu(postgres, [ENROL], POSTGRES)),
        ("PostgreSQL: CPU of a count", "", cpu(postgres, counting, POSTGRES)),
    ]
    rows += [
        (f"{server}: disk", *(f"{lines['disk', server].each:,.0f} B" for lines in (sqlite, postgres)))
        for server in both
    ]
    return grid("The same phone with both databases", rows)


def _predictions(lines_at: Callable[[int], dict[Cell, Line]], phone: PhoneCost) -> str:
    """A column for each number of phones."""

    def cost_of(phones: int, cell: Cell) -> float:
        return lines_at(phones)[cell].at(phones)

    def total(phones: int, parts: Sequence[str], server: str) -> float:
        return sum(cost_of(phones, (part, server)) for part in parts)

    collecting = FIND, CONTRIBUTE, FETCH
    quantities: tuple[tuple[str, Callable[[int], str]], ...] = (
        ("key server: CPU to enrol all, once", lambda n: _duration(total(n, [ENROL], KEYS))),
        ("key server: CPU of a count", lambda n: _duration(total(n, [DEAL, CONTRIBUTE, DECIDE], KEYS))),
        (f"the same on {os.cpu_count()} cores", lambda n: _duration(total(n, [DECIDE], KEYS) / (os.cpu_count() or 1))),
        ("aggregation server: CPU of a count", lambda n: _duration(total(n, PARTS[1:], AGGREGATION))),
        ("its cores, if all phones come in an hour", lambda n: f"{total(n, collecting, AGGREGATION) / WINDOW:,.2f}"),
        ("its cores, if they come in a day", lambda n: f"{total(n, collecting, AGGREGATION) / (24 * WINDOW):,.3f}"),
        ("key server: disk", lambda n: _bytes(cost_of(n, ("disk", KEYS)))),
        ("aggregation server: disk", lambda n: _bytes(cost_of(n, ("disk", AGGREGATION)))),
        ("phones to servers", lambda n: _bytes(phone.sent * n)),
        ("servers to phones", lambda n: _bytes(phone.received * n)),
        ("receipts between the servers", lambda n: _bytes(_receipt_bytes() * n)),
    )
    heads = ("", *(f"{size:,}" for size in SIZES))
    lines_of = [(name, *(cost(size) for size in SIZES)) for name, cost in quantities]
    return grid("One count of so many phones", [heads, *lines_of])


def _check(lines: dict[Cell, Line], measured: MeasuredCount) -> str:
    """The predictions beside what a count of this size has taken."""
    found = _cells(measured)
    groups: dict[str, list[Cell]] = {
        f"CPU time of the {KEYS}": [(part, KEYS) for part in PARTS],
        f"CPU time of the {AGGREGATION}": [(part, AGGREGATION) for part in PARTS],
        "of these, to enrol": [(ENROL, KEYS)],
        "of these, to collect": [(CONTRIBUTE, AGGREGATION)],
        "of these, to decide": [(DECIDE, KEYS)],
    }
    rows: list[tuple[str, ...]] = [("", "measured", "predicted", "ratio", f"within {TOLERANCE:.0%}")]
    for name, cells in groups.items():
        predicted = sum(lines[cell].at(measured.phones) for cell in cells)
        rows.append(_compared(name, sum(found[cell] for cell in cells), predicted, "s"))
    for server in (KEYS, AGGREGATION):
        cell = "disk", server
        rows.append(_compared(f"disk of the {server}", found[cell] / 1e6, lines[cell].at(measured.phones) / 1e6, "MB"))
    rows.append(("from the last contribution to the decision", f"{measured.seconds[DECIDE]:,.1f} s", "", "", ""))
    rows += [(f"memory of the {server}", f"{size:,.0f} MB", "", "", "") for server, size in measured.memory.items()]
    return grid(f"A count of {measured.phones:,} phones", rows)


def _compared(name: str, measured: float, predicted: float, unit: str) -> tuple[str, ...]:
    ratio = predicted / measured
    verdict = "yes" if abs(ratio - 1) <= TOLERANCE else "NO"
    return name, f"{measured:,.2f} {unit}", f"{predicted:,.2f} {unit}", f"{ratio:.2f}", verdict


def _phone_cost() -> PhoneCost:
    with (
        TemporaryDirectory() as name,
        launched(ServerPair(Path(name), key_bits=KEY_BITS, keys_options=("--join-rate", str(FEW)))) as servers,
    ):
        traffic = asyncio.run(_traffic(servers))
    key = KeyPair.generate().public
    query = exact_query("a phone", key.key_id.hex(), FEW, COUNTERS, closes_after=3600)
    phone, query_key = LoadPhone(b"", SigningKey(), bytes(PHONE_BYTES)), AgreementKey().public
    _, first = prepared_contribution(query, key, query_key, phone)
    key.prepare()
    later = min(prepared_contribution(query, key, query_key, phone)[1] for _ in range(CONTRIBUTIONS))
    return PhoneCost(first, later, *traffic)


async def _traffic(servers: ServerPair) -> tuple[int, int, int]:
    """The bytes that one phone sends and receives in a count, and both once to join."""
    async with relay(servers.enrolment.address) as joining, _to(joining, servers, EnrolmentStub) as calls:
        (invitation,) = await asyncio.to_thread(servers.invitations, 1)
        phone = LoadPhone(invitation.token, SigningKey())
        phone.id = (await calls.call("Join", phone.joining())).phone
    phones = [phone, *await enrolled(servers, FEW - 1)]
    _, key = await terms(servers)
    query = exact_query("measured", key.key_id.hex(), FEW, COUNTERS, closes_after=86400)
    (opened,) = await announced(servers, [query], phone)
    cheap = CheapContributions(query, key, opened.query_key)
    async with calls_to([servers.collecting], CollectingStub) as calls:
        for each in phones[1:]:
            await calls.call("Contribute", cheap.contribution(each, 0, [1] * COUNTERS))
    wanted = wire.DecisionsRequest(wanted=[wire.DecisionWanted(query=query.digest, cohort=0)])
    async with relay(servers.collecting.address) as counting, _to(counting, servers, CollectingStub) as calls:
        await calls.call("Announcements", wire.AnnouncementsRequest(phone=phone.id))
        await calls.call("Query", phone.fetching(query.digest))
        await calls.call("Key", wire.KeyRequest(key_id=key.key_id))
        await calls.call("Contribute", cheap.contribution(phone, 0, [1] * COUNTERS))
        await asyncio.sleep(DECIDING)
        if not (await calls.call("Decisions", wanted)).decisions:
            raise ValueError("the query is not decided in time")
    return counting.sent, counting.received, joining.sent + joining.received


def _to(through: Relay, servers: ServerPair, stub: Any) -> AbstractAsyncContextManager[Calls]:
    """A phone's only connection to a server."""
    return calls_to([Endpoint(through.address, servers.credentials)], stub, connections=1)


def _receipt_bytes() -> int:
    """The bytes of a receipt among many in a message."""
    receipt = wire.Receipt(
        phone=bytes(PHONE_BYTES),
        agreement_key=bytes(PUBLIC_KEY_BYTES),
        ciphertexts_hash=bytes(PUBLIC_KEY_BYTES),
        seeded=False,
        signature=bytes(SIGNATURE_BYTES),
    )
    return wire.Receipts(receipts=[receipt]).ByteSize()


def _duration(time: float) -> str:
    return f"{time:,.1f} s" if time < HOUR else f"{time / HOUR:,.1f} h"


def _bytes(size: float) -> str:
    unit = next(unit for unit in ("kB", "MB", "GB", "TB") if (size := size / KILO) < KILO)
    return f"{size:,.1f} {unit}"


def main() -> None:
    """Check the predictions at the sizes of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unit_costs", description=__doc__.partition("\n\n")[0])
    parser.add_argument("phones", metavar="PHONES", nargs="*", type=int, default=CHECKED, help="sizes to check")
    for text in report(parser.parse_args().phones):
        print(text, flush=True)


if __name__ == "__main__":
    main()
