"""Which queries without a full result are broken promises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reticent_sim.engine.broken_promises import broken_promises
from reticent_sim.engine.count_outcome import CountOutcome
from reticent_sim.engine.scenario import Scenario

VOID = {"progress": SimpleNamespace(contributors=(90,), outcomes=("void",))}
BURNT = {"burnt": "fewer than half of the cohorts are left"}


def problems(changes: dict[str, Any], *, faults: bool = False, **scenario: Any) -> list[str]:
    query = SimpleNamespace(id="q", population=100, cohorts=1, min_contributions=50)
    progress = SimpleNamespace(contributors=(90,), outcomes=("released",))
    known = {"query": query, "progress": progress, "exact": True, "acknowledged": 90, "burnt": None} | changes
    return list(
        broken_promises(Scenario(**scenario), [], [cast("CountOutcome", SimpleNamespace(**known))], faults=faults)
    )


@pytest.mark.parametrize("changes", [{"exact": False}, {"acknowledged": 91}])
def test_a_wrong_sum_and_a_lost_contribution_are_problems(changes: dict[str, Any]) -> None:
    assert problems({}) == []
    assert len(problems(changes, faults=True, attacks={"wild": 1})) == 1


def test_only_wild_phones_can_make_a_cohort_void() -> None:
    assert problems(VOID, attacks={"wild": 1, "garbage": 1}) == []
    assert len(problems(VOID, attacks={"garbage": 1})) == len(problems(VOID, faults=True)) == 1


def test_a_query_is_burnt_by_malice_faults_and_absence_only() -> None:
    assert len(problems(BURNT)) == 1
    assert problems(BURNT, attacks={"silence": 1}) == problems(BURNT, faults=True) == problems(BURNT, absent=0.5) == []
