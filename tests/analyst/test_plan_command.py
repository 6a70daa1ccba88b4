"""`reticent count plan`, run as people run it: without a server."""

import json
import subprocess
from pathlib import Path

import pytest

from reticent.console import program
from tests.analyst.command import PROGRAM, QUESTION, rows
from tests.analyst.queries import SAMPLES

pytestmark = pytest.mark.slow  # real processes, some seconds in all


@pytest.mark.parametrize("name", ["gym", "flu", "walking"])
def test_the_sample_files_are_planned(name: str) -> None:
    done = subprocess.run(
        [PROGRAM, "count", "plan", SAMPLES / f"{name}.toml", "--json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    content = json.loads(done.stdout)
    assert content["query"]["id"].startswith(name)
    assert content["no_release"] < 1e-3
    assert content["liars"]["no_release"] < 0.011
    assert 0 < content["resources"]["phone_seconds"] < 30
    assert all(each["standard_error"] > content["trusted_error"] for each in content["accuracy"])


def test_a_plan_shows_what_to_expect(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert program.main(["count", "plan", str(SAMPLES / "flu.toml"), "--key-bits", "2048"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("flu-2027-w09: 200,000 phones, 40.0% of them absent\n")
    table = rows(out)
    assert table["fever"] == table["cough"] == table["doctor"]
    for name in ("cohorts", "short", "no", "liars", "noise", "theorem", "a", "the"):
        assert name in table, out


def test_a_plan_needs_the_number_of_phones(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["count", "plan", file]) == 2
    assert "has no number of phones: add population" in capsys.readouterr().err
    assert program.main(["count", "plan", file, "--population", "60", "--key-bits", "2048"]) == 0


def test_a_plan_of_one_cohort_shows_what_one_liar_can_do(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    Path(file).write_text(QUESTION.replace("cohorts = 3\n", "cohorts = 1\n").replace("absent", "lying = 0.01\nabsent"))
    assert program.main(["count", "plan", file, "--population", "60", "--key-bits", "2048"]) == 0
    out = capsys.readouterr().out
    assert "one liar can set the sum to anything, or void it" in " ".join(out.split())
    assert "unbounded" in rows(out)["visits"]
