"""Batches of contributions: how many may wait, and the outcome of each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_agg.counting.batches import Batches
from reticent_agg.counting.collection import ContributionResult
from tests.agg.network import run

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


def test_what_finds_no_room_is_told_when_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent_agg.counting.batches.MAX_WAITING", 5)
    monkeypatch.setattr("reticent_agg.counting.batches.MAX_BYTES_WAITING", 100)
    monkeypatch.setattr("reticent_agg.counting.batches.MAX_BATCH", 3)
    taken: list[int] = []

    async def fill() -> None:
        go = asyncio.Event()

        async def take(contributions: Any) -> list[ContributionResult]:
            await go.wait()
            taken.append(len(contributions))
            return [wire.Acknowledgement(contribution=each.phone) for each in contributions]

        batches = Batches(take)
        small, large = wire.Contribution(phone=b"p"), wire.Contribution(ciphertexts=bytes(100))
        waiting = [asyncio.create_task(batches.add(small)) for _ in range(8)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        full = [each for each in waiting if each.done()]
        assert len(full) == 3
        for each in full:
            error = each.exception()
            assert isinstance(error, Refused)
            assert (error.refusal, error.retry_after) == (Refusal.BUSY, 1.0)
        go.set()
        assert [await each for each in waiting if each not in full] == [wire.Acknowledgement(contribution=b"p")] * 5
        go.clear()
        more = [asyncio.create_task(batches.add(large)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert isinstance(more[1].exception(), Refused)  # by its bytes
        go.set()
        await more[0]

    run(fill())
    assert taken == [3, 2, 1]


def test_a_disk_that_fails_is_told_and_the_next_ones_are_served() -> None:
    faults: Iterator[Exception | None] = iter([OSError("full"), ZeroDivisionError(), None])

    async def fail() -> None:
        async def take(contributions: Any) -> list[ContributionResult]:
            if (fault := next(faults)) is not None:
                raise fault
            return [wire.Acknowledgement()] * len(contributions)

        batches = Batches(take)
        with pytest.raises(Refused) as caught:
            await batches.add(wire.Contribution())
        assert (caught.value.refusal, caught.value.retry_after) == (Refusal.UNAVAILABLE, 1.0)
        with pytest.raises(ZeroDivisionError):
            await batches.add(wire.Contribution())
        assert await batches.add(wire.Contribution()) == wire.Acknowledgement()

    run(fail())


def test_who_has_gone_does_not_keep_the_others_from_their_answers() -> None:
    async def leave() -> None:
        async def take(contributions: Any) -> list[ContributionResult]:
            await asyncio.sleep(0.01)
            return [wire.Acknowledgement()] * len(contributions)

        batches = Batches(take)
        gone, stays = (asyncio.create_task(batches.add(wire.Contribution())) for _ in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == wire.Acknowledgement()

    run(leave())
