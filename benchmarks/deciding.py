"""Time to decide a cohort from receipts sent over TLS, against one process that checks them; memory of the key server.

The key server runs as its operator runs it, with keys for simulation and with keys for use. The rival is one process
that checks the same receipts.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Row, seconds, table
from reticent.paillier import centred, pad, tag
from reticent.privacy import Counter, Query
from reticent.protocol import AgreementKey, SigningKey, packing_of, shared_secret, statements
from reticent.protocol.channels import channel
from reticent.protocol.layout import ciphertexts_to
from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_keys import KeyServer
from reticent_keys.folder import Folder
from reticent_keys.journal import EnrolledPhone
from reticent_keys.receipts import Expectation, Receipts, check
from reticent_sim.engine import ServerPair

COUNTERS = 64  # of 0 or 1
FEW, MANY = 10_000, 100_000
LENGTHS = (2048, 3072)
TARGET = 60.0  # seconds to decide
PER_MESSAGE = 1000  # as the aggregation server sends them
SAMPLE = 2000  # receipts that one process checks
DEADLINE = 1200.0  # seconds for anything
YEAR = dt.timedelta(days=365)
OWN = AgreementKey(bytes(range(32)))
"""Of all contributions: each has its own secret all the same, because the phone's id is a part of it."""


@dataclass(frozen=True)
class Prepared:
    """A query with all its contributions.

    Args:
        head: The request to decide its only cohort.
        receipts: In the order of the phones.
        one_process: Seconds in which one process checks a receipt.
    """

    head: wire.DecideHead
    receipts: list[wire.Receipt]
    one_process: float

    async def messages(self) -> AsyncIterator[wire.DecideRequest]:
        """The request, as the aggregation server sends it."""
        yield wire.DecideRequest(head=self.head)
        for first in range(0, len(self.receipts), PER_MESSAGE):
            yield wire.DecideRequest(receipts=wire.Receipts(receipts=self.receipts[first : first + PER_MESSAGE]))


def run() -> Iterator[str]:
    """Seconds and memory to decide."""
    for bits in LENGTHS:
        with TemporaryDirectory() as folder:
            yield table(
                f"A cohort of {MANY:,} phones decided: {COUNTERS} counters, {bits} bits", _rows(Path(folder), bits)
            )


def _rows(folder: Path, bits: int) -> list[Row]:
    with ServerPair(folder, key_bits=bits) as servers:
        with Folder(servers.keys_folder, bits=bits, simulation=True).served(
            servers.passphrase, now=lambda: dt.datetime.now(dt.UTC)
        ) as server:
            phones = _enrolled(server, MANY)
            few, many = (_prepared(server, phones, number) for number in (FEW, MANY))
        servers.keys.start()
        before = _memory(servers.keys.pid)[0]
        peaks, times, busy = [], [], 0.0
        for prepared in (few, many):
            begun = _busy(servers.keys.pid)
            with _watched(servers.keys.pid) as peak:
                times.append(asyncio.run(_decided(servers, prepared)))
            busy = _busy(servers.keys.pid) - begun
            peaks.append(peak)
    one_process = many.one_process * MANY
    return [
        Row("decided in", seconds(times[1]), seconds(one_process), one_process / times[1], f"at most {TARGET:.0f} s"),
        Row(f"{FEW:,} phones decided in", seconds(times[0])),
        Row("memory of the server before", f"{before:.0f} MB"),
        *(
            Row(
                f"and while it decides {number:,} phones",
                f"{peak[0]:.0f} MB, {peak[1]:.0f} MB of {peak[2]:.0f} workers",
            )
            for number, peak in zip((FEW, MANY), peaks, strict=True)
        ),
        Row("processor time of server and workers", seconds(busy)),
        Row("load of the machine", f"{os.getloadavg()[0]:.1f}", target=f"0 to {os.cpu_count()}"),
    ]


