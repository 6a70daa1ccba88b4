"""The coordinator lets phones fetch decisions until none waits for one."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reticent_sim.engine.coordinator import BETWEEN, LAST_PHASE, ROUNDS, Coordinator
from reticent_sim.engine.times import instant_of


@pytest.mark.parametrize(("pending", "rounds"), [([0], 1), ([2, 1, 0, 5], 3), ([1] * 20, ROUNDS)])
def test_phones_fetch_decisions_again_until_none_is_pending(pending: list[int], rounds: int) -> None:
    numbers: list[int] = []
    moves: list[dt.datetime] = []

    def take_round(query: None, number: int, _: int) -> list[Any]:
        assert query is None
        numbers.append(number - LAST_PHASE)
        return [SimpleNamespace(pending=0), SimpleNamespace(pending=pending[number - LAST_PHASE])]

    coordinator = SimpleNamespace(
        show=lambda _: None,
        faulted=[],
        _process_faults=SimpleNamespace(finish=lambda _: ["serves again"]),
        _day=1,
        _rounds=take_round,
    )

    def move(instant: dt.datetime) -> None:
        coordinator._now = instant
        moves.append(instant)

    coordinator._move = move
    Coordinator.take_decisions(cast("Coordinator", coordinator))
    assert numbers == list(range(rounds))
    assert coordinator.faulted == ["serves again"]
    assert moves[0] == instant_of(2, 0) - dt.timedelta(seconds=5)
    assert all(later - earlier == BETWEEN for earlier, later in pairwise(moves))
