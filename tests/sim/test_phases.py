"""Figure 5.3: simulation and closed form, the findings, and the files of `reticent experiment phases`."""

import csv
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reticent.console import program
from reticent.randomness import seeded
from reticent_sim.cli import PHASES
from reticent_sim.experiments import phases
from reticent_sim.experiments.phases import PhaseCount, PhaseSettings
from reticent_sim.experiments.verdicts import Verdict
from reticent_sim.rivals.phases import OURS, PROTOCOLS, RASTOGI_NATH, SHI, Law, Protocol, law, simulate
from tests.system.documents import ROOT


def enumerated(protocol: Protocol, users: int, absent: float) -> float:
    """The mean of a query's phases, from the presence of every user in every phase of an attempt."""
    cost = success = 0.0
    for bits in itertools.product([False, True], repeat=users * protocol.phases):
        present = np.reshape(bits, (protocol.phases, users))
        probability = math.prod(1 - absent if bit else absent for bit in bits)
        if protocol.tolerated is None:
            failed = (present[0] & ~present[1:]).any(axis=1)
            ended = int(failed.argmax()) + 2 if failed.any() else protocol.phases
            succeeded = not failed.any()
        else:
            succeeded = present.all(axis=0).sum() >= (1 - protocol.tolerated) * users
            ended = protocol.phases
        cost += probability * ended
        success += probability * succeeded
    return cost / success


@pytest.mark.parametrize(("protocol", "users"), [(SHI, 1), (SHI, 4), (RASTOGI_NATH, 2), (OURS, 4), (OURS, 3)], ids=str)
def test_the_closed_form_is_the_mean_over_all_that_can_happen(protocol: Protocol, users: int) -> None:
    for absent in (0.05, 0.4):
        exact = law(protocol, users, absent)
        assert exact.mean == pytest.approx(enumerated(protocol, users, absent))
        assert 10**exact.log10_mean == pytest.approx(exact.mean)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.name)
def test_simulation_and_closed_form_have_the_same_mean_and_variance(protocol: Protocol) -> None:
    exact = law(protocol, 20, 0.06)
    found = simulate(protocol, 20, 0.06, 20_000, seeded(1, protocol.name))
    assert abs(found.mean() - exact.mean) < 3 * math.sqrt(exact.variance / found.size)
    assert exact.variance / 1.1 < found.var() < exact.variance * 1.1


def test_as_many_users_as_tolerated_may_be_absent() -> None:
    assert [OURS.needed(users) for users in (1, 4, 5, 10, 100)] == [1, 3, 4, 8, 75]
    assert replace(OURS, tolerated=0.1).needed(10) == 9  # and not 10, as rounding of floats would have it
    # 0.87² is above three quarters, and 0.86² below.
    assert law(OURS, 100_000, 0.13).mean == pytest.approx(2)
    assert law(OURS, 100_000, 0.14).mean > 1000


def test_a_law_beyond_all_floats_has_a_logarithm() -> None:
    extreme = law(RASTOGI_NATH, 100_000, 0.1)
    assert 12_000 < extreme.log10_mean < 12_200
    assert extreme.mean > 1e300


def verdicts(points: list[PhaseCount]) -> dict[str, Verdict]:
    return {finding.name: finding.verdict for finding in phases.findings(points)}


def test_every_finding_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    points = list(phases.points(PhaseSettings(quick=True)))
    assert set(verdicts(points).values()) == {Verdict.HOLDS}

    def slow_simulation(point: PhaseCount) -> PhaseCount:
        known = point.simulated
        return point if known is None else replace(point, simulated=replace(known, value=1.7 * known.value))

    wrong = verdicts([slow_simulation(point) for point in points])
    assert wrong["simulation-and-closed-form-agree"] is Verdict.FAILS
    assert wrong["ours-stays-at-its-minimum"] is Verdict.FAILS
    for log10, failing in (
        (0.7, {"ours-stays-at-its-minimum", "rivals-grow-exponentially", "rivals-are-impractical"}),
        (2.0, {"ours-stays-at-its-minimum", "all-are-near-their-minimum-if-absences-are-rare"}),
    ):
        monkeypatch.setattr(Law, "log10_mean", log10)
        found = verdicts([replace(point, simulated=None) for point in points])
        assert failing <= {name for name, verdict in found.items() if verdict is Verdict.FAILS}


def test_the_command_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["experiment", PHASES.name, "--quick", "--output", str(tmp_path), "--seed", "3", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    result = json.loads((tmp_path / "phases.json").read_text())
    assert json.loads(out) == result
    assert (result["settings"]["seed"], result["settings"]["queries"]) == (3, 100)
    with (tmp_path / "phases.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(result["rows"]) == 3 * (len(phases.OVER_ABSENT) + len(phases.OVER_USERS) - 1)
    assert {float(row["absent"]) for row in rows} == {*phases.OVER_ABSENT}
    assert (tmp_path / "phases.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_at_full_size_the_findings_are_those_of_the_documentation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["experiment", PHASES.name, "--output", str(tmp_path)]) == 0
    assert "Everything follows from seed 1" in capsys.readouterr().out
    page = (ROOT / "docs/experiments.md").read_text(encoding="utf-8")
    for finding in json.loads((tmp_path / "phases.json").read_text())["findings"]:
        assert finding["verdict"] == "holds"
        assert f"| `{finding['name']}` | yes | {finding['published'] or 'our own'} | {finding['ours']} |" in page
