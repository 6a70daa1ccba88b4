"""The state machine drives real processes: both servers over TLS, which are killed by kill -9."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.system.counting.machine import CountingMachine
from tests.system.counting.processes import Deployment, Processes, deployed
from tests.system.counting.world import AGGREGATION, KEYS, World

SCHEDULES = {"sqlite": 50, "postgresql": 15}
# A schedule that fails is not made shorter: processes are not in the same state the next time.
ONCE = settings(
    deadline=None, suppress_health_check=list(HealthCheck), stateful_step_count=12,
    database=None, phases=(Phase.generate,), report_multiple_bugs=False, verbosity=Verbosity.verbose,
)  # fmt: skip


@pytest.fixture
def deployment(tmp_path: Path, database: str, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    address = request.getfixturevalue("postgres") if database == "postgresql" else None
    with deployed(tmp_path, address) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("database", SCHEDULES)
def test_whatever_happens_to_real_processes_each_acknowledged_contribution_is_counted_once(
    deployment: Deployment, database: str
) -> None:
    schedules = SCHEDULES[database]

    class OfProcesses(CountingMachine):
        def begin(self) -> World:
            return Processes(deployment)

    try:
        run_state_machine_as_test(OfProcesses, settings=settings(ONCE, max_examples=schedules))
    finally:
        if OfProcesses.failures:
            raise OfProcesses.failures[0]
    seen = OfProcesses.seen
    assert seen["schedules"] >= schedules
    assert seen["promises"] >= schedules
    for often in ("RELEASED", "BURNT", f"{KEYS} died", f"{AGGREGATION} died"):
        assert seen[often] >= schedules // 5, (often, seen)
