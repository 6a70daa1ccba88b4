"""A state machine drives the counting protocol through whatever can happen."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.system.counting.cores import Cores
from tests.system.counting.machine import CountingMachine
from tests.system.counting.world import World

FAST = settings(
    deadline=None, suppress_health_check=list(HealthCheck), stateful_step_count=30, max_examples=40, database=None,
    phases=(Phase.generate, Phase.shrink), print_blob=True, report_multiple_bugs=False,
)  # fmt: skip


class OfCores(CountingMachine):
    def begin(self) -> World:
        return Cores()


def test_whatever_happens_each_contribution_that_was_acknowledged_is_counted_once() -> None:
    run_state_machine_as_test(OfCores, settings=FAST)
    print(OfCores.seen)


@pytest.mark.slow
def test_the_same_for_longer_schedules_and_many_more_of_them() -> None:
    run_state_machine_as_test(OfCores, settings=settings(FAST, max_examples=150, stateful_step_count=60))
