"""Simulations with faults: real servers and phones, which are killed, cut off, late, full and wrong about the time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reticent.errors import ExitCode
from reticent_sim.engine.faults import Fault, FaultSchedule, Kind, sample, shrink
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.simulation import simulate
from reticent_sim.report.timeline import draw_timeline
from tests.system.planted_bug import FORGETS, TWICE, aggregation_program

pytestmark = pytest.mark.slow  # real processes, some seconds for each run

SCENARIO = Scenario(phones=24, days=1, seed=7, ads=False, check="none", counters=2, absent=0.0, cohorts=1)
AT_MOST = 600.0  # seconds, on a busy machine
COUNT = (0, 23)
"""The day and the step of the count."""


EVERY_KIND = FaultSchedule(
    (
        Fault(*COUNT, "request lost", "phone 0", call="contribute"),
        Fault(*COUNT, "reply lost", "phone 1", call="contribute"),
        Fault(*COUNT, "duplicate", "phone 2", call="contribute"),
        Fault(*COUNT, "delay", "phone 3", call="contribute"),
        Fault(*COUNT, "cut", "phone 4", call="contribute"),
        Fault(*COUNT, "reply lost", "phone 5", call="query", times=2),
        Fault(*COUNT, "request lost", "phone 6", call="announcements"),
        Fault(*COUNT, "partition", "phones 7-9", server="aggregation", phase=1, steps=2),
        Fault(*COUNT, "skew", "phone 10", seconds=-60, phase=1, steps=2),
        Fault(*COUNT, "full", "phone 11", phase=1),
        Fault(*COUNT, "slow", "phone 12", rounds=2),
        Fault(*COUNT, "absent", "phone 13", phase=1, steps=10),
        Fault(0, 2, "absent", "phone 14", steps=3),
        Fault(0, 12, "join", "phone 15"),
        Fault(0, 20, "leave", "phone 16"),
        Fault(*COUNT, "reply lost", "phone 17", call="renew"),  # no phone renews within a day
    )
)


def test_a_run_survives_every_fault_of_phones_and_is_the_same_for_any_number_of_workers() -> None:
    runs = [simulate(SCENARIO, faults=EVERY_KIND, workers=workers) for workers in (1, 2)]
    assert runs[0].trace == runs[1].trace
    [count] = runs[0].counts
    assert count["exact"]
    assert count["contributors"] == 22  # all but the phone that was absent and the one that left
    assert not runs[0].problems
    for run in runs:
        assert [each["target"] for each in run.data["faults"] if not each["applied"]] == ["phone 17"]
    failures = "\n".join(runs[0].data["failures"])
    for sentence in (
        "the request was lost",
        "the reply was lost",
        "the reply came after the deadline",
        "the connection was cut",
        "the network does not reach the server",
    ):
        assert sentence in failures


def test_a_run_survives_kills_and_full_disks_of_servers_and_counts_what_was_acknowledged_once() -> None:
    schedule = FaultSchedule(
        (
            Fault(0, 3, "crash", "keys", steps=2),
            Fault(0, 5, "skew", "phones 0-2", seconds=1800, steps=2),
            Fault(0, 5, "skew", "phones 3-5", seconds=-1800, steps=2),
            Fault(0, 8, "full", "phones 6-8", steps=2),
            Fault(0, 10, "crash", "ads", steps=3),
            Fault(0, 14, "partition", "phones 0-11", server="ads", steps=2),
            Fault(0, 17, "crash", "ads", steps=0),
            Fault(0, 18, "absent", "phones 9-11", steps=2),
            Fault(*COUNT, "crash", "aggregation", phase=1, steps=0),
            Fault(*COUNT, "crash", "keys", phase=1, steps=1),
            Fault(*COUNT, "slow", "phones 0-11", rounds=2),
            Fault(*COUNT, "crash", "aggregation", phase=2, steps=1),
            Fault(*COUNT, "full", "aggregation", phase=3, steps=1),
            Fault(*COUNT, "crash", "worker 0", phase=4, steps=0),
        )
    )
    scenario = SCENARIO.changed(ads=True, check="simulatable", routines=2)
    run = simulate(scenario, faults=schedule, workers=2)
    assert all(count["exact"] and count["contributors"] == 24 for count in run.counts)
    assert [count["kind"] for count in run.counts][-1] == "counters"
    assert not run.problems
    assert all(each["applied"] for each in run.data["faults"])
    outcomes = {(each["kind"], each["target"], each["outcome"]) for each in run.data["faults"]}
    assert outcomes >= {
        ("crash", "ads", "killed, then serves again"),
        ("crash", "ads", "killed, serves again"),
        ("crash", "keys", "killed, then serves again"),
        ("crash", "aggregation", "killed, serves again"),
        ("crash", "aggregation", "killed, then serves again"),
        ("full", "aggregation", "its disk is full, then its disk has room again"),
        ("crash", "worker 0", "killed, works again"),
    }


def test_masks_of_phones_with_wrong_clocks_and_full_disks_keep_their_promise_for_any_number_of_workers() -> None:
    schedule = FaultSchedule(
        (
            Fault(0, 5, "skew", "phones 0-2", seconds=1800, steps=19),
            Fault(0, 8, "skew", "phones 3-5", seconds=-1800, steps=16),
            Fault(0, 9, "skew", "phone 6", seconds=4, steps=3),
            Fault(0, 9, "skew", "phone 7", seconds=-5, steps=3),
            Fault(0, 10, "full", "phones 8-9", steps=3),
            Fault(0, 12, "absent", "phone 10", steps=3),
        )
    )
    scenario = SCENARIO.changed(phones=12, check="adaptive", routines=1)
    one, two = (simulate(scenario, faults=schedule, workers=workers) for workers in (1, 2))
    assert one.trace == two.trace
    assert one.masks == two.masks
    assert not one.problems
    [own] = [mask for mask in one.masks if mask["check"] == "adaptive"]
    assert own["days"] + own["strayed"] == 12
    assert own["forbidden"] == 0
    assert own["days"] > 0
    assert one.days[0]["suppressed"] > 0


def test_a_server_that_forgets_what_it_has_acknowledged_is_a_problem_of_the_run() -> None:
    """It writes contributions when the query closes, and is killed before."""
    schedule = FaultSchedule(
        (
            Fault(*COUNT, "slow", "phones 0-11", rounds=1),
            Fault(*COUNT, "crash", "aggregation", phase=2, steps=0),
        )
    )
    run = simulate(SCENARIO, faults=schedule, workers=1, aggregation_program=aggregation_program(FORGETS))
    assert any("phones have an acknowledgement" in problem for problem in run.problems), run.problems


SEEDS = 5
"""So many random schedules find the bug."""
FAULTS = 8
"""The faults of each of them."""


def test_a_bug_in_the_protocol_is_found_by_random_schedules_and_shrunk_to_the_fault_that_matters() -> None:
    """The server adds a contribution that is sent again to the sum once more."""
    problems: dict[str, list[str]] = {}

    def fails(schedule: FaultSchedule) -> bool:
        text = schedule.to_text()
        if text not in problems:
            run = simulate(SCENARIO, faults=schedule, workers=1, aggregation_program=aggregation_program(TWICE))
            problems[text] = run.problems
        return bool(problems[text])

    kinds: list[Kind] = ["request lost", "reply lost", "duplicate", "delay", "cut", "partition", "slow", "absent"]
    schedules = (
        sample(seed, phones=SCENARIO.phones, days=1, faults=FAULTS, kinds=kinds, counts=[COUNT])
        for seed in range(SEEDS)
    )
    found = next(schedule for schedule in schedules if fails(schedule))
    small = shrink(found, fails, max_runs=20)
    assert len(small) < 10
    [fault] = small.faults
    assert fault.call == "contribute"
    assert fault.kind in {"reply lost", "duplicate", "delay", "cut"}
    assert not simulate(SCENARIO, faults=found, workers=1).problems  # without the bug


PLANT = f"""
import sys
if "agg" in sys.orig_argv and "serve" in sys.orig_argv:
    sys.path.insert(0, {str(Path(__file__).parents[2])!r})
    from tests.system.planted_bug import TWICE, plant
    plant(TWICE)
