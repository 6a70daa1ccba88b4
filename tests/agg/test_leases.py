"""Several drivers over one store: each request goes to the key server once while its lease is valid."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reticent.clock import Clock, ManualClock, SystemClock
from reticent.privacy import Query
from reticent.protocol.channels import channel
from reticent.randomness import secure
from reticent.times import milliseconds
from reticent.tls.certificates import Certificate
from reticent_agg import AggregationServer, SqlStore
from reticent_agg.driver import LEASE, MAX_CALLS, RENEWAL, Driver
from reticent_agg.store import Lease, WorkItem
from tests.agg.broken_stores import LeasesToAnybody
from tests.agg.network import DEADLINE, Deciding, run
from tests.parties import aggregation
from tests.parties.aggregation import START, KeyServer, Phone, Time
from tests.parties.waiting import until

pytestmark = pytest.mark.slow  # real connections, and a process

COHORTS = 3
QUERIES = 4


@contextlib.asynccontextmanager
async def driving(path: Path | str, certs: Path, key_server: str, owner: str, clock: Clock) -> AsyncIterator[Driver]:
    """A driver that works, with a store of its own over the file, as a process of its own would have."""
    server = AggregationServer(
        SqlStore(path), identity=KeyServer.identity.public, now=clock.now, rng=secure(), simulation=True
    )
    with contextlib.closing(server), ThreadPoolExecutor(1) as writer:
        credentials = Certificate.load(certs, "aggregation").channel_credentials()
        async with channel(key_server, credentials) as way:
            driver = Driver(server, way, writer, clock=clock, owner=owner, on_collecting=lambda: None)
            task = asyncio.create_task(driver.run())
            try:
                yield driver
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def prepared(path: Path | str) -> tuple[list[Query], list[Query]]:
    """Queries to be countersigned, and closed ones to be decided."""
    time = Time()
    server = aggregation.opened(path, time)
    closed = [
        aggregation.collecting(server, aggregation.make_query(population=2 * COHORTS, cohorts=COHORTS))
        for _ in range(QUERIES)
    ]
    for query in closed:
        server.collection.contribute([Phone(number).contribution(query) for number in range(2 * COHORTS)])
    time.pass_(closed[0].closes_after)
    server.closing.close_due()
    announced = [aggregation.make_query() for _ in range(QUERIES)]
    for query in announced:
        aggregation.announce(server, query)
    server.close()
    return announced, closed


def left(path: Path | str) -> int:
    """How many items are to be done."""
    with contextlib.closing(SqlStore(path)) as store:
        return len(store.to_countersign()) + len(store.to_decide())


class RenewalClock(ManualClock):
    """A clock that counts who waits for it: only renewals of leases do."""

    waiting = 0

    async def wait_until(self, instant: dt.datetime) -> None:
        self.waiting += 1
        try:
            await super().wait_until(instant)
        finally:
            self.waiting -= 1


def request_counts(keys: Deciding) -> Counter[tuple[bytes, int]]:
    """How often the key server was asked to decide each cohort, and, as number -1, to countersign each query."""
    items = [(head.query, head.cohort) for head in keys.heads] + [(digest, -1) for digest in keys.countersigned]
    return Counter(items)


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def place(request: pytest.FixtureRequest) -> Path | str:
    """Where the store is."""
    name = "path" if request.param == "SQLite" else "postgres"
    found: Path | str = request.getfixturevalue(name)
    return found


def test_two_drivers_share_the_work_and_do_nothing_twice(place: Path | str, certs: Path) -> None:
    path = place

    async def share() -> None:
        announced, closed = prepared(path)
        keys = Deciding(certs)
        async with keys.listener() as listener:
            clock = ManualClock(START)
            async with (
                driving(path, certs, listener.address, "one", clock) as one,
                driving(path, certs, listener.address, "two", clock) as two,
            ):
                while left(path):  # whatever they hear of meanwhile
                    for driver in (one, two):
                        driver.countersign()
                        driver.decide()
                    await asyncio.sleep(0.01)
        assert request_counts(keys) == Counter(
            [(query.digest, cohort) for query in closed for cohort in range(COHORTS)]
            + [(query.digest, -1) for query in announced]
        )

    run(share())


def test_what_one_driver_works_on_the_other_leaves_alone_until_it_is_released(
    path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key server that needs long: the lease is renewed by the clock for as long as the call lasts.

    The first two wait for their calls; the third comes when their leases would have expired.
    """
    monkeypatch.setattr("reticent_agg.driver.MAX_CALLS", 1)

    async def wait() -> None:
        _, closed = prepared(path)
        keys = Deciding(certs, decides=asyncio.Event())
        assert keys.decides is not None
        async with keys.listener() as listener:
            clock = RenewalClock(START)
            async with driving(path, certs, listener.address, "one", clock):
                await until(lambda: len(keys.heads) == 1)
                async with driving(path, certs, listener.address, "two", clock):
                    await until(lambda: len(keys.heads) == 2)  # the next cohort
                    for _ in range(10):
                        await until(lambda: clock.waiting == 2)  # both renewals are written
                        await clock.move_to(clock.now() + LEASE / 2)
                    async with driving(path, certs, listener.address, "three", clock):
                        await until(lambda: len(keys.heads) == 3)
                        assert max(request_counts(keys).values()) == 1
                        keys.decides.set()
                        await until(lambda: not left(path))
        assert max(request_counts(keys).values()) == 1
        assert len(keys.heads) == COHORTS * len(closed)

    run(wait())


