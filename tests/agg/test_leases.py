"""Several drivers over one store: each request goes to the key server once while its lease is valid."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import sys
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reticent.clock import Clock, ManualClock, SystemClock
from reticent.privacy import Query
from reticent.protocol.channels import channel
from reticent.randomness import secure
from reticent.tls.certificates import Certificate
from reticent_agg import AggregationServer, SqliteStore
from reticent_agg.driver import LEASE, Driver
from tests.agg.broken_stores import LeasesToAnybody
from tests.agg.network import DEADLINE, Deciding, run
from tests.parties import aggregation
from tests.parties.aggregation import START, KeyServer, Phone, Time
from tests.parties.waiting import until

pytestmark = pytest.mark.slow  # real connections, and a process

COHORTS = 3
QUERIES = 4


@contextlib.asynccontextmanager
async def driving(path: Path, certs: Path, key_server: str, owner: str, clock: Clock) -> AsyncIterator[Driver]:
    """A driver that works, with a store of its own over the file, as a process of its own would have."""
    server = AggregationServer(
        SqliteStore(path), identity=KeyServer.identity.public, now=clock.now, rng=secure(), simulation=True
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


def prepared(path: Path) -> tuple[list[Query], list[Query]]:
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


def left(path: Path) -> int:
    """How many items are to be done."""
    with contextlib.closing(SqliteStore(path)) as store:
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


def test_two_drivers_share_the_work_and_do_nothing_twice(path: Path, certs: Path) -> None:
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


def test_what_one_driver_works_on_the_other_leaves_alone_until_it_is_released(path: Path, certs: Path) -> None:
    """A key server that needs long: the lease is renewed by the clock for as long as the call lasts.

    The first two wait for their calls; the third comes when their leases would have expired.
    """

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


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.agg.test_leases import hold
asyncio.run(hold(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
"""


async def hold(path: Path, certs: Path, key_server: str) -> None:
    """Run in a process of its own, until it is killed: a driver whose clock stands still."""
    async with driving(path, certs, key_server, "to be killed", ManualClock(START)):
        await asyncio.sleep(DEADLINE)


def test_the_test_above_finds_a_store_that_leases_to_anybody(
    path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.agg.test_leases.SqliteStore", LeasesToAnybody)
    with pytest.raises(AssertionError):
        test_what_one_driver_works_on_the_other_leaves_alone_until_it_is_released(path, certs)


def test_a_driver_that_is_killed_loses_its_leases_when_they_expire(path: Path, certs: Path) -> None:
    async def kill() -> None:
        prepared(path)
        keys = Deciding(certs, decides=asyncio.Event(), gate=asyncio.Event())
        assert keys.decides is not None
        assert keys.gate is not None
        async with keys.listener() as listener:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", KILLED, str(path), str(certs), listener.address
            )
            await until(lambda: (len(keys.heads), len(keys.countersigned)) == (1, 1))
            process.kill()
            await process.wait()
            keys.decides.set()
            keys.gate.set()
            (first,), (query,) = keys.heads, keys.countersigned
            clock = ManualClock(START)
            async with driving(path, certs, listener.address, "another", clock) as other:
                await until(lambda: left(path) == 2)  # all but what the killed one has
                await clock.move_to(START + LEASE - dt.timedelta(milliseconds=1))
                for wake in (other.decide, other.countersign):
                    wake()
                await asyncio.sleep(0.2)
                assert left(path) == 2
                await clock.move_to(START + LEASE)
                for wake in (other.decide, other.countersign):
                    wake()
                await until(lambda: not left(path))
        assert [head for head in keys.heads if (head.query, head.cohort) == (first.query, first.cohort)] == [first] * 2
        assert Counter(keys.countersigned)[query] == 2
        assert sorted(request_counts(keys).values()) == [1] * (QUERIES * (COHORTS + 1) - 2) + [2] * 2

    run(kill())


def test_a_driver_that_ends_releases_its_leases(path: Path, certs: Path) -> None:
    async def end() -> None:
        prepared(path)
        keys = Deciding(certs, decides=asyncio.Event())
        assert keys.decides is not None
        async with keys.listener() as listener:
            async with driving(path, certs, listener.address, "one", SystemClock()):
                await until(lambda: len(keys.heads) == 1)
            keys.decides.set()
            async with driving(path, certs, listener.address, "two", SystemClock()):
                await until(lambda: not left(path))
        assert [head for head in keys.heads if head.query == keys.heads[0].query][:2] == [keys.heads[0]] * 2

    run(end())
