"""Phones per second, memory and disk of 10,000 phones in one process, against stated goals.

All of them take part in one query to real servers, which are processes of their own, over TLS. And the masks of 1,000
phones of one file decide a step.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import Row, memory, table
from reticent.clock import ManualClock
from reticent.privacy import Counter, Query
from reticent.protocol.invitation import Invitation
from reticent.tls.certificates import Certificate
from reticent_analyst import Analyst
from reticent_client import MarkovChain, Participation, Phone, PhoneStore, hybrid
from reticent_client.apps.messages import Step
from reticent_client.counting.records import ContributionState
from reticent_client.counting.session import Round
from reticent_sim.engine import ANALYST, ServerPair, launched

FEW, MANY = 1_000, 10_000
MASKS = 1_000  # phones with a mask
MASK_RATE, MASK_COMMITS = 2_000.0, 10  # goals: phones a second, commits of a step
NOON = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
COUNTERS = 64
KEY_BITS = 2048
WARM_UP = 50  # phones before memory is measured
AT_ONCE = 200  # phones that join at a time
TIMEOUT = 3600.0
MEMORY, DESCRIPTORS = 30.0, 50  # goals: kB a phone, open files


def run() -> Iterator[str]:
    """A step of masks; and phones per second, and their memory and disk, for two numbers of phones."""
    with TemporaryDirectory() as folder:
        step = _in_a_process("decide", folder, MASKS)
    rows = [
        Row("phones whose masks decide, a second", f"{step['rate']:,.0f}", target=f"at least {MASK_RATE:,.0f}"),
        Row("commits of a step", f"{step['commits']:.0f}", target=f"at most {MASK_COMMITS}"),
        Row("phones that start together, a second", f"{step['starts']:,.0f}"),
    ]
    yield table(f"A step of {MASKS:,} phones with masks in one file", rows)
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


def decide(folder: str, count: int) -> None:
    """Run by the process of the phones: have the masks of all of them decide a step, and print what that took."""
    print(json.dumps(asyncio.run(_decide(Path(folder), count))))


async def _decide(folder: Path, count: int) -> dict[str, float]:
    days = [["home", "work", "home"] * 8, ["home", "hospital", "home"] * 8]
    policy = hybrid(MarkovChain.fit(days), sensitive={"hospital"}, delta=0.2)
    clock = ManualClock(NOON - dt.timedelta(minutes=1))
    published: list[Step] = []
    statements: list[str] = []
    with contextlib.closing(PhoneStore(folder / "masks.db")) as store:
        store.database._connection.set_trace_callback(statements.append)  # noqa: SLF001  # to count commits
        async with contextlib.AsyncExitStack() as stack:
            options: Any = {"zone": dt.UTC, "clock": clock, "first_day": True, "on_step": published.append}
            phones = [Phone(policy, store=store.of(f"phone {number}"), **options) for number in range(count)]
            begun = time.monotonic()
            await asyncio.gather(*map(stack.enter_async_context, phones))
            started = time.monotonic() - begun
            for phone in phones:
                phone.sense("home")
            statements.clear()
            begun = time.monotonic()
            await clock.move_to(NOON)
            took = time.monotonic() - begun
        if len(published) != count:
            raise ValueError(f"{len(published)} of {count} phones published the step")
        return {"rate": count / took, "commits": float(statements.count("COMMIT")), "starts": count / started}


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