def test_a_renewal_that_waits_for_the_writer_lasts_from_when_it_is_written(
    path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, go = threading.Event(), threading.Event()
    written: list[int] = []

    def renew(_store: SqlStore, _item: WorkItem, lease: Lease) -> bool:
        held.set()
        assert go.wait(DEADLINE)
        written.append(lease.expires)
        return True

    monkeypatch.setattr(SqlStore, "renew", renew)

    async def wait() -> None:
        prepared(path)
        keys = Deciding(certs, decides=asyncio.Event(), gate=asyncio.Event())
        async with keys.listener() as listener:
            clock = RenewalClock(START)
            async with driving(path, certs, listener.address, "one", clock):
                await until(lambda: clock.waiting == MAX_CALLS + QUERIES)
                await clock.move_to(START + RENEWAL)
                await until(held.is_set)  # the others wait
                later = START + RENEWAL * 2
                await clock.move_to(later)
                go.set()
                await until(lambda: len(written) == MAX_CALLS + QUERIES)
        assert written[1:] == [milliseconds(later + LEASE)] * (MAX_CALLS + QUERIES - 1)

    run(wait())


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.agg.test_leases import hold
place = sys.argv[1] if "://" in sys.argv[1] else Path(sys.argv[1])
asyncio.run(hold(place, Path(sys.argv[2]), sys.argv[3]))
"""


async def hold(path: Path | str, certs: Path, key_server: str) -> None:
    """Run in a process of its own, until it is killed: a driver whose clock stands still."""
    async with driving(path, certs, key_server, "to be killed", ManualClock(START)):
        await asyncio.sleep(DEADLINE)


def test_the_test_above_finds_a_store_that_leases_to_anybody(
    path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.agg.test_leases.SqlStore", LeasesToAnybody)
    with pytest.raises(AssertionError):
        test_what_one_driver_works_on_the_other_leaves_alone_until_it_is_released(path, certs, monkeypatch)


def test_a_driver_that_is_killed_loses_its_leases_when_they_expire(place: Path | str, certs: Path) -> None:
    path = place

    async def kill() -> None:
        prepared(path)
        keys = Deciding(certs, decides=asyncio.Event(), gate=asyncio.Event())
        assert keys.decides is not None
        assert keys.gate is not None
        async with keys.listener() as listener:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", KILLED, str(path), str(certs), listener.address
            )
            await until(lambda: (len(keys.heads), len(keys.countersigned)) == (MAX_CALLS, QUERIES))
            process.kill()
            await process.wait()
            keys.decides.set()
            keys.gate.set()
            held = list(keys.heads)
            clock = ManualClock(START)
            async with driving(path, certs, listener.address, "another", clock) as other:
                await until(lambda: left(path) == MAX_CALLS + QUERIES)  # all but what the killed one has
                await clock.move_to(START + LEASE - dt.timedelta(milliseconds=1))
                for wake in (other.decide, other.countersign):
                    wake()
                await asyncio.sleep(0.2)
                assert left(path) == MAX_CALLS + QUERIES
                await clock.move_to(START + LEASE)
                for wake in (other.decide, other.countersign):
                    wake()
                await until(lambda: not left(path))
        assert all(keys.heads.count(head) == 2 for head in held)  # the same bytes
        assert sorted(request_counts(keys).values()) == [1] * (QUERIES * COHORTS - MAX_CALLS) + [2] * (
            MAX_CALLS + QUERIES
        )

    run(kill())


def test_a_lease_that_expires_while_its_holder_still_works_changes_nothing(
    path: Path, certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another driver sends the same bytes; the first one learns of it, leaves the new lease alone, and both finish."""

    async def expire() -> None:
        prepared(path)
        keys = Deciding(certs, decides=asyncio.Event(), gate=asyncio.Event())
        assert keys.decides is not None
        assert keys.gate is not None
        async with keys.listener() as listener:
            slow, later = RenewalClock(START), ManualClock(START + LEASE)
            async with driving(path, certs, listener.address, "slow", slow):
                await until(lambda: slow.waiting == MAX_CALLS + QUERIES)  # and none of its leases is renewed in time
                async with driving(path, certs, listener.address, "another", later):
                    await until(lambda: len(keys.heads) == 2 * MAX_CALLS)
                    await slow.move_to(START + LEASE)
                    await until(lambda: caplog.text.count("a lease is lost") == MAX_CALLS + QUERIES)
                    async with driving(path, certs, listener.address, "third", later) as third:
                        third.decide()
                        await until(lambda: len(keys.heads) == MAX_CALLS + COHORTS * QUERIES)  # those that nobody had
                        keys.decides.set()
                        keys.gate.set()
                        await until(lambda: not left(path))
        first, again = (
            sorted(head.SerializeToString(deterministic=True) for head in heads)  # requests run side by side
            for heads in (keys.heads[:MAX_CALLS], keys.heads[MAX_CALLS : 2 * MAX_CALLS])
        )
        assert first == again
        assert max(request_counts(keys).values()) == 2
        assert "ERROR" not in caplog.text

    run(expire())


def test_a_lease_that_expires_while_its_holder_still_works_lets_another_one_decide_once(
    place: Path | str, certs: Path
) -> None:
    """Both send the same bytes, and one decision is kept: the holder has stalled, and its renewals with it."""

    async def stall() -> None:
        prepared(place)
        keys = Deciding(certs, decides=asyncio.Event(), gate=asyncio.Event())
        assert keys.decides is not None
        assert keys.gate is not None
        async with keys.listener() as listener:
            stalled = ManualClock(START)
            async with driving(place, certs, listener.address, "stalled", stalled):
                await until(lambda: len(keys.heads) >= 1)
                others = ManualClock(START + LEASE)
                async with driving(place, certs, listener.address, "other", others):
                    first = keys.heads[0]
                    await until(lambda: keys.heads.count(first) == 2)
                    keys.decides.set()
                    keys.gate.set()
                    await until(lambda: not left(place))
        with contextlib.closing(SqlStore(place)) as store:
            assert [each.decision is not None for each in store.cohorts(first.query)] == [True] * COHORTS

    run(stall())


def test_a_driver_that_ends_releases_its_leases(path: Path, certs: Path) -> None:
    async def end() -> None:
        prepared(path)
        keys = Deciding(certs, decides=asyncio.Event())
        assert keys.decides is not None
        async with keys.listener() as listener:
            async with driving(path, certs, listener.address, "one", SystemClock()):
                await until(lambda: len(keys.heads) == MAX_CALLS)
            held = list(keys.heads)
            keys.decides.set()
            async with driving(path, certs, listener.address, "two", SystemClock()):
                await until(lambda: not left(path))
        assert all(keys.heads.count(head) == 2 for head in held)

    run(end())
