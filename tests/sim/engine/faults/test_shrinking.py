"""A failing schedule is reduced to the faults that matter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_sim.engine.faults import Fault, FaultSchedule, ShrinkProgress, sample, shrink


@given(st.integers(0, 1000), st.integers(1, 40), st.data())
def test_exactly_the_faults_that_matter_are_left(seed: int, faults: int, data: st.DataObject) -> None:
    schedule = sample(seed, phones=30, days=3, faults=faults)
    places = data.draw(st.sets(st.integers(0, faults - 1), max_size=4))
    moments = sorted({(schedule.faults[place].kind, *schedule.faults[place].moment) for place in places})
    tried: list[str] = []

    def fails(candidate: FaultSchedule) -> bool:
        tried.append(candidate.to_text())
        there = {(each.kind, *each.moment) for each in candidate.faults}
        return all(each in there for each in moments)

    small = shrink(schedule, fails, max_runs=10_000)
    assert sorted((each.kind, *each.moment) for each in small.faults) == moments
    assert len(tried) == len(set(tried))  # each schedule once
    for each in small.faults:  # each fault as small as it can be
        assert len(each.phones) <= 1
        assert (each.times, each.rounds) == (1, 1)
        assert each.steps == (0 if each.kind == "crash" else 1)
        assert abs(each.seconds) <= 1


LONG = FaultSchedule(
    (Fault(0, 5, "partition", "phones 0-99", server="keys", steps=9), *sample(1, phones=100, days=2).faults)
)


def reaches_phone_70_for_four_steps(schedule: FaultSchedule) -> bool:
    return any(each.kind == "partition" and 70 in each.phones and each.steps >= 4 for each in schedule.faults)


def test_a_fault_is_made_as_short_and_as_small_as_it_may_be() -> None:
    [left] = shrink(LONG, reaches_phone_70_for_four_steps).faults
    assert left == Fault(0, 5, "partition", "phone 70", server="keys", steps=4)


def test_the_runs_are_limited_and_the_best_so_far_is_returned_with_progress_on_the_way() -> None:
    seen: list[ShrinkProgress] = []
    some = shrink(LONG, reaches_phone_70_for_four_steps, max_runs=6, on_progress=seen.append)
    assert reaches_phone_70_for_four_steps(some)
    assert len(some) < len(LONG)
    assert [each.runs for each in seen] == [1, 2, 3, 4, 5, 6]
    assert [each.faults for each in seen] == sorted((each.faults for each in seen), reverse=True)
    assert seen[-1].faults == len(some)


def test_a_schedule_that_does_not_fail_is_refused_and_one_that_fails_anyway_is_emptied() -> None:
    with pytest.raises(ValueError, match="does not fail with this schedule"):
        shrink(LONG, lambda _: False)
    assert not len(shrink(LONG, lambda _: True))
