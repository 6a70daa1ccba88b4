"""A state machine drives the counting protocol through whatever can happen."""

from collections import Counter
from typing import get_args

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from reticent.privacy.mechanisms import NoiseKind
from tests.system.counting.cores import Cores
from tests.system.counting.machine import CountingMachine
from tests.system.counting.world import AGGREGATION, KEYS, World

FAST = settings(
    deadline=None, suppress_health_check=list(HealthCheck), stateful_step_count=30, max_examples=10, database=None,
    phases=(Phase.generate, Phase.shrink), print_blob=True, report_multiple_bugs=False,
)  # fmt: skip
MANY = settings(FAST, stateful_step_count=50, max_examples=150)


class OfCores(CountingMachine):
    def begin(self) -> World:
        return Cores()


class OfCoresForLonger(OfCores):
    """With a tally of its own."""


def check_that_much_happened(seen: Counter[str], schedules: int) -> None:
    """A machine that never releases, burns or kills anything would find nothing."""
    assert seen["schedules"] >= schedules
    assert seen["contributions"] >= schedules
    for noise in get_args(NoiseKind):
        assert seen[f"contributions with {noise} noise"] >= schedules // 2, seen
    for often in ("RELEASED", "BURNT", f"{KEYS} died", f"{AGGREGATION} died", "a phone died", "CONFLICT"):
        assert seen[often] >= schedules // 10, (often, seen)


def test_whatever_happens_each_contribution_that_was_acknowledged_is_counted_once() -> None:
    run_state_machine_as_test(OfCores, settings=FAST)
    check_that_much_happened(OfCores.seen, FAST.max_examples)


@pytest.mark.slow
def test_the_same_for_longer_schedules_and_many_more_of_them() -> None:
    run_state_machine_as_test(OfCoresForLonger, settings=MANY)
    check_that_much_happened(OfCoresForLonger.seen, MANY.max_examples)
    assert OfCoresForLonger.seen["VOID"], OfCoresForLonger.seen
