"""Simulations of several aggregation servers over one PostgreSQL database, of which one is killed."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from reticent_sim.engine.faults import Fault, FaultSchedule
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.simulation import simulate
from tests.postgres import PASSWORD

pytestmark = pytest.mark.slow  # real processes, some seconds for each run

SCENARIO = Scenario(phones=24, days=1, seed=7, ads=False, check="none", counters=2, absent=0.0, cohorts=1)
CRASHES = FaultSchedule(
    (
        Fault(0, 3, "crash", "keys", steps=0),
        Fault(0, 5, "crash", "aggregation"),
        Fault(0, 23, "crash", "aggregation", phase=1),
        Fault(0, 23, "crash", "aggregation-2", steps=0, phase=1),  # while phones contribute to it
    )
)


@pytest.fixture
def database(postgres: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty database, without its password."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    address = postgres.replace(f":{PASSWORD.replace(' ', '%20')}@", "@")
    assert address != postgres
    return address


def test_two_servers_over_one_database_have_the_trace_of_one_with_a_file(database: str, tmp_path: Path) -> None:
    one = simulate(SCENARIO)
    two = simulate(SCENARIO.changed(database=database, aggregation_servers=2), tmp_path / "run")
    assert two.trace == one.trace
    assert not two.problems
    for path in (tmp_path / "run").rglob("*"):
        assert path.suffix != ".db" or path.name.startswith("phones")
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes()
    with psycopg.connect(database) as connection:  # the data stays
        sums = connection.execute("SELECT contributors FROM reticent_agg.sums").fetchall()
        assert sums == [(SCENARIO.phones // 2,)] * 2  # each server has added those of its phones
        assert connection.execute("SELECT count(*) FROM reticent_keys.phones").fetchone() == (SCENARIO.phones,)
    with pytest.raises(ValueError, match=r"^the database already has the schema reticent_agg: make a new one .*"):
        simulate(SCENARIO.changed(database=database))


def test_each_contribution_counts_once_though_servers_are_killed(database: str) -> None:
    run = simulate(SCENARIO.changed(database=database, aggregation_servers=2), faults=CRASHES)
    [count] = run.counts
    assert count["exact"]
    assert count["contributors"] == SCENARIO.phones
    assert not run.problems
    assert [each["applied"] for each in run.data["faults"]] == [True] * len(CRASHES)
    failed = "request for announcements failed"
    assert sum(calls for sentence, calls in run.data["failures"].items() if sentence.startswith(failed)) >= 12
