"""`reticent simulate`: a second simulation must have the same results; a run that ends with an error can be reduced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reticent.console import program
from reticent.errors import ExitCode, MissingExtra
from reticent_sim import Scenario, simulator
from reticent_sim.engine.errors import ServerExited
from reticent_sim.engine.faults import Fault, FaultSchedule
from reticent_sim.engine.simulation import Run

SCENARIO = Scenario(phones=10, days=1)
HARMFUL = Fault(0, 3, "crash", "worker 2", steps=0)
HARMLESS = Fault(0, 4, "absent", "phone 3")


def shrink(folder: Path) -> int:
    """The exit code of a reduction in a folder that has no run.json."""
    (folder / "scenario.json").write_text(json.dumps({"scenario": SCENARIO.to_json(), "workers": 3}))
    (folder / "faults.jsonl").write_text(FaultSchedule((HARMFUL, HARMLESS)).to_text())
    return program.main(["simulate", "--shrink", str(folder)])


@pytest.mark.parametrize("error", [ServerExited("the server keys exited"), TimeoutError("no reply within 300 s")])
def test_a_run_that_ends_with_an_error_fails(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def simulate(scenario: Scenario, *, workers: int, faults: FaultSchedule, **_: Any) -> Run:
        assert (scenario, workers) == (SCENARIO, 3)  # a fault may name the last worker
        if any(each.target == HARMFUL.target for each in faults.faults):
            raise error
        return Run(scenario, "", {"problems": []}, None)

    monkeypatch.setattr(simulator, "simulate", simulate)
    monkeypatch.setattr(simulator, "draw_timeline", lambda *_: None)
    assert shrink(tmp_path) == ExitCode.DONE
    assert FaultSchedule.from_text((tmp_path / "shrunk.jsonl").read_text(), "") == FaultSchedule((HARMFUL,))


def test_an_engine_that_is_not_installed_is_no_failure_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def simulate(*_: Any, **__: Any) -> Run:
        raise MissingExtra("the engine ray", "cluster", "ray")

    monkeypatch.setattr(simulator, "simulate", simulate)
    assert shrink(tmp_path) == ExitCode.BAD_INPUT
    assert "the engine ray needs ray" in capsys.readouterr().err


def test_a_database_serves_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = "postgresql://ann@localhost/run"
    assert program.main(["simulate", "--database", database, "--twice"]) == ExitCode.BAD_INPUT
    assert "each simulation needs an empty database: leave out --twice or --database" in capsys.readouterr().err
    scenario = SCENARIO.changed(database=database)
    (tmp_path / "scenario.json").write_text(json.dumps({"scenario": scenario.to_json(), "workers": 3}))
    assert program.main(["simulate", "--shrink", str(tmp_path)]) == ExitCode.BAD_INPUT
    assert "needs an empty database: the faults of" in " ".join(capsys.readouterr().err.split())


RESULTS: dict[str, Any] = {
    "days": [{"day": 0, "ads": None}, {"day": 1, "ads": {"shown": 5, "precision": 0.5}}],
    "masks": [{"check": "none", "breaches": 0}],
    "rates": [],
    "budget": {"spent_epsilon_max": 9.0},
    "counts": [{"id": "counters-1", "seconds": 0.2}],
}


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({}, None),
        ({"counts": [{"id": "counters-1", "seconds": 0.3}]}, None),
        ({"rates": [{"pairs": 3}]}, "rates: [] and [{'pairs': 3}]"),
        ({"budget": {"spent_epsilon_max": 8.0}}, "budget.spent_epsilon_max: 9.0 and 8.0"),
        ({"days": [RESULTS["days"][0], {"day": 1, "ads": None}]}, f"days[1].ads: {RESULTS['days'][1]['ads']} and None"),
    ],
)
def test_a_second_simulation_must_have_the_same_results(
    changes: dict[str, Any], difference: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Run(SCENARIO, "a1", data, None) for data in (RESULTS, RESULTS | changes))
    monkeypatch.setattr(simulator, "simulate_live", lambda *_, **__: second)
    found = simulator._second_run(first, tmp_path, "local", 1)
    sentence = None if difference is None else f"the traces are the same, and the results differ, first in {difference}"
    assert found == sentence
