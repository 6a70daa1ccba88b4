"""A crash of a worker, as a fault of a run: its phones come back, and no other worker may have died."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reticent_sim.engine.errors import WorkerDied
from reticent_sim.engine.faults import FaultSchedule, Moment
from reticent_sim.engine.malice import Experience, QueryAttempts
from reticent_sim.engine.messages import Crash, Start, TakeRounds
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.usage import Reported, TotalUsage, Usage
from reticent_sim.engine.worker_pool import WorkerPool

NOW = dt.datetime(2027, 1, 5, tzinfo=dt.UTC)


class StubBackend:
    """Workers that die at a request to crash, and others that have died before. Each reply is the worker's number."""

    def __init__(self, dead: Sequence[int]) -> None:
        self.dead = set(dead)
        self.requests: list[tuple[int, Any]] = []

    def start(self, _factory: object, _setups: object) -> list[int]:
        started, self.dead = sorted(self.dead), set()
        return started

    def call(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        self.requests += requests.items()
        dying = {
            number
            for number, request in requests.items()
            if isinstance(request, Crash) or (isinstance(request, TakeRounds) and request.crash)
        }
        replies = {number: Reported(number, Usage(calls=1)) for number in requests if number not in dying}
        if dying:
            self.dead |= dying
            error = WorkerDied(min(dying), "was killed")
            error.replies = replies
            raise error
        return dict(replies)

    def stop(self) -> None: ...


def pool_of(backend: StubBackend, folder: Path) -> WorkerPool:
    scenario = Scenario(phones=10)
    pool = WorkerPool(backend, 3, scenario=scenario, folder=folder, faults=FaultSchedule())
    pool._starts = {number: Start(NOW, Moment(0, 0), {}, None) for number in range(3)}
    return pool


def test_a_worker_that_crashes_gets_its_phones_back(tmp_path: Path) -> None:
    backend = StubBackend(dead=[])
    pool_of(backend, tmp_path).crash(1, NOW, Moment(2, 7))
    assert backend.requests == [(1, Crash()), (1, Start(NOW, Moment(2, 7), {}, None))]


def test_a_worker_that_died_by_itself_ends_the_run(tmp_path: Path) -> None:
    backend = StubBackend(dead=[2])
    with pytest.raises(WorkerDied, match=r"^worker 2 died without a fault of the run: ") as caught:
        pool_of(backend, tmp_path).crash(1, NOW, Moment(2, 7))
    assert caught.value.number == 2


ROUND = TakeRounds(NOW, 0, Moment(2, 23, 1), None)


def test_workers_that_crash_in_a_round_repeat_it_and_the_others_do_not(tmp_path: Path) -> None:
    backend = StubBackend(dead=[])
    pool = pool_of(backend, tmp_path)
    replies: Sequence[object] = pool.take_rounds(ROUND, {1, 2})
    assert replies == [0, 1, 2]
    crash = replace(ROUND, crash=True)
    assert backend.requests[:3] == [(0, ROUND), (1, crash), (2, crash)]
    assert backend.requests[3:5] == [(number, Start(NOW, ROUND.moment, {}, None)) for number in (1, 2)]
    assert backend.requests[5:] == [(number, ROUND) for number in (1, 2)]
    assert pool.usage.calls == 5  # each reply that came, once


def test_a_worker_that_dies_in_a_round_by_itself_ends_the_run(tmp_path: Path) -> None:
    backend = StubBackend(dead=[0])
    with pytest.raises(WorkerDied, match=r"^worker 0 died without a fault of the run: "):
        pool_of(backend, tmp_path).take_rounds(ROUND, {1})


def test_usage_is_added_up_and_the_last_attempts_on_a_query_count() -> None:
    total = TotalUsage()
    first = QueryAttempts("visits", 0, {"BUSY": 1}, contributed=False)
    last = QueryAttempts("visits", 0, {"BUSY": 1, "acknowledged": 1}, contributed=True)
    other = QueryAttempts("rates", 0, {}, contributed=False)
    for phones in (
        [Experience(7, "flood", (first,)), Experience(3, "wild", ())],
        [Experience(7, "flood", (other, last))],
    ):
        total.add(
            Usage(phones_cpu=1.5, other_cpu=0.5, calls=2, bytes_sent=30, bytes_received=400, experiences=tuple(phones))
        )
    assert (total.phones_cpu, total.other_cpu) == (3.0, 1.0)
    assert (total.calls, total.bytes_sent, total.bytes_received) == (4, 60, 800)
    assert total.experiences == [Experience(3, "wild", ()), Experience(7, "flood", (last, other))]
