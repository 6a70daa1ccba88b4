"""Phones per second, memory and disk of 10,000 phones in one process, against stated goals.

All of them take part in one query to real servers, which are processes of their own, over TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Row, memory, table
from reticent.privacy import Counter, Query
from reticent.protocol.invitation import Invitation
from reticent.tls.certificates import Certificate
from reticent_analyst import Analyst
from reticent_client import Participation, Phone, PhoneStore
from reticent_client.counting.records import ContributionState
from reticent_client.counting.session import Round
from reticent_sim.engine import ANALYST, ServerPair, launched

FEW, MANY = 1_000, 10_000
COUNTERS = 64
KEY_BITS = 2048
WARM_UP = 50  # phones before memory is measured
AT_ONCE = 200  # phones that join at a time
TIMEOUT = 3600.0
MEMORY, DESCRIPTORS = 30.0, 50  # goals: kB a phone, open files


def run() -> Iterator[str]:
    """Phones per second, and their memory and disk, for two numbers of phones."""
    few, many = (_measured(phones) for phones in (FEW, MANY))
    rows = [
        Row("phones that contribute, a second", f"{many['rate']:,.0f}", target=f"{few['rate']:,.0f} with {FEW:,}"),
        Row("phones that join, a second", f"{many['joins']:,.0f}", target=f"{few['joins']:,.0f} with {FEW:,}"),
        Row("CPU time of a phone", f"{many['cpu']:.1f} ms", target=f"{few['cpu']:.1f} ms with {FEW:,}"),
        Row("memory of a phone", f"{many['memory']:.1f} kB", target=f"at most {MEMORY:g} kB"),
        Row(f"memory of a phone of {FEW:,}", f"{few['memory']:.1f} kB", target=f"at most {MEMORY:g} kB"),
        Row("disk of a phone", f"{many['disk']:.1f} kB"),
        Row("open files", f"{many['files']:.0f}", target=f"at most {DESCRIPTORS}; {few['files']:.0f} with {FEW:,}"),
        Row("contributions in the release", f"{many['released']:,.0f}", target=f"{MANY:,}"),
    ]
    yield table(f"{MANY:,} phones in one process, {COUNTERS} counters under {KEY_BITS} bits", rows)


def _measured(phones: int) -> dict[str, float]:
    """Start servers, and a process with so many phones."""
    with (
        TemporaryDirectory() as name,
        launched(ServerPair(Path(name), key_bits=KEY_BITS, keys_options=("--join-rate", str(phones)))) as servers,
    ):
        servers.invitations(phones)
        joined = _in_a_process("join", name, phones)
        release = _announced(servers, phones)
        contributed = _in_a_process("contribute", name, phones)
        return joined | contributed | {"released": release()}


def _in_a_process(function: str, folder: str, phones: int) -> dict[str, float]:
    code = f"import sys; from benchmarks import many_phones; many_phones.{function}(sys.argv[1], int(sys.argv[2]))"
    done = subprocess.run(  # noqa: S603  # our own
        [sys.executable, "-c", code, folder, str(phones)], stdout=subprocess.PIPE, check=True, timeout=TIMEOUT
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _announced(servers: ServerPair, phones: int) -> Callable[[], float]:
    """Announce a query to all phones; what is returned waits for the contributions in its release."""
    certificate = Certificate.load(servers.certs, ANALYST)
    analyst = Analyst(servers.counting.address, certificate, servers.identity)
    terms = analyst.terms()
    query = Query(
        id="many phones",
        counters=[Counter(f"counter {number}", 0, 1) for number in range(COUNTERS)],
        epsilon=1.0,
        delta=1e-6,
        l2_squared=1,
        l1=1,
        noise="skellam",
        population=terms.population,
        cohorts=1,
        min_contributions=phones * 9 // 10,
        liars=phones // 20,
        key_id=terms.key_id,
        closes_after=int(TIMEOUT),
    )
    handle = analyst.start(query)

    def released() -> float:
        with analyst:
            return float(handle.result().contributors)

    return released


def join(folder: str, count: int) -> None:
    """Run by the process of the phones: have all of them join, and print how many do so a second."""
    print(json.dumps({"joins": asyncio.run(_join(Path(folder), count))}))


async def _join(folder: Path, count: int) -> float:
    invitations = _invitations(folder)
    turn = asyncio.Semaphore(AT_ONCE)
    with contextlib.closing(PhoneStore(folder / "phones.db")) as store:

        async def joined(number: int) -> None:
            async with turn, _phone(store, number) as phone:
                await phone.counting.join(invitations[number])

        begun = time.monotonic()
        await asyncio.gather(*map(joined, range(count)))
        return count / (time.monotonic() - begun)


def contribute(folder: str, count: int) -> None:
    """Run by the process of the phones: run all of them until each has contributed, and print what that took."""
    print(json.dumps(asyncio.run(_contribute(Path(folder), count))))


async def _contribute(folder: Path, count: int) -> dict[str, float]:
    path = folder / "phones.db"
    contributed = Contributed()
    async with contextlib.AsyncExitStack() as stack:
        store = stack.enter_context(contextlib.closing(PhoneStore(path)))
        phones = [_phone(store, number, contributed) for number in range(WARM_UP)]
        for phone in phones:
            await stack.enter_async_context(phone)
        await contributed.wait(WARM_UP)
        gc.collect()
        before, begun, used = memory(), time.monotonic(), time.process_time()
        phones = [_phone(store, number, contributed) for number in range(WARM_UP, count)]
        for phone in phones:
            await stack.enter_async_context(phone)
        await contributed.wait(count)
        took, used = time.monotonic() - begun, time.process_time() - used
        gc.collect()
        return {
            "rate": (count - WARM_UP) / took,
            "cpu": used * 1e3 / (count - WARM_UP),
            "memory": (memory() - before) * 1e3 / (count - WARM_UP),
            "files": float(_open_files()),
            "disk": path.stat().st_size / 1e3 / count,
        }


class Contributed:
    """Which phones have contributed."""

    def __init__(self) -> None:
        self._phones: set[int] = set()
        self._changed = asyncio.Event()

    def note(self, number: int, what: Round) -> None:
        """Take what came of a round of a phone."""
        if any(record.state is not ContributionState.STORED for record in (*what.undecided, *what.decided)):
            self._phones.add(number)
            self._changed.set()

    async def wait(self, count: int) -> None:
        """Return when so many have."""
        while len(self._phones) < count:
            self._changed.clear()
            await self._changed.wait()


def _invitations(folder: Path) -> list[Invitation]:
    return [Invitation.from_text(path.read_text()) for path in sorted((folder / "invitations-1").iterdir())]


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _phone(store: PhoneStore, number: int, contributed: Contributed | None = None) -> Phone:
    return Phone(
        store=store.of(f"phone {number}"),
        participation=Participation(),
        counters=lambda _: {f"counter {number % COUNTERS}": 1.0},
        simulation=True,
        on_round=None if contributed is None else partial(contributed.note, number),
    )
