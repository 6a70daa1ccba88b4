"""A crash of a worker, as a fault of a run: its phones come back, and no other worker may have died."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reticent_sim.engine.errors import WorkerDied
from reticent_sim.engine.faults import FaultSchedule, Moment
from reticent_sim.engine.messages import Crash, Start
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.worker_pool import WorkerPool

NOW = dt.datetime(2027, 1, 5, tzinfo=dt.UTC)


class StubBackend:
    """Workers that die at a request to crash, and others that have died before."""

    def __init__(self, dead: Sequence[int]) -> None:
        self.dead = set(dead)
        self.requests: list[tuple[int, Any]] = []

    def start(self, _factory: object, _setups: object) -> list[int]:
        started, self.dead = sorted(self.dead), set()
        return started

    def call(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        self.requests += requests.items()
        for number, request in requests.items():
            if isinstance(request, Crash):
                self.dead.add(number)
                raise WorkerDied(number, "was killed")
        return dict.fromkeys(requests)

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
