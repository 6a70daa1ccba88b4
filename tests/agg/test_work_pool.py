"""The pool of attempts: bounded, side by side, and what fails waits alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest

from reticent.protocol import Refusal, Refused
from reticent_agg.store import WorkItem
from reticent_agg.work_pool import WorkPool

ROUNDS = 20  # of the event loop, which no attempt here needs
SIZE = 3


class Work:
    """Items to do, whose attempts end when the test lets them."""

    def __init__(self, *items: WorkItem) -> None:
        self.items = list(items)
        self.attempts: list[WorkItem] = []
        self.ends: dict[WorkItem, asyncio.Future[None]] = {}
        self.disk: Exception | None = None
        self.pool = WorkPool(self.listed, self.attempt, size=SIZE)

    async def listed(self) -> Mapping[WorkItem, str]:
        if self.disk is not None:
            raise self.disk
        return dict.fromkeys(self.items, "q")

    async def attempt(self, item: WorkItem) -> None:
        self.attempts.append(item)
        self.ends[item] = asyncio.get_running_loop().create_future()
        await self.ends[item]
        self.items.remove(item)

    async def end(self, item: WorkItem, error: Exception | None = None) -> None:
        if error is None:
            self.ends[item].set_result(None)
        else:
            self.ends[item].set_exception(error)
        await settled()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[WorkPool]:
        task = asyncio.create_task(self.pool.run())
        await settled()
        try:
            yield self.pool
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def settled() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


def cohort(number: int, *, burn: bool = False) -> WorkItem:
    return WorkItem(b"q", number, burn=burn)


COHORTS = [cohort(number) for number in range(6)]


def test_attempts_run_side_by_side_up_to_the_size_of_the_pool() -> None:
    async def work() -> None:
        work = Work(*COHORTS)
        async with work.running():
            assert work.attempts == COHORTS[:SIZE]
            await work.end(COHORTS[1], Refused(Refusal.BAD_RECEIPTS))
            for item in COHORTS[2:]:  # the first one hangs
                await work.end(item)
            assert work.attempts == COHORTS
            assert work.items == COHORTS[:2]

    asyncio.run(work())


def test_a_burn_waits_for_the_request_of_its_cohort_and_no_longer() -> None:
    async def work() -> None:
        work = Work(cohort(0))
        async with work.running() as pool:
            work.items.append(cohort(0, burn=True))
            pool.wake()
            await settled()
            assert work.attempts == [cohort(0)]
            await work.end(cohort(0))
            assert work.attempts == [cohort(0), cohort(0, burn=True)]

    asyncio.run(work())


def test_a_caller_waits_for_the_attempt_and_not_for_what_is_done() -> None:
    async def work() -> None:
        work = Work(*COHORTS[:1])
        async with work.running() as pool:
            callers = [asyncio.create_task(pool.attempted(item)) for item in COHORTS[:2]]
            await settled()
            assert [each.done() for each in callers] == [False, True]
            await work.end(COHORTS[0], Refused(Refusal.BAD_RECEIPTS))
            assert callers[0].done()

    asyncio.run(work())


def test_a_full_disk_holds_all_items_and_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent_agg.work_pool.MIN_PAUSE", 1.0)  # seconds, more than this test needs

    async def work() -> None:
        work = Work(*COHORTS)
        async with work.running() as pool:
            caller = asyncio.create_task(pool.attempted(COHORTS[5]))
            await settled()
            await work.end(COHORTS[0], OSError("the disk is full"))
            await work.end(COHORTS[1], OSError("the disk is full"))
            assert (work.attempts, caller.done()) == (COHORTS[:SIZE], True)
            pool.wake()
            await settled()
            assert work.attempts == [*COHORTS[: SIZE + 1], COHORTS[4]]  # those that failed wait for their own delays
            work.disk = OSError("the disk is full")
            await asyncio.wait_for(pool.attempted(COHORTS[5]), 1.0)

    asyncio.run(work())