def _enrolled(server: KeyServer, count: int) -> list[tuple[bytes, SigningKey]]:
    """Phones with their keys, as if they had joined."""
    journal = server.journal
    now = int(time.time() * 1000)
    expires = now + YEAR // dt.timedelta(milliseconds=1)
    phones = [(number.to_bytes(16, "big"), SigningKey(number.to_bytes(32, "big"))) for number in range(1, count + 1)]
    with journal.database.transaction():  # type: ignore[attr-defined]  # otherwise each phone would wait for the disk
        journal.add_invitations([phone for phone, _ in phones], expires)
        for phone, key in phones:
            journal.enrol(phone, EnrolledPhone(phone, key.public, now, expires))
    return phones


def _prepared(server: KeyServer, phones: list[tuple[bytes, SigningKey]], population: int) -> Prepared:
    """A query to some of the phones."""
    key = server.keyring.pair(server.keyring.active()).public
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
        min_contributions=population // 2,
        liars=population // 20,
        key_id=key.key_id.hex(),
        closes_after=86400,
    )
    deals = list(server.dealer.countersign(query.to_bytes()))
    query_key, dealt = deals[0].agreement_key, {each.phone for deal in deals for each in deal.phones}
    packing = packing_of(query, key.bits)
    totals = [0] * packing.plaintexts
    receipts = []
    for phone, signing in phones:
        if phone not in dealt:
            continue
        secret = shared_secret(OWN, phone=phone, phone_key=OWN.public, query_key=query_key)
        tags = [tag(secret, query.digest, 0, place) for place in range(packing.plaintexts)]
        for place, plaintext in enumerate(packing.pack([1] + [0] * (COUNTERS - 1), tags)):
            totals[place] += plaintext + pad(secret, query.digest, 0, place, key.n)
        receipt = wire.Receipt(phone=phone, agreement_key=OWN.public, ciphertexts_hash=secret, seeded=True)
        receipt.signature = signing.sign(statements.contribution_of(query.digest, query.key_id, 0, receipt))
        receipts.append(receipt)
    head = wire.DecideHead(
        query=query.digest,
        contributors=len(receipts),
        ciphertexts=ciphertexts_to(key.encrypt([centred(total, key.n) for total in totals], secure()), key),
    )
    expectation = Expectation(query.digest, query.key_id, 0, key.n, packing.plaintexts, AgreementKey().to_bytes())
    verify_keys = [signing.public for phone, signing in phones if phone in dealt][:SAMPLE]
    begun = time.perf_counter()
    check(expectation, Receipts(receipts[:SAMPLE], verify_keys))
    return Prepared(head, receipts, (time.perf_counter() - begun) / SAMPLE)


async def _decided(servers: ServerPair, prepared: Prepared) -> float:
    """Seconds from the first message to the decision, which releases the right sum."""
    async with channel(servers.deciding.address, servers.credentials("aggregation")) as link:
        await asyncio.wait_for(link.channel_ready(), DEADLINE)
        begun = time.perf_counter()
        stub = counting_pb2_grpc.DecidingStub(link)
        decision = await stub.Decide(prepared.messages(), timeout=DEADLINE)
        elapsed = time.perf_counter() - begun
    assert decision.outcome == wire.RELEASED, decision
    assert statements.integer_from(decision.sums[0]) == len(prepared.receipts)
    return elapsed


@contextmanager
def _watched(pid: int) -> Iterator[list[float]]:
    """The largest memory of a process meanwhile, of those that it has started, and their number."""
    peak, done = [0.0, 0.0, 0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[:] = map(max, peak, _memory(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _memory(pid: int) -> tuple[float, float, float]:
    """The memory of a process in MB, of those that it has started, and their number."""
    sizes = [_size(each) for each in _workers(pid)]
    return _size(pid), sum(sizes), float(len(sizes))


def _busy(pid: int) -> float:
    """The processor time of a process, and of those that it has started, in seconds."""
    fields = [Path(f"/proc/{each}/stat").read_text().split()[13:15] for each in (pid, *_workers(pid))]
    return sum(int(ticks) for each in fields for ticks in each) / os.sysconf("SC_CLK_TCK")


def _workers(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for path in children for each in path.read_text().split()]


def _size(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