"""
"""Python imports `sitecustomize` when it starts, also in the aggregation server."""
MATTER = (
    Fault(*COUNT, "reply lost", "phone 4", call="contribute"),  # it contributes again in the second round
    Fault(*COUNT, "slow", "phone 7"),  # so that the query is still open
)


def test_the_command_reduces_a_failing_run_to_the_few_events_and_draws_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(PLANT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    schedule = FaultSchedule((*MATTER, Fault(0, 9, "absent", "phone 3")))
    (tmp_path / "faults.jsonl").write_text(schedule.to_text())

    def reticent(*options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "reticent", "simulate", *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=AT_MOST, check=False)
        return done.returncode, done.stdout

    scenario = "--phones 10 --days 1 --check none --no-ads --counters 1 --cohorts 1 --absent 0 --routines 1 --workers 1"
    status, output = reticent(*scenario.split(), "--faults", "faults.jsonl", "--out", "run")
    assert status == ExitCode.BAD_ANSWER, output
    assert "1 problem: " in output
    status, output = reticent("--shrink", "run")
    assert status == ExitCode.DONE
    assert "2 of 3 faults matter:" in output
    found = FaultSchedule.from_text((tmp_path / "run" / "shrunk.jsonl").read_text())
    assert found == FaultSchedule(MATTER)
    assert all(each.to_json() in output for each in MATTER)
    draw_timeline(found, tmp_path / "expected.png")
    assert (tmp_path / "run" / "shrunk.png").read_bytes() == (tmp_path / "expected.png").read_bytes()
